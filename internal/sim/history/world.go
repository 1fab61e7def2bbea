// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history is a model of a whole cluster around the real controller: an API server, watches, kubelets, and people. What
// happens in it is a list of steps, from a seed, each of which can be left out. The controller is the one that is delivered,
// with its informers, its queue and its workers; it runs in a synctest bubble, and each of its calls waits until the world
// answers it. So the same steps always go the same way, and any order of calls, events and faults can be had.
package history

import (
	"cmp"
	"context"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// setName is the set of the histories.
const setName = "web"

// restless is how many calls and events there may be without time going on. More are a loop.
const restless = 600

// World is the world of one history.
type World struct {
	// wait waits until all controllers wait for something.
	wait    func()
	metrics *telemetry.Metrics
	config  Config
	server  *server
	nodes   *nodes
	running []*instance
	started int
	// arrive is where calls come from the controllers, calls are those that are not answered yet.
	arrive chan *call
	calls  []*call
	// faults hit the next calls, one each.
	faults []Kind
	// refusing means that admission refuses new pods.
	refusing bool
	// jumped is how far the clocks were apart at most.
	jumped time.Duration
	// calm means that nothing bad happens any more.
	calm bool

	broken  []Breach
	stats   Stats
	telling bool
	story   strings.Builder
	// trace is the sum of all writes, so that two runs can be compared.
	trace hash.Hash64
	// right is what people allowed to happen to claims.
	right right
}

// Breach is a rule that was broken, and how.
type Breach struct {
	Rule, How string
}

func (b Breach) String() string { return b.Rule + ": " + b.How }

// Stats count what happened in histories.
type Stats struct {
	Steps, Calls, Writes, Events, Relists, Crashes, Overlaps, Fights int
	// Faults are all that went wrong beside that, by kind.
	Faults map[Kind]int
}

// Add adds what happened in others.
func (s *Stats) Add(o Stats) {
	s.Steps += o.Steps
	s.Calls += o.Calls
	s.Writes += o.Writes
	s.Events += o.Events
	s.Relists += o.Relists
	s.Crashes += o.Crashes
	s.Overlaps += o.Overlaps
	s.Fights += o.Fights
	if s.Faults == nil {
		s.Faults = map[Kind]int{}
	}
	for k, n := range o.Faults {
		s.Faults[k] += n
	}
}

func (s *Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps, %d events, %d writes", s.Steps, s.Events, s.Writes)
	fmt.Fprintf(&b, ", crash %d, overlap %d, dropped events %d", s.Crashes, s.Overlaps, s.Relists)
	for _, k := range slices.Sorted(maps.Keys(s.Faults)) {
		fmt.Fprintf(&b, ", %s %d", k, s.Faults[k])
	}
	return b.String()
}

// Result is how a history went.
type Result struct {
	Broken []Breach
	Stats  Stats
	// Story is what happened, if it was asked for.
	Story string
	// Trace is the same for two runs that went the same way.
	Trace string
	// End is what there is in the end.
	End string
}

func (w *World) say(format string, args ...any) {
	if w.telling {
		fmt.Fprintf(&w.story, "  %8s  ", time.Since(w.config.began).Round(time.Millisecond))
		fmt.Fprintf(&w.story, format+"\n", args...)
	}
}

func (w *World) breaks(rule, how string) {
	w.say("BROKEN: %s: %s", rule, how)
	w.broken = append(w.broken, Breach{rule, how})
}

// collect takes the calls that have come. Those that came at once are brought into an order that does not depend on chance.
func (w *World) collect() {
	w.wait()
	var fresh []*call
	for len(w.arrive) > 0 {
		fresh = append(fresh, <-w.arrive)
	}
	slices.SortFunc(fresh, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.by.name, b.by.name), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name),
			cmp.Compare(a.verb, b.verb))
	})
	for _, c := range fresh {
		if c.by.dead.Load() {
			c.answers <- answer{err: errDead}
			continue
		}
		if c.by.idle {
			c.by.ledger.sights, c.by.idle = nil, false
		}
		c.by.look(w)
		c.by.busy++
		w.judge(c)
		w.calls = append(w.calls, c)
	}
	for _, c := range w.calls {
		if c.abandoned.Load() && !c.lost {
			c.lost = true
			c.by.busy--
			c.by.ledger.learn(c, answer{err: context.DeadlineExceeded})
		}
	}
	for _, i := range w.running {
		i.idle = i.idle || i.busy == 0
	}
	w.reap()
}

// quiesce lets everything happen that happens without time going on: calls are answered, events delivered.
func (w *World) quiesce() {
	for range restless {
		w.collect()
		if w.config.EventsFirst && w.flow() {
			continue
		}
		if c := w.next(); c != nil {
			w.serve(c)
			continue
		}
		if !w.flow() {
			return
		}
	}
	if len(w.running) > 1 {
		// Each undoes what the other does, as its caches are out of date. That lasts until one of them notices that it has lost
		// the lease.
		w.stats.Fights++
		w.say("the controllers fight")
		w.kill(w.running[0])
		return
	}
	w.breaks(RuleLoop, "there is no end to its calls")
}

// next is the next call to be answered.
func (w *World) next() *call {
	for n, c := range w.calls {
		if c.held == 0 && !c.lost {
			w.calls = append(w.calls[:n:n], w.calls[n+1:]...)
			return c
		}
	}
	return nil
}

