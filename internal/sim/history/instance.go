// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

// errDead is what a controller that has crashed is answered. It cannot tell anybody.
var errDead = errors.New("this controller is dead")

// Verbs of calls.
const (
	verbGet    = "get"
	verbList   = "list"
	verbCreate = "create"
	verbPatch  = "patch"
	verbStatus = "patch the status of"
	verbDelete = "delete"
)

// call is one request of a controller.
type call struct {
	by      *instance
	verb    string
	kind    plan.Kind
	name    string
	object  object
	how     types.PatchType
	body    body
	options metav1.DeleteOptions

	answers chan answer
	// held is how many steps it still takes to arrive.
	held int
	// abandoned means that the controller waits for the answer no more, lost that the world knows it.
	abandoned atomic.Bool
	lost      bool
	// judged means that a fault has hit it, so that no other does.
	judged bool
}

func (c *call) String() string {
	return fmt.Sprintf("%s: %s %s %s", c.by.name, c.verb, c.kind, c.name)
}

func (c *call) isWrite() bool { return c.verb != verbGet && c.verb != verbList }

// answer is what the API server says.
type answer struct {
	object object
	err    error
	// listed and version are those of a list.
	listed  []object
	version string
}

// instance is one running controller: the real one, with caches of its own.
type instance struct {
	name   string
	dead   atomic.Bool
	cancel context.CancelFunc
	// stopping means that it was asked to stop.
	stopping bool
	ended    chan struct{}
	caches   map[plan.Kind]*mirror
	// busy is how many calls wait for answers.
	busy int
	// idle means that no sync goes on, changed that its caches show other than at its last sight.
	idle, changed bool
	// crash tells that it crashes at its next write: crashBefore or crashAfter.
	crash  int
	ledger ledger
}

const (
	crashBefore = 1 + iota
	crashAfter
)

// mirror is what the cache of a kind shows: the log up to the cursor.
type mirror struct {
	objects map[string]object
	cursor  int
	// version is that of the last event that it shows.
	version int
	filled  bool
	// stream is where events are delivered; nil while nobody watches.
	stream *stream
	// stalled means that no event comes by itself.
	stalled bool
	// behind is by how many events the first list is out of date, as one that an API server answers from its own cache.
	behind int
}

// stream is a watch.
type stream struct {
	events  chan watch.Event
	stopped atomic.Bool
}

// Stop ends the watch.
func (s *stream) Stop() { s.stopped.Store(true) }

// ResultChan is where the events come.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// watch begins to watch a kind.
func (i *instance) watch(k plan.Kind) watch.Interface {
	s := &stream{events: make(chan watch.Event, 1)}
	i.caches[k].stream = s
	return s
}

// silent takes note of no events.
type silent struct{}

// Event drops an event.
func (silent) Event(runtime.Object, string, string, string) {}

// Eventf drops an event.
func (silent) Eventf(runtime.Object, string, string, string, ...any) {}

// AnnotatedEventf drops an event.
func (silent) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}

// start starts a controller, whose first lists are behind by so many events.
func (w *World) start(behind int) {
	i := &instance{
		name: string(rune('A' + w.started)), ended: make(chan struct{}), caches: map[plan.Kind]*mirror{}, ledger: newLedger(),
	}
	w.started++
	for _, k := range kinds() {
		i.caches[k] = &mirror{objects: map[string]object{}, behind: behind}
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	i.cancel = cancel
	c, err := controller.New(&client{world: w, by: i}, silent{}, controller.Options{Workers: 1, Metrics: w.metrics})
	if err != nil {
		cancel()
		w.breaks("the controller can be made", err.Error())
		return
	}
	w.running = append(w.running, i)
	go func() {
		defer close(i.ended)
		if err := c.Run(ctx); err != nil {
			w.breaks("the controller runs", err.Error())
		}
	}()
	w.say("controller %s starts", i.name)
}

// kill ends a controller at once: nothing that it has not sent comes any more.
func (w *World) kill(i *instance) {
	if i.dead.Swap(true) {
		return
	}
	w.say("controller %s crashes", i.name)
	w.stats.Crashes++
	i.cancel()
	kept := w.calls[:0]
	for _, c := range w.calls {
		switch {
		case c.by != i:
			kept = append(kept, c)
		case c.lost:
			// It is on its way, and nobody waits for its answer.
			kept = append(kept, c)
		default:
			c.answers <- answer{err: errDead}
		}
	}
	w.calls = kept
	w.forget(i)
}

// retire lets a controller end as it does when it is asked to: what it has begun is brought to an end.
func (w *World) retire(i *instance) {
	w.say("controller %s is asked to stop", i.name)
	i.stopping = true
	i.cancel()
}

func (w *World) forget(i *instance) {
	for n, other := range w.running {
		if other == i {
			w.running = append(w.running[:n:n], w.running[n+1:]...)
			return
		}
	}
}

// reap forgets the controllers that have ended.
func (w *World) reap() {
	for n := 0; n < len(w.running); {
		select {
		case <-w.running[n].ended:
			w.forget(w.running[n])
		default:
			n++
		}
	}
}

// lag is how many events a cache does not show yet.
func (w *World) lag(m *mirror, k plan.Kind) int {
	if !m.filled || m.stream == nil || m.stream.stopped.Load() {
		return 0
	}
	return len(w.server.shelves[k].log) - m.cursor
}

// deliver lets a cache show the next event; false if there is none.
func (w *World) deliver(i *instance, k plan.Kind) bool {
	m := i.caches[k]
	if w.lag(m, k) == 0 {
		return false
	}
	e := w.server.shelves[k].log[m.cursor]
	m.cursor++
	m.take(e)
	i.changed = true
	m.stream.events <- watch.Event{Type: e.what, Object: copyOf(e.object)}
	w.stats.Events++
	return true
}

func (m *mirror) take(e event) {
	m.version = versionOf(e.object)
	if e.what == watch.Deleted {
		delete(m.objects, e.object.GetName())
		return
	}
	m.objects[e.object.GetName()] = e.object
}

// relist drops the events that have not come yet: the watch ends, and all is listed anew.
func (w *World) relist(i *instance, k plan.Kind) bool {
	m := i.caches[k]
	if !m.filled || m.stream == nil || m.stream.stopped.Load() {
		return false
	}
	expired := apierrors.NewResourceExpired("too old").Status()
	m.stream.events <- watch.Event{Type: watch.Error, Object: &expired}
	m.stream, m.stalled = nil, false
	w.stats.Relists++
	return true
}

// fill answers a list. A cache never goes back.
func (w *World) fill(c *call) answer {
	m, shelf := c.by.caches[c.kind], w.server.shelves[c.kind]
	at := max(m.cursor, len(shelf.log)-m.behind, 0)
	m.behind = 0
	for _, e := range shelf.log[m.cursor:at] {
		m.take(e)
	}
	m.cursor, m.filled = at, true
	a := answer{version: strconv.Itoa(w.server.version)}
	if at < len(shelf.log) {
		a.version = strconv.Itoa(max(1, versionOf(shelf.log[at].object)-1))
	}
	c.by.changed = true
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		a.listed = append(a.listed, m.objects[name])
	}
	return a
}

