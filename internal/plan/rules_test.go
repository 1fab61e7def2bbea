// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// A pod takes what its template says, but for what tells who it is.
func TestIdentity(t *testing.T) {
	w := sim.New(sim.NewSet("web", 1, withoutClaims, func(s *appsv1.StatefulSet) {
		s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 7}
		s.Spec.ServiceName = "db"
		s.Spec.Template.ObjectMeta = metav1.ObjectMeta{
			Name:        "ignored",
			Annotations: map[string]string{"note": "kept"},
			Finalizers:  []string{"example.com/kept"},
			Labels: map[string]string{
				"app": "web", "statefulset.kubernetes.io/pod-name": "forged", "apps.kubernetes.io/pod-index": "forged",
				"controller-revision-hash": "forged",
			},
		}
		s.Spec.Template.Spec.Hostname, s.Spec.Template.Spec.Subdomain = "forged", "forged"
	}))
	p := plan.Make(w.Snapshot())
	pod := of[plan.CreatePod](p)[0].Pod
	if pod.Name != "web-7" || pod.GenerateName != "web-" || pod.Namespace != "default" {
		t.Errorf("the pod is %s/%s of %s", pod.Namespace, pod.Name, pod.GenerateName)
	}
	if pod.Spec.Hostname != "web-7" || pod.Spec.Subdomain != "db" {
		t.Errorf("its name is %s.%s", pod.Spec.Hostname, pod.Spec.Subdomain)
	}
	labels := map[string]string{
		"app": "web", "statefulset.kubernetes.io/pod-name": "web-7", "apps.kubernetes.io/pod-index": "7",
		"controller-revision-hash": p.Revisions.Update,
	}
	if !maps.Equal(pod.Labels, labels) {
		t.Errorf("labels are %v, want %v", pod.Labels, labels)
	}
	if pod.Annotations["note"] != "kept" || !slices.Equal(pod.Finalizers, []string{"example.com/kept"}) {
		t.Errorf("annotations are %v, finalizers %v", pod.Annotations, pod.Finalizers)
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != w.Set.UID || owner.Kind != "StatefulSet" {
		t.Errorf("the owner is %v", owner)
	}
}

// A huge Parallel set is made piece by piece, so that it does not hold a worker for long.
func TestHugeSetIsMadeInPieces(t *testing.T) {
	w := sim.New(sim.NewSet("web", 2*plan.MaxCreates+1, parallel, withoutClaims))
	for _, want := range []int{plan.MaxCreates, plan.MaxCreates, 1, 0} {
		p := plan.Make(w.Snapshot())
		if n := len(of[plan.CreatePod](p)); n != want {
			t.Errorf("with %d pods there, %d are created, want %d", len(w.Pods), n, want)
		}
		w.Sync()
	}
}

// An ordered set is scaled down before it is updated, one pod at a time.
func TestScalingDownComesBeforeUpdates(t *testing.T) {
	w := sim.New(sim.NewSet("web", 3, withoutClaims))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Edit(func(s *appsv1.StatefulSet) {
		s.Spec.Replicas = new(int32(2))
		s.Spec.Template.Spec.Containers[0].Image = "two"
	})
	deletes := of[plan.DeletePod](plan.Make(w.Snapshot()))
	if len(deletes) != 1 || deletes[0].Pod.Name != "web-2" || deletes[0].Reason != plan.ReasonScaledDown {
		t.Errorf("deletions are %v", deletes)
	}
}

// A pod on its way out gets neither labels nor claims any more.
func TestPodsThatGoAreLeftAlone(t *testing.T) {
	type pod struct {
		policy appsv1.PodManagementPolicyType
		phase  corev1.PodPhase
	}
	tests := []pod{
		{appsv1.OrderedReadyPodManagement, corev1.PodPending},
		{appsv1.OrderedReadyPodManagement, corev1.PodRunning},
		{appsv1.ParallelPodManagement, corev1.PodPending},
		{appsv1.ParallelPodManagement, corev1.PodRunning},
	}
	for _, test := range tests {
		w := sim.New(sim.NewSet("web", 1, func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = test.policy }))
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
		delete(w.Claims, "data-web-0")
		w.Change("web-0", func(p *corev1.Pod) {
			p.Status.Phase = test.phase
			delete(p.Labels, appsv1.PodIndexLabel)
		})
		w.Kill("web-0")
		if p := plan.Make(w.Snapshot()); len(p.Steps) > 0 {
			t.Errorf("for a %s pod of a set with policy %s the plan is\n%s", test.phase, test.policy, p.String(w.Now))
		}
	}
}

