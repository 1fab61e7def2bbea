// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

func settled(t *testing.T, changes ...func(*appsv1.StatefulSet)) *sim.World {
	t.Helper()
	w := sim.New(sim.NewSet("web", 3, changes...))
	settle(t, w)
	return w
}

func settle(t *testing.T, w *sim.World) {
	t.Helper()
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
}

// do carries out actions and gives their results.
func do(w *sim.World, actions ...plan.Action) []plan.Result {
	steps := make([]plan.Step, len(actions))
	for i, a := range actions {
		steps[i] = plan.Step{Chains: []plan.Chain{{a}}, Always: true}
	}
	var results []plan.Result
	for _, o := range w.Apply(plan.Plan{Steps: steps}) {
		results = append(results, o.Result)
	}
	return results
}

func ref(p *corev1.Pod) plan.Ref {
	return plan.Ref{Kind: plan.KindPod, Name: p.Name, UID: p.UID}
}

func image(name string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = name }
}

func TestBlockedEviction(t *testing.T) {
	w := settled(t)
	w.Blocked = func(a plan.DeletePod) bool { return a.Pod.Name == "web-1" }
	evict := func(name string) plan.Action { return plan.DeletePod{Pod: ref(w.Pods[name]), Evict: true} }
	got := do(w, evict("web-1"), evict("web-2"), plan.DeletePod{Pod: ref(w.Pods["web-1"])})
	if want := []plan.Result{plan.ResultBlocked, plan.ResultDone, plan.ResultDone}; !slices.Equal(got, want) {
		t.Errorf("results are %v, want %v", got, want)
	}
}

// An eviction that is refused is tried again after some time, until it is allowed.
func TestEvictionIsTriedAgain(t *testing.T) {
	w := settled(t)
	w.AddPolicy(&v1alpha1.StatefulSetPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: v1alpha1.StatefulSetPolicySpec{
			TargetRef: v1alpha1.TargetRef{Name: "web"}, Rollout: &v1alpha1.RolloutPolicy{Disruption: v1alpha1.Evict},
		},
	})
	settle(t, w)
	var tries []time.Time
	w.Blocked = func(plan.DeletePod) bool { tries = append(tries, w.Now); return len(tries) <= 3 }
	w.Edit(image("two"))
	settle(t, w)
	if len(tries) != 6 || tries[3].Sub(tries[0]) != 3*sim.EvictDelay || w.Set.Status.UpdatedReplicas != 3 {
		t.Errorf("after tries at %v the status is %+v", tries, w.Set.Status)
	}
	status := w.Policies["web"].Status
	if status.Rollout == nil || status.Rollout.Phase != v1alpha1.RolloutComplete {
		t.Errorf("the policy's status is %+v", status)
	}
}

func TestPodsAreTold(t *testing.T) {
	w := settled(t)
	pod := func() *corev1.Pod { return w.Pods["web-1"] }
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	do(w, plan.TellPod{Pod: ref(pod()), Stop: "ScaleDown", At: at})
	want := map[string]string{v1alpha1.StopReasonAnnotation: "ScaleDown", v1alpha1.StopAtAnnotation: "2026-01-02T03:04:05Z"}
	if got := pod().Annotations; !maps.Equal(got, want) {
		t.Errorf("annotations are %v, want %v", got, want)
	}
	do(w, plan.TellPod{Pod: ref(pod())})
	if got := pod().Annotations; len(got) > 0 {
		t.Errorf("annotations of a pod that stays are %v", got)
	}
}

// The controller remembers which pods it replaced because they were stuck until they are made anew, or the set changes.
func TestUnstuckIsRemembered(t *testing.T) {
	for name, forget := range map[string]func(*sim.World){
		"made anew":       func(w *sim.World) { settle(t, w) },
		"the set changes": func(w *sim.World) { w.Edit(image("four")) },
	} {
		w := settled(t)
		w.Fate = func(p *corev1.Pod) sim.Fate {
			if p.Spec.Containers[0].Image == "bad" {
				return sim.Stuck
			}
			return sim.Good
		}
		w.Edit(image("bad"))
		settle(t, w)
		w.Edit(image("three"))
		w.Sync()
		if got := w.Snapshot().Unstuck; !got["web-2"] || len(got) != 1 {
			t.Errorf("%s: remembered are %v", name, got)
		}
		forget(w)
		if got := w.Snapshot().Unstuck; len(got) > 0 {
			t.Errorf("%s: still remembered are %v", name, got)
		}
	}
}

// In a live world, pods that are not ready stay so until they are replaced.
func TestLive(t *testing.T) {
	w := settled(t)
	w.Change("web-1", func(p *corev1.Pod) { p.Status.Conditions = nil })
	live := sim.Live(w.Snapshot())
	settle(t, live)
	if got := live.Set.Status.ReadyReplicas; got != 2 {
		t.Errorf("%d pods are ready", got)
	}
	live.Kill("web-1")
	settle(t, live)
	if got := live.Set.Status.ReadyReplicas; got != 3 {
		t.Errorf("%d pods are ready after the one that was not was replaced", got)
	}
	from := sim.From(w.Snapshot())
	settle(t, from)
	if got := from.Set.Status.ReadyReplicas; got != 3 {
		t.Errorf("%d pods are ready in a world in which they become so", got)
	}
}

// With a set go its pods and revisions, and the claims that it owns once no pod uses them.
func TestDelete(t *testing.T) {
	const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	for policy, left := range map[appsv1.PersistentVolumeClaimRetentionPolicyType]int{retain: 3, remove: 0} {
		w := settled(t, func(s *appsv1.StatefulSet) {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenScaled: retain, WhenDeleted: policy,
			}
		})
		w.Delete()
		if len(w.Pods) != 3 || len(w.Claims) != 3 {
			t.Errorf("%s: at once there are %d pods and %d claims", policy, len(w.Pods), len(w.Claims))
		}
		settle(t, w)
		if len(w.Pods)+len(w.Revisions) > 0 || len(w.Claims) != left {
			t.Errorf("%s: left are %d pods, %d revisions, %d claims", policy, len(w.Pods), len(w.Revisions), len(w.Claims))
		}
	}
}

// A claim that is being deleted goes when no pod uses it any more.
func TestClaimGoesAfterItsPod(t *testing.T) {
	w := settled(t)
	c := w.Claims["data-web-1"].DeepCopy()
	c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: w.Now}, []string{"kubernetes.io/pvc-protection"}
	w.Claims[c.Name] = c
	settle(t, w)
	if w.Claims[c.Name] == nil {
		t.Fatal("it went from under its pod")
	}
	w.Kill("web-1")
	settle(t, w)
	if got := w.Claims[c.Name]; got == nil || got.UID == c.UID {
		t.Errorf("the claim is %v", got)
	}
}
