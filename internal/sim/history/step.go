// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Kind is what happens in a step.
type Kind string

// What may happen. Numbers of a step choose which pod, cache, controller or node it happens to; where there is none, nothing
// happens.
const (
	// Work lets the nodes, the garbage collector and whatever protects claims do their work once.
	Work Kind = "nodes work"
	// Pass lets time pass.
	Pass Kind = "time passes"
	// ClockJump lets the clocks of server and nodes jump against that of the controllers.
	ClockJump Kind = "clock jump"

	// Stall lets a cache stand still, Flow lets it go on, Deliver lets it show a few events, Relist drops its events.
	Stall   Kind = "stalled cache"
	Flow    Kind = "flowing cache"
	Deliver Kind = "delivery"
	Relist  Kind = "dropped events"

	// Crash ends a controller, Start starts one beside those that run, Retire lets one stop as it should.
	Crash       Kind = "crash"
	CrashBefore Kind = "crash before a write"
	CrashAfter  Kind = "crash after a write"
	Start       Kind = "start"
	Retire      Kind = "stop"

	// Conflict and those below hit the next write of any controller.
	Conflict      Kind = "conflict"
	Throttled     Kind = "429"
	ServerError   Kind = "500"
	TimeoutBefore Kind = "lost write"
	TimeoutAfter  Kind = "lost answer"
	TimeoutLate   Kind = "late write"
	SlowWrite     Kind = "slow write"
	// Refuse lets admission refuse pods, or not any more.
	Refuse Kind = "refusal"

	// PodFails and those below happen to a pod on its node.
	PodFails    Kind = "failed pod"
	PodEnds     Kind = "ended pod"
	PodUnready  Kind = "unready pod"
	PodHangs    Kind = "hanging pod"
	PodNever    Kind = "pod that never starts"
	NodeLost    Kind = "lost node"
	NodeBack    Kind = "node back"
	NodeDrained Kind = "drained node"

	// Scale and those below are what people do to the set.
	Scale        Kind = "scale"
	Image        Kind = "image"
	Strategy     Kind = "strategy"
	Retention    Kind = "retention"
	HistoryLimit Kind = "history limit"
	Ordinals     Kind = "first ordinal"
	DeleteSet    Kind = "deleted set"
	CreateSet    Kind = "created set"

	// DeletePod and those below are what people do to what the set owns.
	DeletePod      Kind = "deleted pod"
	ForcePod       Kind = "forced pod"
	Relabel        Kind = "relabelled pod"
	StripPod       Kind = "stripped pod"
	OrphanPod      Kind = "orphaned pod"
	HoldPod        Kind = "held pod"
	DeleteClaim    Kind = "deleted claim"
	DeleteRevision Kind = "deleted revision"
	OrphanRevision Kind = "orphaned revision"
	Stranger       Kind = "stranger"
	BarePod        Kind = "bare pod"
)

// Step is one step of a history. Its numbers are read by its kind.
type Step struct {
	Kind Kind
	A, B int
}

func (s Step) String() string {
	return fmt.Sprintf("%s (%d, %d): %s", s.Kind, s.A, s.B, sentences()[s.Kind])
}

// sentences tell what happens in a step.
func sentences() map[Kind]string {
	return map[Kind]string{
		Work:           "kubelets bring each pod one stage on, the garbage collector works, deleted claims that nobody uses go",
		Pass:           "1 s, 5 s, 40 s or 5 min pass",
		ClockJump:      "the clock of server and nodes jumps by 20 s or 10 min, forward or back",
		Stall:          "the cache of one kind shows nothing new",
		Flow:           "the cache of one kind shows all that is new",
		Deliver:        "the cache of one kind shows one to three events",
		Relist:         "the events that one cache does not show yet are dropped, and it lists anew",
		Crash:          "a controller is gone at once",
		CrashBefore:    "a controller will be gone just before its next write",
		CrashAfter:     "a controller will be gone just after its next write, without its answer",
		Start:          "one more controller starts, perhaps with an old list",
		Retire:         "a controller stops as it should",
		Conflict:       "the next write is answered 409",
		Throttled:      "the next write is answered 429",
		ServerError:    "the next write is answered 500",
		TimeoutBefore:  "the next write times out and never comes",
		TimeoutAfter:   "the next write is made, and its answer does not come",
		TimeoutLate:    "the next write times out, and is made later",
		SlowWrite:      "the next write takes two steps",
		Refuse:         "admission refuses all pods from now on, or none",
		PodFails:       "a pod fails",
		PodEnds:        "a pod ends well",
		PodUnready:     "a pod is not ready until its node works again",
		PodHangs:       "a pod will not end when it is asked to",
		PodNever:       "a pod will not start",
		NodeLost:       "a node is out of reach, and its pods run on",
		NodeBack:       "a node is back",
		NodeDrained:    "the pods of a lost node are deleted",
		Scale:          "the set gets other replicas",
		Image:          "the set gets another image, perhaps one that does not start",
		Strategy:       "the set gets another strategy, partition and maxUnavailable",
		Retention:      "the set gets another retention policy for its claims",
		HistoryLimit:   "the set gets another limit of revisions",
		Ordinals:       "the set begins at another ordinal",
		DeleteSet:      "the set is deleted: in the background, orphaning, or in the foreground",
		CreateSet:      "the set is created if there is none",
		DeletePod:      "somebody deletes a pod",
		ForcePod:       "somebody deletes a pod without grace",
		Relabel:        "somebody takes a pod's label, or gives it back",
		StripPod:       "somebody takes a pod's identity labels",
		OrphanPod:      "somebody takes a pod's owner",
		HoldPod:        "somebody puts a finalizer on a pod, or takes it off",
		DeleteClaim:    "somebody deletes a claim",
		DeleteRevision: "somebody deletes a revision",
		OrphanRevision: "somebody takes a revision's owner",
		Stranger:       "somebody creates a pod under a name of the set, with another owner",
		BarePod:        "somebody creates a pod under a name of the set, without an owner",
	}
}

