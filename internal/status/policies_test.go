// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// follow lets a world go on until a policy's rollout is as it should, which it has to be sooner or later.
func follow(t *testing.T, w *sim.World, is func(v1alpha1.RolloutStatus) bool) {
	t.Helper()
	for range 1000 {
		if r := w.Policies["a"].Status.Rollout; r != nil && is(*r) {
			return
		}
		if !w.Sync() && !w.Advance() {
			break
		}
	}
	t.Fatalf("the rollout is never so; in the end it is %+v", w.Policies["a"].Status.Rollout)
}

// record tells the status of policy a in one line, with times relative to a begin.
func record(w *sim.World, begin time.Time) string {
	s := w.Policies["a"].Status
	text := "no rollout"
	if r := s.Rollout; r != nil {
		text = fmt.Sprintf("NEW %s %d/%d since %s", r.Phase, r.AvailableReplicas, r.Replicas, r.LastProgressTime.Sub(begin))
		if r.Revision != w.Set.Status.UpdateRevision {
			text = strings.Replace(text, "NEW", r.Revision, 1)
		}
	}
	names := strings.NewReplacer(w.Set.Status.UpdateRevision, "NEW", w.Set.Status.CurrentRevision, "OLD")
	if s.CompleteRevision != "" {
		text += ", complete " + names.Replace(s.CompleteRevision)
	}
	if s.FailedRevision != "" {
		text += fmt.Sprintf(", failed %s at %s", names.Replace(s.FailedRevision), s.FailedTime.Sub(begin))
	}
	return text
}

// records are the different statuses that policy a has until the world settles.
func records(t *testing.T, w *sim.World) []string {
	t.Helper()
	begin := w.Now
	var all []string
	w.Observe = func(plan.Plan, []plan.Outcome) {
		if line := record(w, begin); len(all) == 0 || all[len(all)-1] != line {
			all = append(all, line)
		}
	}
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Observe = nil
	return all
}

func lines(all []string) string { return strings.Join(all, "\n") }

func TestPolicyFollowsItsRollout(t *testing.T) {
	bad := func(s *appsv1.StatefulSet) { image("bad")(s) }
	tests := map[string]struct {
		policy func(*v1alpha1.StatefulSetPolicy)
		edit   func(*appsv1.StatefulSet)
		want   []string
	}{
		"without a deadline": {func(*v1alpha1.StatefulSetPolicy) {}, image("two"), []string{
			"NEW Progressing 0/3 since 0s, complete OLD",
			"NEW Progressing 1/3 since 3s, complete OLD",
			"NEW Progressing 2/3 since 6s, complete OLD",
			"NEW Complete 3/3 since 9s, complete NEW",
		}},
		"held": {deadline(30, v1alpha1.Hold), bad, []string{
			"NEW Progressing 0/3 since 0s, complete OLD",
			"NEW Held 0/3 since 0s, complete OLD",
		}},
		"brought back": {deadline(30, v1alpha1.RollBack), bad, []string{
			"NEW Progressing 0/3 since 0s, complete OLD",
			"NEW RollingBack 0/3 since 0s, complete OLD, failed NEW at 30s",
			"NEW RolledBack 0/3 since 0s, complete OLD, failed NEW at 30s",
		}},
		"in batches": {
			func(p *v1alpha1.StatefulSetPolicy) {
				p.Spec.Rollout.PauseAfter = &v1alpha1.PauseAfter{Ordinals: new(int32(2)), Seconds: new(int32(60))}
			},
			image("two"),
			[]string{
				"NEW Progressing 0/3 since 0s, complete OLD",
				"NEW Progressing 1/3 since 3s, complete OLD",
				"NEW Paused 2/3 since 6s, complete OLD",
				"NEW Progressing 2/3 since 1m6s, complete OLD",
				"NEW Complete 3/3 since 1m9s, complete NEW",
			},
		},
		"paused": {func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Paused = true }, image("two"), []string{
			"NEW Paused 0/3 since 0s, complete OLD",
		}},
		"with a partition": {
			func(*v1alpha1.StatefulSetPolicy) {},
			func(s *appsv1.StatefulSet) {
				image("two")(s)
				s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2))
			},
			[]string{
				"NEW Progressing 0/1 since 0s, complete OLD",
				"NEW Complete 1/1 since 3s, complete OLD",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t)
			w.Fate = badIsStuck
			obey(w, "a", test.policy)
			if err := w.Settle(); err != nil {
				t.Fatal(err)
			}
			w.Now = w.Now.Add(time.Hour)
			w.Edit(test.edit)
			if got := records(t, w); lines(got) != lines(test.want) {
				t.Errorf("the policy tells\n%q\nwant\n%q", got, test.want)
			}
		})
	}
}

