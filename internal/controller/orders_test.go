// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// happening is something that somebody else does to a set.
type happening struct {
	name string
	do   func(*stage)
}

// story is a world and what happens in it.
type story struct {
	name  string
	begin func(*stage)
	// happens in any order.
	happens []happening
	// order tells of the order what the end may depend on; nil for nothing.
	order func(names []string) string
	// hurry means that the end depends on how soon the controller acts.
	hurry bool
}

func policy(whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: whenDeleted, WhenScaled: whenScaled,
		}
	}
}

func replicas(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Replicas = &n }
}

const (
	retain     = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	deleteThem = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

func image(name string) happening {
	return happening{"image " + name, func(s *stage) { s.images(name) }}
}

func scale(n int32) happening {
	return happening{fmt.Sprintf("scale %d", n), func(s *stage) { s.scales(n) }}
}

func kill(pod string) happening {
	return happening{"kill " + pod, func(s *stage) { s.kills(pod) }}
}

func sicken(pod string) happening {
	return happening{"sicken " + pod, func(s *stage) { s.sickens(pod) }}
}

func unlabel(pod string) happening {
	return happening{"unlabel " + pod, func(s *stage) { s.unlabels(pod) }}
}

// lose takes a pod and its claim.
func lose(pod string) happening {
	return happening{"lose " + pod, func(s *stage) {
		s.dropsClaim("data-" + pod)
		s.kills(pod)
	}}
}

func dropRevision(image string) happening {
	return happening{"drop revision " + image, func(s *stage) { s.dropsRevision(image) }}
}

// before tells which of two things happens first.
func before(a, b string) func([]string) string {
	return func(names []string) string {
		if slices.Index(names, a) < slices.Index(names, b) {
			return a + " before " + b
		}
		return b + " before " + a
	}
}

func stories() []story {
	return []story{
		{
			name: "creation",
			begin: func(s *stage) {
				s.creates(newSet())
				s.run(1500 * time.Millisecond)
			},
			happens: []happening{image("two"), scale(4), lose("web-1"), sicken("web-0"), kill("web-2")},
		},
		{
			name: "update",
			begin: func(s *stage) {
				s.creates(newSet(replicas(4), func(s *appsv1.StatefulSet) {
					s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(2))
				}))
				s.calm(s.patience())
				s.images("two")
				s.run(time.Second)
				s.kills("web-0")
			},
			happens: []happening{image("three"), kill("web-1"), scale(3), sicken("web-2"), dropRevision("one")},
		},
		{
			name: "scale down with claims",
			begin: func(s *stage) {
				s.creates(newSet(parallel, replicas(4), policy(retain, deleteThem)))
				s.calm(s.patience())
				s.scales(2)
				s.run(500 * time.Millisecond)
			},
			happens: []happening{image("two"), lose("web-1"), scale(3), sicken("web-0"), kill("web-3")},
		},
		{
			name: "orphans",
			begin: func(s *stage) {
				s.creates(newSet(parallel))
				s.calm(s.patience())
				s.orphan()
				s.calm(s.patience())
			},
			happens: []happening{
				{"create set", func(s *stage) { s.creates(newSet(parallel, replicas(4))) }},
				unlabel("web-1"), kill("web-2"), sicken("web-0"), dropRevision("one"),
			},
		},
		{
			name: "two edits",
			begin: func(s *stage) {
				s.creates(newSet(policy(deleteThem, retain)))
				s.calm(s.patience())
			},
			happens: []happening{image("two"), image("three"), scale(2), kill("web-1")},
			order:   before("image two", "image three"),
		},
		{
			name: "end",
			begin: func(s *stage) {
				s.creates(newSet(policy(deleteThem, retain)))
				s.calm(s.patience())
			},
			happens: []happening{
				{"delete set", func(s *stage) { s.dropsSet() }}, sicken("web-0"), kill("web-1"), scale(4), unlabel("web-2"),
			},
			// A pod that is not released before its set is gone goes with it.
			order: before("delete set", "unlabel web-2"),
			hurry: true,
		},
	}
}

// permutations gives every order of n things.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return all
}

func (s story) named(order []int) []string {
	names := make([]string, len(order))
	for i, at := range order {
		names[i] = s.happens[at].name
	}
	return names
}

// Whatever the order in which things happen to a set, and the time between them: each write keeps to the rules, and the end
// is the same.
func TestAllOrders(t *testing.T) {
	gaps := []time.Duration{0, 300 * time.Millisecond, 1200 * time.Millisecond, 2500 * time.Millisecond}
	for _, story := range stories() {
		t.Run(story.name, func(t *testing.T) {
			ends := map[string]string{}
			for i, order := range permutations(len(story.happens)) {
				gap := gaps[i%len(gaps)]
				names := story.named(order)
				t.Run(fmt.Sprintf("%s each %v", strings.Join(names, ", "), gap), func(t *testing.T) {
					kind := ""
					if story.order != nil {
						kind = story.order(names)
					}
					onStage(t, func(s *stage) { s.strict = true }, func(s *stage) {
						story.tell(s, order, func() time.Duration { return gap })
						got := s.end()
						if want, ok := ends[kind]; ok && want != got {
							t.Errorf("the end is\n%s\nwant\n%s\n", got, want)
						}
						ends[kind] = got
						if f := s.failures(); len(f) > 0 {
							t.Errorf("logged are %q", f)
						}
					})
				})
			}
		})
	}
}