// Config is how a history begins.
type Config struct {
	Replicas, Claims int
	Parallel         bool
	// MinReady is the set's minReadySeconds.
	MinReady int
	// EventsFirst lets caches show events before calls are answered.
	EventsFirst bool
	// CrashAt lets the controller crash at that write, counted from 1, and another start; 0 for never. With CrashDone the write
	// has been made by then.
	CrashAt   int
	CrashDone bool

	began time.Time
}

func (c Config) String() string {
	how := "in order"
	if c.Parallel {
		how = "in parallel"
	}
	first := "calls"
	if c.EventsFirst {
		first = "events"
	}
	return fmt.Sprintf("a set of %s %s, with %s each, minReadySeconds %d; %s come first",
		plural(c.Replicas, "pod"), how, plural(c.Claims, "claim"), c.MinReady, first)
}

// History is what happens in a world.
type History struct {
	Config Config
	Steps  []Step
}

func (h History) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "    %s\n", h.Config)
	for n, s := range h.Steps {
		fmt.Fprintf(&b, "%3d %s\n", n+1, s)
	}
	return b.String()
}

// drawer draws histories.
type drawer struct{ rng *rand.Rand }

func (d *drawer) history() History {
	h := History{Config: Config{
		Replicas:    1 + d.rng.IntN(4),
		Claims:      d.rng.IntN(2),
		Parallel:    d.rng.IntN(3) == 0,
		MinReady:    []int{0, 0, 0, 5}[d.rng.IntN(4)],
		EventsFirst: d.rng.IntN(2) == 0,
	}}
	// Each history has a few themes, so that what happens seldom meets what happens seldom.
	themes := themes()
	chosen := make([][]Kind, 0, 3)
	for range 3 {
		chosen = append(chosen, themes[d.rng.IntN(len(themes))])
	}
	for range 20 + d.rng.IntN(30) {
		h.Steps = append(h.Steps, d.step(chosen))
	}
	return h
}

func (d *drawer) step(chosen [][]Kind) Step {
	s := Step{A: d.rng.IntN(12), B: d.rng.IntN(12)}
	switch d.rng.IntN(10) {
	case 0, 1, 2, 3:
		s.Kind = Work
	case 4:
		s.Kind = Pass
	case 5:
		s.Kind = []Kind{Scale, Image, Image, Strategy}[d.rng.IntN(4)]
	default:
		theme := chosen[d.rng.IntN(len(chosen))]
		s.Kind = theme[d.rng.IntN(len(theme))]
	}
	return s
}

// themes are kinds of steps that belong together.
func themes() [][]Kind {
	return [][]Kind{
		{Stall, Stall, Flow, Deliver, Relist},
		{Stall, Deliver, Deliver, Deliver, Flow},
		{Crash, CrashBefore, CrashAfter, Start, Start},
		{Start, Retire, Crash, Stall, Flow},
		{Conflict, Throttled, ServerError, TimeoutBefore, TimeoutAfter, TimeoutLate, SlowWrite},
		{TimeoutAfter, TimeoutLate, SlowWrite, Stall, Flow},
		{PodFails, PodEnds, PodUnready, PodHangs, PodNever},
		{NodeLost, NodeBack, NodeDrained, ForcePod, Work},
		{ClockJump, Pass, PodUnready},
		{DeleteSet, CreateSet, CreateSet, Retention},
		{DeletePod, ForcePod, Relabel, StripPod, OrphanPod, HoldPod},
		{DeleteClaim, Retention, Scale, DeletePod, Ordinals},
		{DeleteRevision, OrphanRevision, HistoryLimit, Image, Image},
		{Stranger, BarePod, DeletePod, Relabel, OrphanPod},
		{Refuse, Pass, PodFails, Image},
	}
}
