// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// judged is a set of 3 whose policy says what its status was before. Its template has changed, web-2 is updated, and the policy
// told 90 seconds ago that one pod is available.
type judged struct {
	*sim.World
	// old and updated are the revisions.
	old, updated string
	policy       *v1alpha1.StatefulSetPolicy
}

func newJudged(t *testing.T) judged {
	t.Helper()
	w := rested(t, 3)
	j := judged{World: w, old: w.Set.Status.CurrentRevision}
	obey(w, "a", deadline(60, v1alpha1.RollBack))
	w.Edit(toImage("two"))
	j.updated = plan.Make(w.Snapshot()).Revisions.Update
	w.Change("web-2", at(j.updated))
	w.Now = w.Now.Add(time.Hour)
	j.policy = w.Policies["a"]
	j.policy.Status.Rollout = &v1alpha1.RolloutStatus{
		Revision: j.updated, Phase: v1alpha1.RolloutProgressing, Replicas: 3, AvailableReplicas: 1,
		LastProgressTime: metav1.NewTime(w.Now.Add(-90 * time.Second)),
	}
	return j
}

// failed lets a revision have failed a minute ago.
func (j judged) failed(revision string) {
	j.policy.Status.FailedRevision, j.policy.Status.FailedTime = revision, &metav1.Time{Time: j.Now.Add(-time.Minute)}
}

// broken lets pods not be ready.
func (j judged) broken(names ...string) {
	for _, name := range names {
		j.Change(name, unready)
	}
}

// verdict is the phase of the rollout, what it waits for, and since when there is no progress.
func (j judged) verdict() string {
	p := plan.Make(j.Snapshot())
	text := string(p.Rollout.Phase)
	for _, w := range p.Waits {
		if slices.Contains([]plan.Reason{
			plan.WaitRolledBack, plan.WaitPolicyConflict, plan.WaitPaused, plan.WaitBatch, plan.WaitDeadline,
		}, w.Reason) {
			text += " " + string(w.Reason)
		}
	}
	return fmt.Sprintf("%s, %s", text, j.Now.Sub(p.Rollout.Since))
}