// What comes and goes is no progress: the most that were available so far counts.
func TestFlappingPodIsNoProgress(t *testing.T) {
	w := settled(t)
	obey(w, "a", deadline(60, v1alpha1.Hold))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	begin := w.Now
	w.Edit(image("two"))
	follow(t, w, func(r v1alpha1.RolloutStatus) bool {
		return r.Phase == v1alpha1.RolloutProgressing && r.AvailableReplicas == 1
	})
	for w.Now.Sub(begin) < time.Hour && w.Policies["a"].Status.Rollout.Phase != v1alpha1.RolloutHeld {
		for _, set := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
			w.Change("web-2", func(p *corev1.Pod) { p.Status.Conditions[0].Status = set })
			w.Change("web-1", unready)
			w.Sync()
			w.Now = w.Now.Add(time.Second)
		}
	}
	if got, want := record(w, begin), "NEW Held 1/3 since 3s, complete OLD"; got != want {
		t.Errorf("the policy tells %s, want %s", got, want)
	}
}

// A rollout of other pods than before counts anew, which is progress.
func TestOtherReplicasAreProgress(t *testing.T) {
	w := settled(t)
	obey(w, "a", deadline(60, v1alpha1.Hold))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	begin := w.Now
	w.Edit(image("two"))
	follow(t, w, func(r v1alpha1.RolloutStatus) bool {
		return r.Phase == v1alpha1.RolloutProgressing && r.AvailableReplicas == 2
	})
	w.Now = w.Now.Add(10 * time.Second)
	w.Edit(replicas(2))
	w.Sync()
	if got, want := record(w, begin), "NEW Progressing 1/2 since 16s, complete OLD"; got != want {
		t.Errorf("the policy tells %s, want %s", got, want)
	}
}

// A rollout that is complete stays so while one of its pods is gone for a while, and its deadline does not count then.
func TestCompleteStaysComplete(t *testing.T) {
	w := settled(t)
	obey(w, "a", deadline(30, v1alpha1.RollBack))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	begin := w.Now
	w.Change("web-1", unready)
	rest(w)
	w.Now = w.Now.Add(time.Hour)
	rest(w)
	want := "NEW Complete 2/3 since 0s, complete NEW"
	if got := record(w, begin); got != want {
		t.Errorf("the policy tells %s, want %s", got, want)
	}
}

func TestPolicyIsTriedAgain(t *testing.T) {
	w := settled(t)
	w.Fate = badIsStuck
	obey(w, "a", deadline(30, v1alpha1.RollBack))
	w.Edit(image("bad"))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Now = w.Now.Add(time.Hour)
	obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) {
		deadline(30, v1alpha1.RollBack)(p)
		p.Annotations = map[string]string{v1alpha1.RetryAtAnnotation: w.Now.Format(time.RFC3339)}
	})
	want := []string{
		"NEW Progressing 0/3 since 0s", "NEW RollingBack 0/3 since 0s, failed NEW at 30s", "NEW RolledBack 0/3 since 0s, failed NEW at 30s",
	}
	if got := records(t, w); lines(got) != lines(want) {
		t.Errorf("the policy tells\n%q\nwant\n%q", got, want)
	}
}