// All pods of the range that do not serve use up the budget, for whatever reason and also below the partition.
func TestBudget(t *testing.T) {
	tests := map[string]struct {
		change func(*sim.World)
		want   []string
	}{
		"all serve":                     {func(*sim.World) {}, []string{"web-4", "web-3"}},
		"one is not ready":              {func(w *sim.World) { w.Change("web-0", unready) }, []string{"web-4"}},
		"one is going":                  {func(w *sim.World) { w.Kill("web-0") }, []string{"web-4"}},
		"one is missing":                {func(w *sim.World) { delete(w.Pods, "web-0") }, []string{"web-4"}},
		"two do not serve":              {func(w *sim.World) { w.Change("web-0", unready); w.Kill("web-1") }, nil},
		"an outdated one does not":      {func(w *sim.World) { w.Change("web-2", unready) }, []string{"web-2", "web-4"}},
		"two outdated ones do not":      {func(w *sim.World) { w.Change("web-2", unready); w.Change("web-3", unready) }, []string{"web-3", "web-2"}},
		"an outdated one is going":      {func(w *sim.World) { w.Kill("web-4") }, []string{"web-3"}},
		"one is not ready long enough":  {func(w *sim.World) { w.Change("web-0", readySince(w.Now)) }, []string{"web-4"}},
		"one has just been long enough": {func(w *sim.World) { w.Change("web-0", readySince(w.Now.Add(-10*time.Second))) }, []string{"web-4", "web-3"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := sim.New(sim.NewSet("web", 5, parallel, withoutClaims, maxUnavailable(intstr.FromString("59%")), func(s *appsv1.StatefulSet) {
				s.Spec.MinReadySeconds = 10
				s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2))
			}))
			if err := w.Settle(); err != nil {
				t.Fatal(err)
			}
			w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
			test.change(w)
			var got []string
			for _, a := range of[plan.DeletePod](plan.Make(w.Snapshot())) {
				got = append(got, a.Pod.Name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("updated are %v, want %v", got, test.want)
			}
		})
	}
}

func readySince(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at) }
}

// The Recreate strategy takes all outdated pods, those beyond the range too.
func TestRecreateTakesAll(t *testing.T) {
	w := sim.New(sim.NewSet("web", 3, withoutClaims, strategy(appsv1.RecreateStatefulSetStrategyType)))
	w.Options.Recreate = true
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Edit(func(s *appsv1.StatefulSet) {
		s.Spec.Replicas = new(int32(1))
		s.Spec.Template.Spec.Containers[0].Image = "two"
	})
	if deletes := of[plan.DeletePod](plan.Make(w.Snapshot())); len(deletes) != 3 {
		t.Errorf("deletions are %v", deletes)
	}
}

// While it is not known what belongs to a set, or its template could not be recorded, nothing else is done: no history is
// trimmed either.
func TestFirstThingsFirst(t *testing.T) {
	tests := map[string]struct {
		change func(*sim.World)
		refuse func(plan.Action) bool
	}{
		"adoption is refused": {
			func(w *sim.World) { w.Orphan(); delete(w.Pods, "web-1") },
			func(a plan.Action) bool { _, is := a.(plan.AdoptRevision); return is },
		},
		"the revision is refused": {
			func(w *sim.World) {
				w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "three" })
				delete(w.Pods, "web-1")
			},
			func(a plan.Action) bool { _, is := a.(plan.CreateRevision); return is },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := sim.New(sim.NewSet("web", 2, parallel))
			for _, image := range []string{"one", "two"} {
				w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = image })
				if err := w.Settle(); err != nil {
					t.Fatal(err)
				}
			}
			w.Edit(func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = new(int32(0)) })
			test.change(w)
			w.Refuse = func(a plan.Action) error {
				if test.refuse(a) {
					return errors.New("no")
				}
				return nil
			}
			var outcomes []plan.Outcome
			w.Observe = func(_ plan.Plan, all []plan.Outcome) { outcomes = all }
			w.Sync()
			if len(outcomes) != 1 || outcomes[0].Result != plan.ResultFailed {
				t.Errorf("outcomes are %v", outcomes)
			}
		})
	}
}

// With a policy that retains, the owner of a claim holds up nobody.
func TestOldOwnerOfARetainedClaim(t *testing.T) {
	w := sim.New(sim.NewSet("web", 1))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	delete(w.Pods, "web-0")
	claim := w.Claims["data-web-0"].DeepCopy()
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "former", Controller: new(true)}}
	w.Claims[claim.Name] = claim
	if p := plan.Make(w.Snapshot()); len(of[plan.CreatePod](p)) != 1 {
		t.Errorf("the plan is\n%s", p.String(w.Now))
	}
}

// The claims of a condemned pod get their owner before the pod is deleted, which is what the garbage collector acts on.
func TestClaimsAreHandedOverFirst(t *testing.T) {
	const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	for _, policy := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		w := sim.New(sim.NewSet("web", 1, retention(remove, retain), func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = policy }))
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
		w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(0)) })
		p := plan.Make(w.Snapshot())
		want := "let claim data-web-0 be owned by Pod web-0: the retention policy says so\ndelete pod web-0: the set is scaled below it\n"
		if got := p.String(w.Now); got != want {
			t.Errorf("with policy %s the plan is\n%swant\n%s", policy, got, want)
		}
	}
}

// A set that does not say how much history it wants keeps ten revisions of it.
func TestMissingHistoryLimit(t *testing.T) {
	w := sim.New(sim.NewSet("web", 0, func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = nil }))
	for n := range 15 {
		w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = strconv.Itoa(n) })
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.Revisions); n != 11 {
		t.Errorf("%d revisions are kept, want 10 and the one in use", n)
	}
}

// The next look is when the first pod becomes available, also if nothing is done then but to count it.
func TestNextLook(t *testing.T) {
	w := sim.New(sim.NewSet("web", 4, withoutClaims, func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 10 }))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	w.Change("web-0", unready)
	for name, ago := range map[string]time.Duration{"web-1": 3 * time.Second, "web-2": 6 * time.Second, "web-3": 11 * time.Second} {
		w.Change(name, readySince(w.Now.Add(-ago)))
	}
	if p := plan.Make(w.Snapshot()); p.Requeue.Sub(w.Now) != 4*time.Second {
		t.Errorf("the next look is in %s, want 4s; the plan is\n%s", p.Requeue.Sub(w.Now), p.String(w.Now))
	}
}
