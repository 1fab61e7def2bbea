// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// batched is a Parallel set of 4 whose template has changed, and whose policy pauses for a minute after 2 pods. Pods are available
// when they are ready for 10 seconds.
type batched struct {
	*sim.World
	updated string
}

// take lets pods be updated, and be ready for some time.
func (b batched) take(readyFor time.Duration, names ...string) {
	for _, name := range names {
		b.Change(name, at(b.updated))
		b.Change(name, readySince(b.Now.Add(-readyFor)))
	}
}

// verdict tells which pods are taken, and how long the pause lasts.
func (b batched) verdict() string {
	p := plan.Make(b.Snapshot())
	var got []string
	for _, a := range of[plan.DeletePod](p) {
		got = append(got, a.Pod.Name)
	}
	for _, w := range p.Waits {
		if w.Reason != plan.WaitBatch {
			continue
		}
		text := "wait"
		if !w.Until.IsZero() {
			text += " " + w.Until.Sub(b.Now).String()
		}
		got = append(got, text)
	}
	return strings.Join(got, ", ")
}

// Pods that are on their way, out or in, belong to the batch. The pause counts from the last that became available.
func TestBatches(t *testing.T) {
	const long = time.Hour
	tests := map[string]struct {
		change func(batched)
		want   string
	}{
		"none is taken":          {func(batched) {}, "web-3, web-2, wait"},
		"one is taken":           {func(b batched) { b.take(long, "web-3") }, "web-2, wait"},
		"one is going":           {func(b batched) { b.Kill("web-3") }, "web-2, wait"},
		"one is missing":         {func(b batched) { delete(b.Pods, "web-3") }, "web-2, wait"},
		"two are taken":          {func(b batched) { b.take(30*time.Second, "web-3"); b.take(20*time.Second, "web-2") }, "wait 50s"},
		"two, the other first":   {func(b batched) { b.take(20*time.Second, "web-3"); b.take(30*time.Second, "web-2") }, "wait 50s"},
		"two, for long":          {func(b batched) { b.take(70*time.Second, "web-3", "web-2") }, "web-1, web-0"},
		"two, not long enough":   {func(b batched) { b.take(70*time.Second-1, "web-3", "web-2") }, "wait 1ns"},
		"two, one not available": {func(b batched) { b.take(long, "web-3"); b.take(5*time.Second, "web-2") }, "wait"},
		"two, one going":         {func(b batched) { b.take(long, "web-3", "web-2"); b.Kill("web-2") }, "wait"},
		"two, one missing":       {func(b batched) { b.take(long, "web-3"); delete(b.Pods, "web-2") }, "wait"},
		"three are taken":        {func(b batched) { b.take(long, "web-3", "web-2", "web-1") }, "web-0"},
		"all are taken":          {func(b batched) { b.take(0, "web-3", "web-2", "web-1", "web-0") }, ""},
		"all that the partition lets go": {func(b batched) {
			b.take(0, "web-3", "web-2")
			b.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2)) })
		}, ""},
		"one, and one below the partition": {func(b batched) {
			b.take(long, "web-3", "web-0")
			b.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1)) })
		}, "web-2, wait"},
		"one, and one kept by the partition": {func(b batched) {
			b.take(long, "web-3")
			b.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1)) })
		}, "web-2, wait"},
		"without an end": {func(b batched) {
			b.take(long, "web-3", "web-2")
			obey(b.World, "a", batches(v1alpha1.PauseAfter{Ordinals: new(int32(2))}))
		}, "wait"},
		"resumed": {func(b batched) {
			b.take(time.Minute, "web-3", "web-2")
			obey(b.World, "a", annotate(v1alpha1.ResumeAtAnnotation, b.Now.UTC().Format(time.RFC3339)))
		}, "web-1, web-0"},
		"resumed before": {func(b batched) {
			b.take(time.Minute, "web-3", "web-2")
			obey(b.World, "a", annotate(v1alpha1.ResumeAtAnnotation, b.Now.Add(-time.Minute).UTC().Format(time.RFC3339)))
		}, "wait 10s"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := rested(t, 4, parallel, maxUnavailable(intstr.FromInt32(4)), func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 10 })
			w.Now = w.Now.Add(24 * time.Hour)
			obey(w, "a", batches(v1alpha1.PauseAfter{Ordinals: new(int32(2)), Seconds: new(int32(60))}))
			w.Edit(toImage("two"))
			b := batched{World: w, updated: plan.Make(w.Snapshot()).Revisions.Update}
			test.change(b)
			if got := b.verdict(); got != test.want {
				t.Errorf("the verdict is %q, want %q", got, test.want)
			}
		})
	}
}
