// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// What has failed stays failed, also while no pod of the current revision serves for a moment.
func TestFailureIsNotForgotten(t *testing.T) {
	w := sim.New(sim.NewSet("web", 1, withoutClaims))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Fate = func(p *corev1.Pod) sim.Fate {
		if p.Spec.Containers[0].Image == "bad" {
			return sim.Stuck
		}
		return sim.Good
	}
	obey(w, "a", deadline(60, v1alpha1.RollBack))
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1)) })
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	// With one pod, the update takes the only pod that serves; a second one makes that it can be brought back.
	w.Edit(func(s *appsv1.StatefulSet) {
		s.Spec.Replicas = new(int32(2))
		s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(0))
		s.Spec.Template.Spec.Containers[0].Image = "bad"
	})
	p := w.Policies["a"].DeepCopy()
	p.Status.CompleteRevision = ""
	w.Policies["a"] = p
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	failed := w.Policies["a"].Status.FailedRevision
	if failed == "" {
		t.Fatal("the rollout has not failed")
	}
	for name := range w.Pods {
		w.Change(name, unready)
	}
	w.Sync()
	for name := range w.Pods {
		w.Change(name, ready)
	}
	if got := w.Policies["a"].Status.FailedRevision; got != failed {
		t.Errorf("failed is %q, not %q", got, failed)
	}
	if p := plan.Make(w.Snapshot()); len(of[plan.DeletePod](p)) > 0 {
		t.Errorf("the plan is\n%s", p.String(w.Now))
	}
}

// A pod that follows comes back with the update, even where no rollingUpdate block says so: it would be deleted again, over and over.
func TestLeaderLastWithoutABlock(t *testing.T) {
	w := sim.New(sim.NewSet("web", 3, withoutClaims, strategy(appsv1.RollingUpdateStatefulSetStrategyType)))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Change("web-2", leads)
	obey(w, "a", leaderLast)
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	if err := w.Settle(); err != nil {
		p := plan.Make(w.Snapshot())
		t.Fatalf("%v; the plan is\n%s", err, p.String(w.Now))
	}
	for name, p := range w.Pods {
		if podstate.Revision(p) != w.Set.Status.UpdateRevision {
			t.Errorf("%s is not updated", name)
		}
	}
}
