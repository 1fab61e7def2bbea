// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// A leader goes when all others that the update may take have it, and all are there and serve. That more pods might be
// unavailable does not matter.
func TestWhatALeaderWaitsFor(t *testing.T) {
	tests := map[string]struct {
		// change is made to a set of 4 whose pods web-0, web-1 and web-2 are updated, and whose web-3 leads and is not.
		change func(w *sim.World, old string)
		want   []string
	}{
		"nothing":          {func(*sim.World, string) {}, []string{"web-3"}},
		"one is outdated":  {func(w *sim.World, old string) { w.Change("web-1", at(old)) }, []string{"web-1"}},
		"one is not ready": {func(w *sim.World, _ string) { w.Change("web-1", unready) }, nil},
		"one is going":     {func(w *sim.World, _ string) { w.Kill("web-1") }, nil},
		"one is missing":   {func(w *sim.World, _ string) { delete(w.Pods, "web-1") }, nil},
		"one is outdated and going": {
			func(w *sim.World, old string) { w.Change("web-1", at(old)); w.Kill("web-1") }, nil,
		},
		"one is kept by the partition": {func(w *sim.World, old string) {
			w.Change("web-1", at(old))
			w.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2)) })
		}, []string{"web-3"}},
		"one leads too":                 {func(w *sim.World, _ string) { w.Change("web-1", leads) }, []string{"web-3"}},
		"one leads too and is outdated": {func(w *sim.World, old string) { w.Change("web-1", leads); w.Change("web-1", at(old)) }, []string{"web-3", "web-1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := rested(t, 4, parallel, maxUnavailable(intstr.FromInt32(3)))
			old := w.Set.Status.CurrentRevision
			obey(w, "a", leaderLast)
			w.Edit(toImage("two"))
			for _, name := range []string{"web-0", "web-1", "web-2"} {
				w.Change(name, at(plan.Make(w.Snapshot()).Revisions.Update))
			}
			w.Change("web-3", leads)
			test.change(w, old)
			p := plan.Make(w.Snapshot())
			var got []string
			for _, a := range of[plan.DeletePod](p) {
				got = append(got, a.Pod.Name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("updated are %v, want %v; the plan is\n%s", got, test.want, p.String(w.Now))
			}
		})
	}
}

// at lets a pod be of a revision.
func at(revision string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[appsv1.StatefulSetRevisionLabel] = revision }
}