func TestAcceptance(t *testing.T) {
	accepted := func(w *sim.World, name string) string {
		for _, c := range w.Policies[name].Status.Conditions {
			return fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
		return ""
	}
	w := settled(t)
	obey(w, "a", func(*v1alpha1.StatefulSetPolicy) {})
	w.Sync()
	if got, want := accepted(w, "a"), "Accepted True Accepted: StatefulSet web obeys the policy"; got != want {
		t.Errorf("alone, it is %s, want %s", got, want)
	}
	w.Now = w.Now.Add(time.Second)
	obey(w, "b", func(*v1alpha1.StatefulSetPolicy) {})
	w.Sync()
	for name, other := range map[string]string{"a": "b", "b": "a"} {
		want := "Accepted False Conflict: policy " + other +
			" names StatefulSet web too; nothing is replaced or scaled down until one of them is gone"
		if got := accepted(w, name); got != want {
			t.Errorf("as one of two, %s is %s, want %s", name, got, want)
		}
	}
	delete(w.Policies, "b")
	before := w.Policies["a"].Status.Rollout
	obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) {
		p.Annotations = map[string]string{v1alpha1.RetryAtAnnotation: "now"}
	})
	w.Edit(image("two"))
	w.Sync()
	want := `Accepted False Invalid: annotation ordinal.dev/retry-at: "now" is no time such as 2006-01-02T15:04:05Z`
	if got := accepted(w, "a"); got != want {
		t.Errorf("with a bad annotation, it is %s, want %s", got, want)
	}
	s := w.Policies["a"].Status
	if *s.Rollout != *before || s.ObservedGeneration != w.Policies["a"].Generation || s.Conditions[0].ObservedGeneration != s.ObservedGeneration {
		t.Errorf("its status is %+v", s)
	}
}

// A policy whose set is not there tells so, and forgets the rollouts of a former set of that name.
func TestOrphanedPolicies(t *testing.T) {
	w := settled(t)
	w.Fate = badIsStuck
	obey(w, "a", deadline(30, v1alpha1.RollBack))
	w.Edit(image("bad"))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	p := w.Policies["a"]
	got := status.Orphaned([]*v1alpha1.StatefulSetPolicy{p}, w.Now)
	if len(got) != 1 || got[0].Policy != p {
		t.Fatalf("orphaned are %+v", got)
	}
	want := v1alpha1.StatefulSetPolicyStatus{
		ObservedGeneration: 1,
		Conditions: []metav1.Condition{{
			Type: "Accepted", Status: metav1.ConditionFalse, Reason: "TargetNotFound", ObservedGeneration: 1,
			LastTransitionTime: metav1.NewTime(w.Now), Message: "there is no StatefulSet web in namespace default",
		}},
	}
	if fmt.Sprint(got[0].Status) != fmt.Sprint(want) {
		t.Errorf("the status is\n%+v, want\n%+v", got[0].Status, want)
	}
	p.Status = got[0].Status
	if again := status.Orphaned([]*v1alpha1.StatefulSetPolicy{p}, w.Now.Add(time.Hour)); len(again) > 0 {
		t.Errorf("an hour later, there is something to write: %+v", again)
	}
}

// While it is not known what belongs to a set, or it goes, its policy keeps what it tells of the rollout.
func TestPolicyOfAnUnknownRollout(t *testing.T) {
	for name, change := range map[string]func(*appsv1.StatefulSet){
		"no selector": func(s *appsv1.StatefulSet) { s.Spec.Selector = nil; image("two")(s) },
		"going":       func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{}; image("two")(s) },
	} {
		w := settled(t)
		obey(w, "a", deadline(30, v1alpha1.RollBack))
		rest(w)
		before := record(w, w.Now)
		w.Edit(change)
		w.Now = w.Now.Add(time.Minute)
		w.Sync()
		if got := record(w, w.Now.Add(-time.Minute)); got != before {
			t.Errorf("%s: the policy tells %s, not %s", name, got, before)
		}
	}
	w := settled(t)
	obey(w, "a", deadline(30, v1alpha1.RollBack))
	rest(w)
	before := record(w, w.Now)
	w.Edit(image("two"))
	refuse[plan.CreateRevision](w, "no")
	w.Sync()
	if got := record(w, w.Now); got != before {
		t.Errorf("without a revision, the policy tells %s, not %s", got, before)
	}
}

