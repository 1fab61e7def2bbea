// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

func TestBackoff(t *testing.T) {
	b := newBackoff(firstDelay)
	now := time.Unix(1000, 0)
	var delays []time.Duration
	for range 8 {
		b.note("web-0", true, now)
		delay := b.until()["web-0"].Sub(now)
		delays = append(delays, delay)
		now = now.Add(delay)
	}
	s := time.Second
	if want := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, maxDelay, maxDelay, maxDelay}; !slices.Equal(delays, want) {
		t.Errorf("delays are %v, want %v", delays, want)
	}
	now = now.Add(calm + s)
	b.note("web-0", true, now)
	if got := b.until()["web-0"].Sub(now); got != firstDelay {
		t.Errorf("after a calm time the delay is %v", got)
	}
	b.note("web-0", false, now)
	if len(b.until()) != 0 {
		t.Errorf("after a success there is %v", b.until())
	}
}

func TestLearn(t *testing.T) {
	now := time.Unix(1000, 0)
	create := plan.CreatePod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}}
	claim := plan.CreateClaim{Claim: &corev1.PersistentVolumeClaim{}, Pod: "web-0"}
	evict := plan.DeletePod{Pod: plan.Ref{Name: "web-0"}, Reason: plan.ReasonStuck, Evict: true}
	remove := func(r plan.Reason) plan.DeletePod { return plan.DeletePod{Pod: plan.Ref{Name: "web-0"}, Reason: r} }
	tests := map[string]struct {
		outcome                      plan.Outcome
		creates, replaces, evictions int
		unstuck                      bool
	}{
		"refused pod":       {plan.Outcome{Action: create, Result: plan.ResultFailed}, 2, 0, 0, false},
		"refused claim":     {plan.Outcome{Action: claim, Result: plan.ResultFailed}, 2, 0, 0, false},
		"created claim":     {plan.Outcome{Action: claim, Result: plan.ResultDone}, 0, 0, 0, false},
		"taken name":        {plan.Outcome{Action: create, Result: plan.ResultConflict}, 0, 0, 0, false},
		"failed pod":        {plan.Outcome{Action: remove(plan.ReasonFailed), Result: plan.ResultDone}, 0, 1, 0, false},
		"ended pod":         {plan.Outcome{Action: remove(plan.ReasonSucceeded), Result: plan.ResultGone}, 0, 1, 0, false},
		"refused deletion":  {plan.Outcome{Action: remove(plan.ReasonFailed), Result: plan.ResultFailed}, 0, 0, 0, false},
		"updated pod":       {plan.Outcome{Action: remove(plan.ReasonOutdated), Result: plan.ResultDone}, 0, 0, 0, false},
		"anything else":     {plan.Outcome{Action: plan.AdoptPod{}, Result: plan.ResultFailed}, 0, 0, 0, false},
		"stuck pod":         {plan.Outcome{Action: remove(plan.ReasonStuck), Result: plan.ResultDone}, 0, 0, 0, true},
		"stuck pod, gone":   {plan.Outcome{Action: remove(plan.ReasonStuck), Result: plan.ResultGone}, 0, 0, 0, true},
		"stuck pod, stays":  {plan.Outcome{Action: remove(plan.ReasonStuck), Result: plan.ResultFailed}, 0, 0, 0, false},
		"held up eviction":  {plan.Outcome{Action: evict, Result: plan.ResultBlocked}, 0, 0, 1, false},
		"refused eviction":  {plan.Outcome{Action: evict, Result: plan.ResultFailed}, 0, 0, 0, false},
		"evicted pod":       {plan.Outcome{Action: evict, Result: plan.ResultDone}, 0, 0, 0, true},
		"pod that was made": {plan.Outcome{Action: create, Result: plan.ResultDone}, 0, 0, 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			learned := func(m *memory) plan.Snapshot {
				var s plan.Snapshot
				m.learn([]plan.Outcome{test.outcome}, now)
				m.tell(&s)
				return s
			}
			s := learned(newMemory(false))
			if len(s.CreateAfter) != test.creates || len(s.ReplaceAfter) != test.replaces || len(s.EvictAfter) != test.evictions ||
				s.Unstuck["web-0"] != test.unstuck {
				t.Errorf("learned is %+v", s)
			}
			if s := learned(newMemory(true)); len(s.CreateAfter)+len(s.ReplaceAfter)+len(s.EvictAfter)+len(s.Unstuck) != 0 {
				t.Errorf("as upstream, learned is %+v", s)
			}
		})
	}
}

