// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// rested is a world with a set without claims that has all its pods.
func rested(t *testing.T, replicas int32, changes ...func(*appsv1.StatefulSet)) *sim.World {
	t.Helper()
	w := sim.New(sim.NewSet("web", replicas, append(changes, withoutClaims)...))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	return w
}

func toImage(image string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = image }
}

func toReplicas(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Replicas = &n }
}

// onPods are the lines of a plan that are about pods.
func onPods(w *sim.World) string {
	p := plan.Make(w.Snapshot())
	var lines []string
	for line := range strings.Lines(p.String(w.Now)) {
		if strings.Contains(line, "pod ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "; ")
}

// What a pod was told before is told anew only if it is something else, and a moment that was told counts only for a pod that
// is scaled away.
func TestWhatPodsAreTold(t *testing.T) {
	const (
		told    = v1alpha1.StopReasonAnnotation
		at      = v1alpha1.StopAtAnnotation
		update  = "tell pod web-1 that it goes: Update; then delete pod web-1: it is outdated"
		drained = "tell pod web-1 that it goes: ScaleDown, at 2026-01-01T00:00:34Z; wait for pod web-1: it is told to drain before it goes, 30s more"
		gone    = "delete pod web-1: the set is scaled below it"
	)
	tell, drain := v1alpha1.ScaleDown{ReasonAnnotation: true}, v1alpha1.ScaleDown{DrainSeconds: 30}
	tests := map[string]struct {
		policy v1alpha1.ScaleDown
		before map[string]string
		edit   func(*appsv1.StatefulSet)
		want   string
	}{
		"an update":                      {tell, nil, toImage("two"), update},
		"an update, told before":         {tell, map[string]string{told: v1alpha1.StopUpdate}, toImage("two"), "delete pod web-1: it is outdated"},
		"an update, not a scale-down":    {tell, map[string]string{told: v1alpha1.StopScaleDown}, toImage("two"), update},
		"an update, told nobody":         {drain, nil, toImage("two"), "delete pod web-1: it is outdated"},
		"a scale-down":                   {tell, nil, toReplicas(1), "tell pod web-1 that it goes: ScaleDown; then " + gone},
		"a scale-down, told before":      {tell, map[string]string{told: v1alpha1.StopScaleDown}, toReplicas(1), gone},
		"a scale-down, not an update":    {tell, map[string]string{told: v1alpha1.StopUpdate}, toReplicas(1), "tell pod web-1 that it goes: ScaleDown; then " + gone},
		"a drain":                        {drain, nil, toReplicas(1), drained},
		"a drain, told without a moment": {drain, map[string]string{told: v1alpha1.StopScaleDown}, toReplicas(1), drained},
		"a drain, told an odd moment":    {drain, map[string]string{told: v1alpha1.StopScaleDown, at: "soon"}, toReplicas(1), drained},
		"a drain, told another reason": {
			drain, map[string]string{told: v1alpha1.StopUpdate, at: "2026-01-01T00:00:01Z"}, toReplicas(1), drained,
		},
		"a drain that goes on": {
			drain,
			map[string]string{told: v1alpha1.StopScaleDown, at: "2026-01-01T00:00:05Z"},
			toReplicas(1),
			"wait for pod web-1: it is told to drain before it goes, 1s more",
		},
		"a drain that is over": {drain, map[string]string{told: v1alpha1.StopScaleDown, at: "2026-01-01T00:00:04Z"}, toReplicas(1), gone},
		"nothing, told of a scale-down": {
			drain, map[string]string{told: v1alpha1.StopScaleDown}, toReplicas(2), "tell pod web-1 that it stays",
		},
		"nothing, told of an update": {drain, map[string]string{told: v1alpha1.StopUpdate}, toReplicas(2), "tell pod web-1 that it stays"},
		"nothing, told something of others": {
			drain, map[string]string{told: "Moved"}, toReplicas(2), "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := rested(t, 2)
			obey(w, "a", scaleDown(test.policy))
			w.Change("web-1", func(p *corev1.Pod) { p.Annotations = test.before })
			w.Edit(test.edit)
			if got := onPods(w); got != test.want {
				t.Errorf("the plan is %q, want %q", got, test.want)
			}
		})
	}
}

// The annotation tells whole seconds: a pod has all of its time, and what is waited for is what it was told.
func TestDrainIsNotCutShort(t *testing.T) {
	w := rested(t, 2)
	obey(w, "a", scaleDown(v1alpha1.ScaleDown{DrainSeconds: 30}))
	w.Edit(toReplicas(1))
	w.Now = w.Now.Add(time.Millisecond)
	begin := w.Now
	until(t, w, func() bool { return w.Pods["web-1"].DeletionTimestamp != nil })
	if took := w.Now.Sub(begin); took < 30*time.Second || took >= 31*time.Second {
		t.Errorf("the pod has %s", took)
	}
}

// A pod whose rollout is taken back keeps what it was told while another update may still take it.
func TestToldUntilItIsUpdated(t *testing.T) {
	w := rested(t, 2)
	obey(w, "a", evict, scaleDown(v1alpha1.ScaleDown{ReasonAnnotation: true}))
	w.Blocked = func(plan.DeletePod) bool { return true }
	w.Edit(toImage("two"))
	w.Sync()
	if told := w.Pods["web-1"].Annotations[v1alpha1.StopReasonAnnotation]; told != v1alpha1.StopUpdate {
		t.Fatalf("the pod is told %q", told)
	}
	for range 3 {
		if tells := of[plan.TellPod](plan.Make(w.Snapshot())); len(tells) > 0 {
			t.Errorf("while its eviction is forbidden, it is told %v", tells)
		}
		w.Sync()
		w.Advance()
	}
}

// That an eviction was refused does not hold up a deletion, once the policy deletes.
func TestRefusedEvictionHoldsUpNoDeletion(t *testing.T) {
	w := rested(t, 2)
	obey(w, "a", evict)
	w.Blocked = func(plan.DeletePod) bool { return true }
	w.Edit(toImage("two"))
	w.Sync()
	if n := len(of[plan.DeletePod](plan.Make(w.Snapshot()))); n > 0 {
		t.Fatalf("after a refusal, %d pods are evicted at once", n)
	}
	obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Disruption = v1alpha1.Delete })
	if got, want := onPods(w), "delete pod web-1: it is outdated"; got != want {
		t.Errorf("the plan is %q, want %q", got, want)
	}
}