// Each line of the verdict is told apart from those that come after it, which would say otherwise.
func TestVerdicts(t *testing.T) {
	batch := &v1alpha1.PauseAfter{Ordinals: new(int32(1))}
	tests := map[string]struct {
		change func(judged)
		want   string
	}{
		"overdue, held":             {func(j judged) { j.policy.Spec.Rollout.OnDeadline = v1alpha1.Hold }, "Held Deadline, 1m30s"},
		"overdue":                   {func(judged) {}, "RollingBack RolledBack, 1m30s"},
		"overdue, without deadline": {func(j judged) { j.policy.Spec.Rollout.ProgressDeadlineSeconds = nil }, "Progressing, 1m30s"},
		"overdue, and paused":       {func(j judged) { j.policy.Spec.Rollout.Paused = true }, "Paused Paused, 1m30s"},
		"overdue, between batches":  {func(j judged) { j.policy.Spec.Rollout.PauseAfter = batch }, "Paused Batch, 1m30s"},
		"overdue, the batch amiss":  {func(j judged) { j.policy.Spec.Rollout.PauseAfter = batch; j.broken("web-2") }, "RollingBack RolledBack, 1m30s"},
		"overdue, complete":         {func(j judged) { j.Change("web-0", at(j.updated)); j.Change("web-1", at(j.updated)) }, "Complete, 0s"},
		"overdue, none serves":      {func(j judged) { j.broken("web-0", "web-1", "web-2") }, "Held Deadline, 1m30s"},
		"overdue, only new serve":   {func(j judged) { j.broken("web-0", "web-1") }, "Held Deadline, 1m30s"},
		"overdue, one was complete": {func(j judged) { j.broken("web-0", "web-1"); j.policy.Status.CompleteRevision = j.old }, "RollingBack RolledBack, 1m30s"},
		"overdue, another one was":  {func(j judged) { j.broken("web-0", "web-1"); j.policy.Status.CompleteRevision = "web-x" }, "Held Deadline, 1m30s"},
		"overdue, the same revision": {
			func(j judged) {
				j.Edit(toImage("one"))
				j.policy.Status.Rollout.Revision, j.policy.Status.Rollout.AvailableReplicas = j.old, 2
			}, "Held Deadline, 1m30s",
		},

		"failed":                 {func(j judged) { j.failed(j.updated) }, "RollingBack RolledBack, 1m30s"},
		"failed, and paused":     {func(j judged) { j.failed(j.updated); j.policy.Spec.Rollout.Paused = true }, "RollingBack RolledBack Paused, 1m30s"},
		"failed, and unreadable": {func(j judged) { j.failed(j.updated); obey(j.World, "a", annotate(v1alpha1.ResumeAtAnnotation, "now")) }, "RollingBack RolledBack PolicyConflict, 1m30s"},
		"failed, and back":       {func(j judged) { j.failed(j.updated); j.Change("web-2", at(j.old)) }, "RolledBack RolledBack, 1m30s"},
		"failed, and back but for one that does not serve": {
			func(j judged) { j.failed(j.updated); j.Change("web-2", at(j.old)); j.broken("web-0") }, "RollingBack RolledBack, 1m30s",
		},
		"failed, and back but for one that is missing": {
			func(j judged) { j.failed(j.updated); delete(j.Pods, "web-2") }, "RollingBack RolledBack, 1m30s",
		},
		"another failed": {func(j judged) { j.failed("web-x"); j.policy.Spec.Rollout.OnDeadline = v1alpha1.Hold }, "Held Deadline, 1m30s"},
		"what is current failed once": {
			func(j judged) { j.Edit(toImage("one")); j.Change("web-2", at(j.old)); j.failed(j.old) }, "Complete, 0s",
		},

		"more are available": {func(j judged) { j.policy.Status.Rollout.AvailableReplicas = 0 }, "Progressing, 0s"},
		"less are available": {func(j judged) { j.policy.Status.Rollout.AvailableReplicas = 2 }, "RollingBack RolledBack, 1m30s"},
		"paused before":      {func(j judged) { j.policy.Status.Rollout.Phase = v1alpha1.RolloutPaused }, "Progressing, 0s"},
		"complete before":    {func(j judged) { j.policy.Status.Rollout.Phase = v1alpha1.RolloutComplete }, "Progressing, 0s"},
		"others than before": {func(j judged) { j.policy.Status.Rollout.Replicas = 2 }, "Progressing, 0s"},
		"nothing before":     {func(j judged) { j.policy.Status.Rollout = nil }, "Progressing, 0s"},
		"another before":     {func(j judged) { j.policy.Status.Rollout.Revision = j.old }, "Progressing, 0s"},
		"tried again":        {func(j judged) { obey(j.World, "a", annotate(v1alpha1.RetryAtAnnotation, ago(j, 30*time.Second))) }, "Progressing, 30s"},
		"tried again before": {func(j judged) { obey(j.World, "a", annotate(v1alpha1.RetryAtAnnotation, ago(j, time.Hour))) }, "RollingBack RolledBack, 1m30s"},
		"on delete": {func(j judged) {
			j.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType })
		}, "Progressing, 1m30s"},
		"on delete, with batches": {func(j judged) {
			j.policy.Spec.Rollout.PauseAfter = batch
			j.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType })
		}, "Progressing, 1m30s"},
		"recreate, with batches": {func(j judged) {
			j.policy.Spec.Rollout.PauseAfter, j.policy.Spec.Rollout.ProgressDeadlineSeconds = batch, nil
			j.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.RecreateStatefulSetStrategyType })
		}, "Progressing, 1m30s"},
		"at the deadline": {func(j judged) {
			j.policy.Status.Rollout.LastProgressTime = metav1.NewTime(j.Now.Add(-time.Minute))
		}, "RollingBack RolledBack, 1m0s"},
		"just before the deadline": {func(j judged) {
			j.policy.Status.Rollout.LastProgressTime = metav1.NewTime(j.Now.Add(-time.Minute + time.Nanosecond))
		}, "Progressing, 59.999999999s"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			j := newJudged(t)
			test.change(j)
			if got := j.verdict(); got != test.want {
				t.Errorf("the verdict is %q, want %q", got, test.want)
			}
		})
	}
}