func versionOf(o object) int {
	n, err := strconv.Atoi(o.GetResourceVersion())
	if err != nil {
		return 0
	}
	return n
}

// sight is what a controller's caches showed at one moment.
type sight struct {
	now       time.Time
	set       *appsv1.StatefulSet
	pods      map[string]object
	claims    map[string]object
	revisions map[string]object
	// podsAt is up to which version the cache shows what became of pods.
	podsAt int
	// live means that the API server held the set then, and did not delete it.
	live bool
}

// look takes note of what the caches show now, if that is other than before.
func (i *instance) look(w *World) {
	if n := len(i.ledger.sights); n > 0 && !i.changed && i.ledger.sights[n-1].now.Equal(time.Now()) {
		return
	}
	i.changed = false
	set, _ := i.caches[plan.KindSet].objects[setName].(*appsv1.StatefulSet)
	truth := w.server.set()
	i.ledger.sights = append(i.ledger.sights, sight{
		now:       time.Now(),
		set:       set,
		pods:      maps.Clone(i.caches[plan.KindPod].objects),
		claims:    maps.Clone(i.caches[plan.KindClaim].objects),
		revisions: maps.Clone(i.caches[plan.KindRevision].objects),
		podsAt:    i.caches[plan.KindPod].version,
		live:      set != nil && truth != nil && truth.UID == set.UID && truth.DeletionTimestamp == nil,
	})
}

// ledger is what a controller knows beside its caches: what the API server answered it.
type ledger struct {
	// sights are what the caches showed since the sync that goes on may have begun.
	sights []sight
	// written are the objects that it was answered with, by UID.
	written map[types.UID]object
	// leaving are the pods that it has deleted, gone those that it was told to be gone.
	leaving, gone map[types.UID]bool
	// missed are those that it wanted to change and was told to be gone.
	missed map[types.UID]bool
}

func newLedger() ledger {
	return ledger{
		written: map[types.UID]object{},
		leaving: map[types.UID]bool{},
		gone:    map[types.UID]bool{},
		missed:  map[types.UID]bool{},
	}
}

// learn takes note of an answer that the controller gets.
func (l *ledger) learn(c *call, a answer) {
	switch {
	case c.verb == verbDelete:
		l.learnOfRemoval(c, a)
	case c.verb == verbPatch && apierrors.IsNotFound(a.err):
		l.missed[c.body.Metadata.UID] = true
		l.gone[c.body.Metadata.UID] = true
	case c.isWrite() && a.object != nil:
		l.written[a.object.GetUID()] = a.object
	}
}

func (l *ledger) learnOfRemoval(c *call, a answer) {
	p := c.options.Preconditions
	switch {
	case a.err == nil && c.object != nil:
		l.leaving[c.object.GetUID()] = true
	case apierrors.IsNotFound(a.err) && p != nil && p.UID != nil:
		l.gone[*p.UID] = true
	}
}

// known are the pods that the controller knows of at a sight: those of its cache, without
// those that it was told to be gone, and with those that it has made since.
func (l *ledger) known(s sight) map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for name, o := range s.pods {
		if pod, ok := o.(*corev1.Pod); ok && !l.gone[pod.UID] {
			pods[name] = pod
		}
	}
	for uid, o := range l.written {
		pod, ok := o.(*corev1.Pod)
		if ok && versionOf(pod) > s.podsAt && !l.gone[uid] && pods[pod.Name] == nil {
			pods[pod.Name] = pod
		}
	}
	return pods
}