// flow delivers the oldest of the events that the caches do not show yet, unless they are stalled; false if there is none.
func (w *World) flow() bool {
	var to *instance
	var kind plan.Kind
	oldest := 0
	for _, i := range w.running {
		for _, k := range kinds() {
			m := i.caches[k]
			if m.stalled || w.lag(m, k) == 0 {
				continue
			}
			if at := versionOf(w.server.shelves[k].log[m.cursor].object); to == nil || at < oldest {
				to, kind, oldest = i, k, at
			}
		}
	}
	return to != nil && w.deliver(to, kind)
}

// serve answers a call, unless a fault hits it.
func (w *World) serve(c *call) {
	if c.verb == verbList {
		w.reply(c, w.fill(c))
		return
	}
	w.stats.Calls++
	w.arm(c)
	if c.isWrite() && c.by.crash == crashBefore {
		w.say("%s never comes to be", c)
		w.kill(c.by)
		w.reply(c, answer{err: errDead})
		return
	}
	if !c.judged && len(w.faults) > 0 && c.isWrite() {
		fault := w.faults[0]
		w.faults = w.faults[1:]
		c.judged = true
		if w.hit(c, fault) {
			return
		}
	}
	a := w.commit(c)
	if c.isWrite() && c.by.crash == crashAfter {
		a = answer{err: errDead}
		w.kill(c.by)
	}
	w.reply(c, a)
}

// arm lets a controller crash if its time has come.
func (w *World) arm(c *call) {
	if !c.isWrite() || w.config.CrashAt == 0 {
		return
	}
	if w.config.CrashAt--; w.config.CrashAt > 0 {
		return
	}
	c.by.crash = crashBefore
	if w.config.CrashDone {
		c.by.crash = crashAfter
	}
	w.start(0)
}

// reply answers a call.
func (w *World) reply(c *call, a answer) {
	c.by.busy--
	c.by.ledger.learn(c, a)
	c.answers <- a
}

// hit lets a fault hit a call; false if the call is to be carried out all the same.
func (w *World) hit(c *call, fault Kind) bool {
	w.say("%s meets: %s", c, fault)
	w.stats.Faults[fault]++
	group := resource(c.kind)
	switch fault {
	case Conflict:
		w.reply(c, answer{err: apierrors.NewConflict(group, c.name, errSpurious)})
	case Throttled:
		w.reply(c, answer{err: apierrors.NewTooManyRequests("the server is busy", 1)})
	case ServerError:
		w.reply(c, answer{err: apierrors.NewInternalError(errSpurious)})
	case TimeoutBefore:
		w.reply(c, answer{err: apierrors.NewTimeoutError("it never came", 1)})
	case TimeoutAfter:
		w.commit(c)
		w.reply(c, answer{err: context.DeadlineExceeded})
	case TimeoutLate:
		w.reply(c, answer{err: context.DeadlineExceeded})
		c.lost, c.held = true, 2
		w.calls = append(w.calls, c)
	case SlowWrite:
		c.held = 2
		w.calls = append(w.calls, c)
	default:
		return false
	}
	return true
}

// ripen brings held calls nearer to their arrival. Those that nobody waits for any more are carried out on their own.
func (w *World) ripen() {
	for n := 0; n < len(w.calls); {
		c := w.calls[n]
		if c.held > 0 && c.verb != verbList {
			c.held--
		}
		if c.lost && c.held == 0 {
			w.calls = append(w.calls[:n:n], w.calls[n+1:]...)
			w.say("%s arrives late", c)
			w.commit(c)
			continue
		}
		n++
	}
}

// pass lets time go on.
func (w *World) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		w.quiesce()
		if len(w.broken) > 0 {
			return
		}
		select {
		case c := <-w.arrive:
			w.arrive <- c
		case <-timer.C:
			w.quiesce()
			return
		}
	}
}

// Run lets a history happen. It has to be called in a synctest bubble, whose Wait is given. With telling, the story is told.
func Run(h History, wait func(), metrics *telemetry.Metrics, telling bool) Result {
	w := newWorld(h.Config, wait, metrics, telling)
	defer w.end()
	w.prepare()
	for n, s := range h.Steps {
		if w.telling {
			fmt.Fprintf(&w.story, "%3d %s\n", n+1, s)
		}
		w.stats.Steps++
		w.do(s)
		w.ripen()
		w.pass(stepTime)
		w.check()
		if len(w.broken) > 0 {
			return w.result()
		}
	}
	w.rest()
	return w.result()
}

// stepTime is how long a step takes.
const stepTime = 100 * time.Millisecond

func newWorld(c Config, wait func(), metrics *telemetry.Metrics, telling bool) *World {
	c.began = time.Now()
	return &World{
		wait: wait, metrics: metrics, config: c, server: newServer(), nodes: newNodes(), telling: telling,
		arrive: make(chan *call, 2*restless),
		trace:  fnv.New64a(),
		stats:  Stats{Faults: map[Kind]int{}},
	}
}

// prepare makes the set and starts a controller.
func (w *World) prepare() {
	w.createSet()
	w.start(0)
	w.pass(stepTime)
}

func (w *World) result() Result {
	return Result{
		Broken: w.broken,
		Stats:  w.stats,
		Story:  w.story.String(),
		Trace:  fmt.Sprintf("%s, version %d, %x", &w.stats, w.server.version, w.trace.Sum64()),
		End:    w.describeEnd(),
	}
}

// end stops all controllers.
func (w *World) end() {
	for len(w.running) > 0 {
		w.kill(w.running[0])
	}
	w.wait()
	w.collect()
	w.wait()
}

// Draw makes the history of a seed.
func Draw(seed, number uint64) History {
	d := &drawer{rng: rand.New(rand.NewPCG(seed, number))}
	return d.history()
}

// plural is a count of things.
func plural(n int, thing string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