// A set that goes amid a rollout keeps what its policy tells of it: nothing is done any more.
func TestPolicyOfASetThatGoes(t *testing.T) {
	w := settled(t)
	obey(w, "a", deadline(30, v1alpha1.Hold))
	rest(w)
	begin := w.Now
	w.Edit(image("two"))
	w.Sync()
	before := record(w, begin)
	w.Edit(func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{Time: w.Now} })
	w.Now = w.Now.Add(time.Hour)
	rest(w)
	if got := record(w, begin); got != before {
		t.Errorf("the policy tells %s, not %s", got, before)
	}
}

// Where the template cannot be recorded, nothing is known of its rollout.
func TestPolicyOfAnUnrecordedTemplate(t *testing.T) {
	w := settled(t)
	obey(w, "a", deadline(30, v1alpha1.Hold))
	rest(w)
	s := w.Snapshot()
	if next := status.Policies(s, plan.Plan{Members: s.Pods}, nil); len(next) > 0 {
		t.Errorf("written is %+v", next[0].Status.Rollout)
	}
}

// When a pod of another revision turns up after completion, its replacement is progress.
func TestCompletionEndsWithAnOutdatedPod(t *testing.T) {
	w := settled(t)
	obey(w, "a", deadline(30, v1alpha1.Hold))
	rest(w)
	begin := w.Now
	w.Change("web-1", revise("old"))
	want := []string{"NEW Progressing 2/3 since 0s, complete NEW", "NEW Complete 3/3 since 3s, complete NEW"}
	if got := records(t, w); lines(got) != lines(want) {
		t.Errorf("after %s, the policy tells\n%q\nwant\n%q", w.Now.Sub(begin), got, want)
	}
}

// What kept a rollout from going on when it failed is still told when its pods are long gone.
func TestFailureIsRemembered(t *testing.T) {
	w := settled(t)
	w.AddPolicy(&v1alpha1.StatefulSetPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: w.Set.Namespace},
		Spec: v1alpha1.StatefulSetPolicySpec{
			TargetRef: v1alpha1.TargetRef{Name: w.Set.Name},
			Rollout:   &v1alpha1.RolloutPolicy{ProgressDeadlineSeconds: new(int32(30)), OnDeadline: v1alpha1.RollBack},
		},
	})
	w.Fate = func(p *corev1.Pod) sim.Fate {
		if p.Spec.Containers[0].Image == "two" {
			return sim.Stuck
		}
		return sim.Good
	}
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	w.Observe = func(plan.Plan, []plan.Outcome) {
		for name, p := range w.Pods {
			if p.Spec.Containers[0].Image != "two" || len(p.Status.ContainerStatuses) > 0 {
				continue
			}
			waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
			w.Change(name, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "two", State: waiting}}
			})
		}
	}
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	const want = "no progress for 30s; pod web-2: container main cannot get its image two"
	if got := w.Policies["a"].Status.FailedMessage; got != want {
		t.Errorf("the policy says %q", got)
	}
	at := slices.IndexFunc(w.Set.Status.Conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == "Progressing" })
	if got := w.Set.Status.Conditions[at]; got.Reason != status.ReasonRolledBack || !strings.Contains(got.Message, want) {
		t.Errorf("the set says %s: %s", got.Reason, got.Message)
	}
	// Another template is another rollout.
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "three" })
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	if got := w.Policies["a"].Status; got.FailedMessage != "" || got.Rollout.Phase != v1alpha1.RolloutComplete {
		t.Errorf("then the policy says %+v", got)
	}
}