// What is known of a pod holds until it is made again; what is known of a set's template, until the set changes.
func TestForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	stuck := plan.DeletePod{Pod: plan.Ref{Name: "web-0"}, Reason: plan.ReasonStuck, Evict: true}
	create := plan.CreatePod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}}
	m := newMemory(false)
	told := func() (unstuck bool, evictAfter time.Duration) {
		var s plan.Snapshot
		m.tell(&s)
		if until, ok := s.EvictAfter["web-0"]; ok {
			evictAfter = until.Sub(now)
		}
		return s.Unstuck["web-0"], evictAfter
	}
	m.learn([]plan.Outcome{{Action: stuck, Result: plan.ResultDone}}, now)
	for _, want := range []time.Duration{2 * time.Second, 4 * time.Second} {
		m.learn([]plan.Outcome{{Action: stuck, Result: plan.ResultBlocked}}, now)
		if unstuck, evictAfter := told(); !unstuck || evictAfter != want {
			t.Errorf("told is %t, and to evict after %v, want %v", unstuck, evictAfter, want)
		}
	}
	m.learn([]plan.Outcome{{Action: create, Result: plan.ResultFailed}}, now)
	if unstuck, _ := told(); !unstuck {
		t.Error("a pod that could not be made is forgotten")
	}
	m.renew(1)
	if unstuck, evictAfter := told(); unstuck || evictAfter == 0 {
		t.Errorf("of another generation is told %t, and to evict after %v", unstuck, evictAfter)
	}
	m.learn([]plan.Outcome{{Action: stuck, Result: plan.ResultDone}}, now)
	m.learn([]plan.Outcome{{Action: stuck, Result: plan.ResultBlocked}, {Action: create, Result: plan.ResultDone}}, now)
	if unstuck, evictAfter := told(); unstuck || evictAfter != 0 {
		t.Errorf("of a pod that is made is told %t, and to evict after %v", unstuck, evictAfter)
	}
}

// When nothing can be created, all pods wait, but less long than the one that was refused.
func TestLearnOfAll(t *testing.T) {
	now := time.Unix(1000, 0)
	create := func(name string, r plan.Result) plan.Outcome {
		return plan.Outcome{Action: plan.CreatePod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}}, Result: r}
	}
	m := newMemory(false)
	m.learn([]plan.Outcome{create("web-0", plan.ResultFailed)}, now)
	if until := m.creates.until(); until[plan.AnyPod].Sub(now) != firstDelay/2 || until["web-0"].Sub(now) != firstDelay {
		t.Errorf("delays are until %v", until)
	}
	m.learn([]plan.Outcome{create("web-1", plan.ResultDone), create("web-2", plan.ResultFailed)}, now)
	if until := m.creates.until(); len(until) != 2 || !until[plan.AnyPod].IsZero() {
		t.Errorf("after a success, delays are until %v", until)
	}
}

func TestNews(t *testing.T) {
	m := newMemory(false)
	going := plan.Wait{Reason: plan.WaitClaimTerminating, On: plan.Ref{Name: "c", UID: "1", ResourceVersion: "1"}, For: "web-0"}
	changed := going
	changed.On.ResourceVersion = "2"
	other := going
	other.On.UID = "2"
	for i, step := range []struct {
		waits []plan.Wait
		want  int
	}{
		{[]plan.Wait{going, going}, 1},
		{[]plan.Wait{changed}, 0},
		{[]plan.Wait{changed, other}, 1},
		{nil, 0},
		{[]plan.Wait{going}, 1},
	} {
		if got := m.news(step.waits); len(got) != step.want {
			t.Errorf("in step %d there are %d news, want %d", i, len(got), step.want)
		}
	}
}

