// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/sim"
)

// An update is complete when the set has the pods of its range and no others, and all have the update, are ready and stay.
func TestWhatCompletionNeeds(t *testing.T) {
	tests := map[string]struct {
		change func(*sim.World)
		want   bool
	}{
		"all are updated":  {func(*sim.World) {}, true},
		"one is outdated":  {func(w *sim.World) { w.Change("web-1", revise("old")) }, false},
		"one is not ready": {func(w *sim.World) { w.Change("web-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }) }, false},
		"one is going":     {func(w *sim.World) { w.Kill("web-1") }, false},
		"one is missing":   {func(w *sim.World) { delete(w.Pods, "web-1") }, false},
		"one is too many":  {func(w *sim.World) { w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(2)) }) }, false},
		"one is at no ordinal": {func(w *sim.World) {
			w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1} })
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t)
			w.Edit(func(s *appsv1.StatefulSet) {
				s.Spec.Template.Spec.Containers[0].Image = "two"
				s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
			})
			w.Sync()
			for name := range w.Pods {
				w.Change(name, revise(w.Set.Status.UpdateRevision))
			}
			test.change(w)
			if s, _ := settle(w); (s.CurrentRevision == s.UpdateRevision) != test.want {
				t.Errorf("the status is %+v", s)
			}
		})
	}
}

func revise(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[appsv1.StatefulSetRevisionLabel] = name }
}

// Where the strategy Recreate is switched off, nothing is said of how it goes on.
func TestConditionWithoutRecreate(t *testing.T) {
	w := settled(t)
	w.Options.Strict = true
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.RecreateStatefulSetStrategyType })
	w.Set.Status.Conditions = []appsv1.StatefulSetCondition{{Type: appsv1.StatefulSetProgressing, Status: corev1.ConditionTrue}}
	if s, _ := settle(w); len(s.Conditions) != 1 || s.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("conditions are %+v", s.Conditions)
	}
}