// A pod that ended is stuck only where it would come back as it was, over and over, for want of a rollingUpdate block.
func TestWhyEndedPodsAreReplaced(t *testing.T) {
	withoutBlock := strategy(appsv1.RollingUpdateStatefulSetStrategyType)
	none := func(*appsv1.StatefulSet) {}
	tests := map[string]struct {
		set, edit func(*appsv1.StatefulSet)
		strict    bool
		want      plan.Reason
	}{
		"at the revision that is wanted":    {withoutBlock, none, false, plan.ReasonFailed},
		"at another one":                    {withoutBlock, toImage("two"), false, plan.ReasonStuck},
		"at another one, strictly":          {withoutBlock, toImage("two"), true, plan.ReasonFailed},
		"at another one, with a block":      {none, toImage("two"), false, plan.ReasonFailed},
		"at another one, of a Parallel set": {func(s *appsv1.StatefulSet) { withoutBlock(s); parallel(s) }, toImage("two"), false, plan.ReasonFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := rested(t, 2, test.set)
			w.Options.Strict = test.strict
			w.Edit(test.edit)
			w.Change("web-0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			deletes := of[plan.DeletePod](plan.Make(w.Snapshot()))
			if len(deletes) == 0 || deletes[0].Pod.Name != "web-0" || deletes[0].Reason != test.want {
				t.Errorf("deletions are %v, want web-0 because %s", deletes, test.want)
			}
		})
	}
}

// How many pods come back at the current revision, for want of a rollingUpdate block, does not count ordinals that are reserved.
func TestReservedOrdinalsComeBackAtNoRevision(t *testing.T) {
	w := rested(t, 3, strategy(appsv1.RollingUpdateStatefulSetStrategyType))
	obey(w, "a", reserve(intstr.FromInt32(0)))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Edit(toImage("two"))
	w.Sync()
	if n := w.Set.Status.CurrentReplicas; n != 2 || w.Pods["web-3"].DeletionTimestamp == nil {
		t.Fatalf("%d pods are at the current revision; web-3 is %v", n, w.Pods["web-3"])
	}
	delete(w.Pods, "web-2")
	created := of[plan.CreatePod](plan.Make(w.Snapshot()))
	if len(created) != 1 || podstate.Revision(created[0].Pod) != w.Set.Status.CurrentRevision {
		t.Errorf("created are %v", created)
	}
}

// Only a pod of the current revision may start well if it is given time. One of any other has no future.
func TestNoPatienceWithAForgottenRevision(t *testing.T) {
	w := rested(t, 2, strategy(appsv1.OnDeleteStatefulSetStrategyType))
	w.Fate = func(p *corev1.Pod) sim.Fate {
		return map[string]sim.Fate{"bad": sim.Stuck}[p.Spec.Containers[0].Image]
	}
	w.Edit(toImage("bad"))
	w.Kill("web-0")
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Edit(func(s *appsv1.StatefulSet) {
		toImage("two")(s)
		s.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	})
	if got, want := onPods(w), "delete pod web-0: "; !strings.HasPrefix(got, want) {
		t.Errorf("the plan is %q, want %q", got, want)
	}
}

// That one pod is replaced does not keep another from being told that it stays.
func TestOthersAreToldThatTheyStay(t *testing.T) {
	w := rested(t, 2)
	obey(w, "a", scaleDown(v1alpha1.ScaleDown{ReasonAnnotation: true}))
	w.Change("web-0", func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.StopReasonAnnotation: v1alpha1.StopScaleDown}
	})
	w.Edit(toImage("two"))
	want := "tell pod web-0 that it stays; tell pod web-1 that it goes: Update; then delete pod web-1: it is outdated"
	if got := onPods(w); got != want {
		t.Errorf("the plan is %q, want %q", got, want)
	}
}

// A pod that is in trouble at the only revision stays, also where it would come back at the current one.
func TestTroubleAloneIsNoReason(t *testing.T) {
	w := rested(t, 2, strategy(appsv1.RollingUpdateStatefulSetStrategyType))
	w.Change("web-1", unready)
	w.Now = w.Now.Add(time.Hour)
	if trouble := podstate.TroubleOf(w.Pods["web-1"], w.Now); trouble == nil {
		t.Fatal("web-1 is in no trouble")
	}
	if got, want := onPods(w), "wait for pod web-1: it is not ready"; got != want {
		t.Errorf("the plan is %q, want %q", got, want)
	}
}