// An eviction that is held up again and again is told once, until it succeeds.
func TestNewsOfEvictions(t *testing.T) {
	m := newMemory(false)
	evict := plan.DeletePod{Pod: plan.Ref{Name: "web-0"}, Evict: true}
	wait := plan.Wait{Reason: plan.WaitDisruption, On: plan.Ref{Kind: plan.KindPod, Name: "web-0"}}
	for i, step := range []struct {
		result plan.Result
		want   int
	}{
		{plan.ResultBlocked, 1},
		{plan.ResultBlocked, 0},
		{plan.ResultDone, 0},
		{plan.ResultBlocked, 1},
	} {
		m.learn([]plan.Outcome{{Action: evict, Result: step.result}}, time.Unix(1000, 0))
		if got := m.news(nil); len(got) != 0 {
			t.Errorf("in step %d there are %d news of nothing", i, len(got))
		}
		if step.result != plan.ResultBlocked {
			continue
		}
		if got := m.news([]plan.Wait{wait}); len(got) != step.want {
			t.Errorf("in step %d there are %d news, want %d", i, len(got), step.want)
		}
	}
}

func TestMemoriesAreForgotten(t *testing.T) {
	var m memories
	key := observe.Key{Namespace: "a", Name: "b"}
	first := m.of(key)
	if m.of(key) != first {
		t.Error("a set has two memories")
	}
	m.forget(key)
	if m.of(key) == first {
		t.Error("a set that is gone is remembered")
	}
}

// A large set rests only where pods that become ready let nothing go on.
func TestRestAfter(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		replicas int32
		change   func(*sim.World)
		want     time.Duration
	}{
		"small":             {replicas: large - 1},
		"large":             {replicas: large, want: large * restPerPod},
		"very large":        {replicas: 3000, want: maxRest},
		"in order":          {replicas: large, change: edited(func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement })},
		"being updated":     {replicas: large, change: edited(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })},
		"being scaled down": {replicas: large, change: edited(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(large - 1)) })},
	} {
		t.Run(name, func(t *testing.T) {
			w := sim.New(sim.NewSet("web", tt.replicas, func(s *appsv1.StatefulSet) {
				s.Spec.PodManagementPolicy, s.Spec.VolumeClaimTemplates = appsv1.ParallelPodManagement, nil
			}))
			if err := w.Settle(); err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(w)
			}
			s := w.Snapshot()
			s.Now = now
			want := time.Time{}
			if tt.want > 0 {
				want = now.Add(tt.want)
			}
			if got := restAfter(s, plan.Make(s)); !got.Equal(want) {
				t.Errorf("it rests until %s, want %s", got, want)
			}
		})
	}
}

func edited(edit func(*appsv1.StatefulSet)) func(*sim.World) {
	return func(w *sim.World) { w.Edit(edit) }
}

// While its pods become ready one after the other, the status of a large set is not written for each.
func TestLargeSetsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.readyAfter = func(pod *corev1.Pod) time.Duration {
			n, _ := ordinal.Of("web", pod.Name)
			return time.Duration(n+1) * 10 * time.Millisecond
		}
		written := 0
		c.answer = func(a clienttesting.Action) error {
			if a.GetSubresource() == "status" {
				written++
			}
			return nil
		}
		c.recorder = spaced{c.events, make(chan struct{}, 1)}
		defer c.run(Options{})()
		c.create(setsResource, newSet(func(s *appsv1.StatefulSet) {
			s.Spec.Replicas, s.Spec.PodManagementPolicy = new(int32(large)), appsv1.ParallelPodManagement
		}))
		pass(time.Minute)
		if s := c.set().Status; s.ReadyReplicas != large {
			t.Errorf("%d of %d pods are ready in the status", s.ReadyReplicas, large)
		}
		if written > 20 {
			t.Errorf("the status was written %d times", written)
		}
	})
}
