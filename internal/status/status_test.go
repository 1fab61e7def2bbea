// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// settled is a world with a set of 3 that has all its pods.
func settled(t *testing.T, changes ...func(*appsv1.StatefulSet)) *sim.World {
	t.Helper()
	w := sim.New(sim.NewSet("web", 3, changes...))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	return w
}

func settle(w *sim.World) (appsv1.StatefulSetStatus, bool) {
	s := w.Snapshot()
	return status.Settle(s, plan.Make(s), nil)
}

func counters(s appsv1.StatefulSetStatus) string {
	return fmt.Sprintf("%d pods %d ready %d available %d current %d updated",
		s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas)
}

func TestNothingChanges(t *testing.T) {
	w := settled(t)
	s, changed := settle(w)
	if changed {
		t.Errorf("the status of a settled set changes from\n%+v to\n%+v", w.Set.Status, s)
	}
	if got, want := counters(s), "3 pods 3 ready 3 available 3 current 3 updated"; got != want {
		t.Errorf("the status is %s, want %s", got, want)
	}
	if s.ObservedGeneration != w.Set.Generation || s.CollisionCount == nil || *s.CollisionCount != 0 {
		t.Errorf("the status is %+v", s)
	}
}

// TestNoCountIsNoChange is what kube-controller-manager does too: a collision count that is not there yet is written with the
// next change.
func TestNoCountIsNoChange(t *testing.T) {
	w := settled(t)
	w.Set.Status.CollisionCount = nil
	if s, changed := settle(w); changed {
		t.Errorf("the status changes from\n%+v to\n%+v", w.Set.Status, s)
	}
	w.Set.Status.ReadyReplicas = 0
	if s, changed := settle(w); !changed || s.CollisionCount == nil {
		t.Errorf("with another change, the status is %+v, changed %t", s, changed)
	}
}

func TestCounts(t *testing.T) {
	now := metav1.Now()
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"unready": {
			func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse },
			"3 pods 2 ready 2 available 3 current 3 updated",
		},
		"going": {
			func(p *corev1.Pod) { p.DeletionTimestamp = &now },
			"3 pods 3 ready 3 available 2 current 2 updated",
		},
		"failed": {
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			"3 pods 2 ready 2 available 3 current 3 updated",
		},
		"of another revision": {
			func(p *corev1.Pod) { p.Labels[appsv1.StatefulSetRevisionLabel] = "other" },
			"3 pods 3 ready 3 available 2 current 2 updated",
		},
		"of somebody else": {
			func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" },
			"2 pods 2 ready 2 available 2 current 2 updated",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t)
			w.Change("web-1", test.change)
			s, changed := settle(w)
			if got := counters(s); got != test.want || !changed {
				t.Errorf("the status is %s (changed: %t), want %s", got, changed, test.want)
			}
		})
	}
}

// What a sync did is counted before the caches show it.
func TestCountsWhatWasDone(t *testing.T) {
	w := settled(t)
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	s := w.Snapshot()
	p := plan.Make(s)
	var deletion plan.Action
	for _, a := range p.Actions() {
		if _, ok := a.(plan.DeletePod); ok {
			deletion = a
		}
	}
	tests := map[plan.Result]string{
		plan.ResultDone:     "3 pods 3 ready 3 available 2 current 0 updated",
		plan.ResultGone:     "2 pods 2 ready 2 available 2 current 0 updated",
		plan.ResultFailed:   "3 pods 3 ready 3 available 3 current 0 updated",
		plan.ResultConflict: "3 pods 3 ready 3 available 3 current 0 updated",
	}
	for result, want := range tests {
		next, _ := status.Settle(s, p, []plan.Outcome{{Action: deletion, Result: result}})
		if got := counters(next); got != want {
			t.Errorf("after a deletion that ended with %s the status is %s, want %s", result, got, want)
		}
		if next.CurrentRevision == next.UpdateRevision {
			t.Errorf("after a deletion that ended with %s the update is complete", result)
		}
	}
}

func TestAdoption(t *testing.T) {
	w := settled(t)
	w.Orphan()
	s := w.Snapshot()
	p := plan.Make(s)
	outcomes := func(result plan.Result) []plan.Outcome {
		var all []plan.Outcome
		for _, a := range p.Actions() {
			all = append(all, plan.Outcome{Action: a, Result: result})
		}
		return all
	}
	done, _ := status.Settle(s, p, outcomes(plan.ResultDone))
	if got, want := counters(done), "3 pods 3 ready 3 available 3 current 3 updated"; got != want {
		t.Errorf("after adoption the status is %s, want %s", got, want)
	}
	failed, _ := status.Settle(s, p, outcomes(plan.ResultFailed))
	if got, want := counters(failed), "0 pods 0 ready 0 available 0 current 0 updated"; got != want {
		t.Errorf("after failed adoption the status is %s, want %s", got, want)
	}
}