// tell lets the story happen.
func (s story) tell(on *stage, order []int, gap func() time.Duration) {
	s.begin(on)
	for _, at := range order {
		s.happens[at].do(on)
		on.run(gap())
	}
	on.calm(on.patience())
}

// patience is how long nothing may happen until all is held to be over.
func (s *stage) patience() time.Duration {
	switch {
	case s.faulty:
		return retryMax + 5*time.Second
	case s.strict:
		return 5 * time.Second
	default:
		return 15 * time.Second
	}
}

// trouble is what the controller has to bear.
type trouble struct {
	late, faulty bool
	seed         uint64
}

func (x trouble) String() string {
	return fmt.Sprintf("late=%t,faulty=%t,seed=%d", x.late, x.faulty, x.seed)
}

// prepare brings the trouble.
func (x trouble) prepare(s *stage) {
	s.faulty = x.faulty
	if x.late {
		for i, resource := range []string{"pods", "statefulsets", "persistentvolumeclaims", "controllerrevisions"} {
			s.late(resource, rand.New(rand.NewPCG(x.seed, uint64(i))))
		}
	}
	if x.faulty {
		s.fail(rand.New(rand.NewPCG(x.seed, 99)))
	}
}

// late lets each event of a resource reach the caches after a while. Their order stays.
func (s *stage) late(resource string, chance *rand.Rand) {
	s.client.PrependWatchReactor(resource, func(a clienttesting.Action) (bool, watch.Interface, error) {
		inner, err := s.watch(a)
		if err != nil {
			return true, nil, err
		}
		w := &lateWatch{Interface: inner, events: make(chan watch.Event), stopped: make(chan struct{})}
		queue := make(chan dueEvent, 10_000)
		go w.receive(queue, func() time.Duration {
			return max(0, time.Duration(chance.IntN(6000)-2000)*time.Millisecond)
		})
		go w.deliver(queue)
		return true, w, nil
	})
}

// lateWatch hands on events when they are due.
type lateWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

type dueEvent struct {
	watch.Event
	at time.Time
}

func (w *lateWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *lateWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

func (w *lateWatch) receive(queue chan<- dueEvent, delay func() time.Duration) {
	defer close(queue)
	for e := range w.Interface.ResultChan() {
		queue <- dueEvent{Event: e, at: time.Now().Add(delay())}
	}
}

func (w *lateWatch) deliver(queue <-chan dueEvent) {
	defer close(w.events)
	for e := range queue {
		select {
		case <-time.After(time.Until(e.at)):
		case <-w.stopped:
			return
		}
		select {
		case w.events <- e.Event:
		case <-w.stopped:
			return
		}
	}
}

// fail refuses every now and then a write as a conflict, and loses the answer to others, for a while.
func (s *stage) fail(chance *rand.Rand) {
	const most = 25
	faults := 0
	happens := func() bool {
		if faults == most || chance.IntN(4) > 0 {
			return false
		}
		faults++
		return true
	}
	s.refuse = func(a clienttesting.Action) error {
		s.judge(a)
		if a.GetVerb() != "create" && happens() {
			return apierrors.NewConflict(a.GetResource().GroupResource(), "it", errors.New("changed"))
		}
		return nil
	}
	s.answer = func(a clienttesting.Action) error {
		switch {
		case !happens():
			s.learn(a)
			return nil
		case chance.IntN(2) == 0:
			return apierrors.NewTimeoutError("too late", 1)
		default:
			return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		}
	}
}

// With caches that lag, conflicts and answers that are lost after the write was made, the end is the same as without.
func TestTrouble(t *testing.T) {
	for _, story := range stories() {
		if story.hurry {
			continue
		}
		t.Run(story.name, func(t *testing.T) {
			orders := permutations(len(story.happens))
			for seed := range uint64(8) {
				chance := rand.New(rand.NewPCG(seed, 7))
				order := orders[chance.IntN(len(orders))]
				var want string
				for i, x := range []trouble{{false, false, seed}, {true, false, seed}, {false, true, seed}, {true, true, seed}} {
					t.Run(strings.Join(story.named(order), ", ")+" "+x.String(), func(t *testing.T) {
						onStage(t, x.prepare, func(s *stage) {
							story.tell(s, order, func() time.Duration { return time.Duration(chance.IntN(3000)) * time.Millisecond })
							got := s.end()
							if i == 0 {
								want = got
							}
							if got != want {
								t.Errorf("the end is\n%s\nwant\n%s\n", got, want)
							}
							s.judgeNews(x)
						})
					})
				}
			}
		})
	}
}

// judgeNews complains of what was told and logged without need.
func (s *stage) judgeNews(x trouble) {
	s.t.Helper()
	for _, e := range s.told() {
		if strings.Contains(e, "already exists") && !strings.Contains(e, "belongs to another owner") {
			s.t.Errorf("told is %q", e)
		}
		if strings.HasPrefix(e, "Warning Failed") && !x.faulty && !strings.Contains(e, "being deleted") && !strings.Contains(e, "another owner") &&
			!strings.Contains(e, "former pod") {
			s.t.Errorf("told is %q", e)
		}
	}
	if f := s.failures(); len(f) > 0 && !x.faulty {
		s.t.Errorf("logged are %q", f)
	}
}