func ago(j judged, d time.Duration) string { return j.Now.Add(-d).UTC().Format(time.RFC3339) }

// The pods that the rollout may take are counted, and no others: not those below the partition, and not those that do not run.
func TestRolloutCounts(t *testing.T) {
	partition := func(n int32) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
	}
	tests := map[string]struct {
		change func(w *sim.World, updated func() string)
		want   string
	}{
		"settled":                   {func(*sim.World, func() string) {}, "3 of 3"},
		"with a partition":          {func(w *sim.World, _ func() string) { w.Edit(partition(2)) }, "1 of 1"},
		"with a partition, changed": {func(w *sim.World, _ func() string) { w.Edit(partition(2)); w.Edit(toImage("two")) }, "0 of 1, outdated"},
		"with a partition, done": {func(w *sim.World, updated func() string) {
			w.Edit(partition(2))
			w.Edit(toImage("two"))
			w.Change("web-2", at(updated()))
		}, "1 of 1"},
		"with a partition, done beyond it": {func(w *sim.World, updated func() string) {
			w.Edit(partition(2))
			w.Edit(toImage("two"))
			w.Change("web-2", at(updated()))
			w.Change("web-0", at(updated()))
		}, "1 of 1"},
		"with a partition beyond all": {func(w *sim.World, _ func() string) { w.Edit(partition(9)); w.Edit(toImage("two")) }, "0 of 0"},
		"with a reserved ordinal": {func(w *sim.World, _ func() string) {
			obey(w, "a", reserve(intstr.FromInt32(1)))
			w.Edit(partition(2))
		}, "1 of 2"},
		"one is not ready": {func(w *sim.World, _ func() string) { w.Change("web-1", unready) }, "2 of 3"},
		"one is missing":   {func(w *sim.World, _ func() string) { delete(w.Pods, "web-1") }, "2 of 3"},
		"one is outdated":  {func(w *sim.World, _ func() string) { w.Change("web-1", at("old")) }, "2 of 3, outdated"},
		"on delete, what is left of a partition": {func(w *sim.World, _ func() string) {
			w.Edit(partition(2))
			w.Edit(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType })
		}, "3 of 3"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := rested(t, 3)
			test.change(w, func() string { return plan.Make(w.Snapshot()).Revisions.Update })
			r := plan.Make(w.Snapshot()).Rollout
			got := fmt.Sprintf("%d of %d", r.Available, r.Wanted)
			if r.Outdated {
				got += ", outdated"
			}
			if got != test.want {
				t.Errorf("available are %s, want %s", got, test.want)
			}
		})
	}
}

// That policies contradict each other holds up nothing where nothing is to be done.
func TestConflictWithoutConsequence(t *testing.T) {
	for _, management := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		w := rested(t, 3, func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = management })
		obey(w, "a")
		obey(w, "b")
		if p := plan.Make(w.Snapshot()); len(p.Steps) > 0 || len(p.Waits) > 0 {
			t.Errorf("with %s, the plan is\n%s", management, p.String(w.Now))
		}
	}
}

// In a conflict of policies, an ordinal that one of them reserves does not hold up those above it.
func TestReservedOrdinalHoldsUpNobody(t *testing.T) {
	w := rested(t, 3)
	obey(w, "a", reserve(intstr.FromInt32(1)))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	obey(w, "b")
	delete(w.Pods, "web-2")
	p := plan.Make(w.Snapshot())
	if created := of[plan.CreatePod](p); len(created) != 1 || created[0].Pod.Name != "web-2" {
		t.Errorf("the plan is\n%s", p.String(w.Now))
	}
}