// A revision that could not be written is neither told nor counted as observed.
func TestRevisionIsMissing(t *testing.T) {
	w := sim.New(sim.NewSet("web", 1))
	s := w.Snapshot()
	p := plan.Make(s)
	create := p.Actions()[0]
	failed, changed := status.Settle(s, p, []plan.Outcome{{Action: create, Result: plan.ResultFailed, Err: errors.New("no")}})
	if failed.UpdateRevision != "" || failed.ObservedGeneration != 0 || *failed.CollisionCount != 0 {
		t.Errorf("without a revision the status is %+v (changed: %t)", failed, changed)
	}
	collided, changed := status.Settle(s, p, []plan.Outcome{{Action: create, Result: plan.ResultCollision}})
	if !changed || *collided.CollisionCount != 1 || collided.UpdateRevision != "" {
		t.Errorf("after a collision the status is %+v", collided)
	}
	w.Set.Status.CollisionCount = new(int32(4))
	if again, _ := status.Settle(w.Snapshot(), p, []plan.Outcome{{Action: create, Result: plan.ResultCollision}}); *again.CollisionCount != 5 {
		t.Errorf("after a further collision the count is %d", *again.CollisionCount)
	}
}

func TestSetThatCannotBeRead(t *testing.T) {
	w := settled(t)
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Selector = nil })
	if s, changed := settle(w); changed || s.Replicas != 3 {
		t.Errorf("the status becomes %+v", s)
	}
}

func TestObservedGenerationNeverFalls(t *testing.T) {
	w := settled(t)
	w.Set.Status.ObservedGeneration = 99
	if s, _ := settle(w); s.ObservedGeneration != 99 {
		t.Errorf("the observed generation is %d", s.ObservedGeneration)
	}
}

func TestCompletion(t *testing.T) {
	w := settled(t)
	first := w.Set.Status.CurrentRevision
	w.Edit(func(s *appsv1.StatefulSet) {
		s.Spec.Template.Spec.Containers[0].Image = "two"
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	})
	for i, name := range []string{"web-0", "web-1", "web-2"} {
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
		s := w.Set.Status
		if s.CurrentRevision != first || s.UpdateRevision == first || s.UpdatedReplicas != int32(i) || s.CurrentReplicas != int32(3-i) {
			t.Fatalf("with %d pods updated the status is %+v", i, s)
		}
		w.Kill(name)
	}
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	if s := w.Set.Status; s.CurrentRevision != s.UpdateRevision || s.CurrentReplicas != 3 || s.UpdatedReplicas != 3 {
		t.Errorf("with all pods updated the status is %+v", s)
	}
}

// A pod beyond the range does not make up for one within it.
func TestIncompleteWithPodsBeyondTheRange(t *testing.T) {
	w := settled(t)
	first := w.Set.Status.CurrentRevision
	w.Edit(func(s *appsv1.StatefulSet) {
		s.Spec.Template.Spec.Containers[0].Image = "two"
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	})
	for _, name := range []string{"web-1", "web-2"} {
		w.Kill(name)
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(2)) })
	w.Change("web-0", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
	s, _ := settle(w)
	if s.UpdatedReplicas != 2 || s.ReadyReplicas != 2 || s.CurrentRevision != first {
		t.Errorf("the status is %+v", s)
	}
}

// Conditions of others stay as they are.
func TestForeignConditionsStay(t *testing.T) {
	w := settled(t)
	foreign := []appsv1.StatefulSetCondition{{Type: "Theirs", Status: corev1.ConditionTrue, Reason: "Because"}}
	w.Set.Status.Conditions = slices.Clone(foreign)
	s, _ := settle(w)
	if !equality.Semantic.DeepEqual(s.Conditions[0], foreign[0]) {
		t.Errorf("conditions are %+v", s.Conditions)
	}
	w.Options.Strict = true
	if s, changed := settle(w); changed || !equality.Semantic.DeepEqual(s.Conditions, foreign) {
		t.Errorf("with --strict-upstream, conditions are %+v", s.Conditions)
	}
}

// With --strict-upstream, Progressing is as in Kubernetes 1.37.
func TestProgressingOfRecreate(t *testing.T) {
	w := settled(t, func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RecreateStatefulSetStrategyType}
	})
	if w.Set.Status.Replicas != 0 {
		t.Fatal("pods were made although the strategy is switched off")
	}
	w.Options.Recreate, w.Options.Strict = true, true
	w.Set.Status.Conditions = nil
	var seen []string
	begin := w.Now
	w.Observe = func(plan.Plan, []plan.Outcome) {
		for _, c := range w.Set.Status.Conditions {
			line := fmt.Sprintf("%s %s %s: %s since %s", c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime.Sub(begin))
			if len(seen) == 0 || seen[len(seen)-1] != line {
				seen = append(seen, line)
			}
		}
	}
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	if len(seen) > 0 {
		t.Errorf("a set that was never updated has conditions %q", seen)
	}
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	begin = w.Now.Truncate(time.Second)
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Progressing True RecreateInProgress: Deleting old revision pods since 0s",
		"Progressing True RecreateInProgress: Waiting for new-revision pods to be created since 0s",
		"Progressing False RecreateCompleted: All pods recreated successfully since 7s",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("conditions are\n%q, want\n%q", seen, want)
	}
}
