// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

var histories = flag.Int("histories", 1000, "how many random histories to compare")

// edit is something that users do to a world, and what they call it.
type edit struct {
	name string
	do   func(*sim.World)
}

// drawEdit draws an edit. It is done to both worlds.
func drawEdit(rng *rand.Rand, w *sim.World) edit {
	spec := func(name string, change func(*appsv1.StatefulSetSpec)) edit {
		return edit{name, func(w *sim.World) { w.Edit(func(s *appsv1.StatefulSet) { change(&s.Spec) }) }}
	}
	span := ordinal.RangeOf(w.Set)
	pod := ordinal.PodName(w.Set.Name, span.Start+rng.IntN(max(1, span.Count)))
	switch rng.IntN(12) {
	case 0:
		n := int32(rng.IntN(6))
		return spec(fmt.Sprint("scale to ", n), func(s *appsv1.StatefulSetSpec) { s.Replicas = &n })
	case 1:
		n := int32(rng.IntN(5))
		return spec(fmt.Sprint("partition ", n), func(s *appsv1.StatefulSetSpec) {
			s.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &n, MaxUnavailable: new(intstr.FromInt32(1 + n))},
			}
		})
	case 2:
		return spec("on delete", func(s *appsv1.StatefulSetSpec) {
			s.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		})
	case 3:
		n := int32(rng.IntN(3))
		return spec(fmt.Sprint("start at ", n), func(s *appsv1.StatefulSetSpec) { s.Ordinals = &appsv1.StatefulSetOrdinals{Start: n} })
	case 4:
		n := int32(rng.IntN(3))
		return spec(fmt.Sprint("history limit ", n), func(s *appsv1.StatefulSetSpec) { s.RevisionHistoryLimit = &n })
	case 5:
		kinds := []appsv1.PersistentVolumeClaimRetentionPolicyType{"Retain", "Delete"}
		policy := &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: kinds[rng.IntN(2)], WhenDeleted: kinds[rng.IntN(2)]}
		return spec(fmt.Sprint("retention ", policy), func(s *appsv1.StatefulSetSpec) { s.PersistentVolumeClaimRetentionPolicy = policy })
	case 6:
		return edit{"kill " + pod, func(w *sim.World) { w.Kill(pod) }}
	case 7:
		return edit{"fail " + pod, func(w *sim.World) { w.Change(pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }) }}
	case 8:
		return edit{"orphan", func(w *sim.World) { w.Orphan() }}
	case 9:
		status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[rng.IntN(2)]
		return edit{fmt.Sprint(pod, " ready ", status), func(w *sim.World) {
			w.Change(pod, func(p *corev1.Pod) {
				for i := range p.Status.Conditions {
					p.Status.Conditions[i].Status = status
				}
			})
		}}
	default:
		image := []string{"one", "two", "three"}[rng.IntN(3)]
		return spec("image "+image, func(s *appsv1.StatefulSetSpec) { s.Template.Spec.Containers[0].Image = image })
	}
}

// rest is how a controller brought a world to rest.
type rest struct {
	// deleted are the pods that were deleted, in order.
	deleted []string
	// apart is why the other controller may come to another rest; empty if it may not.
	apart string
}

// settleIncumbent lets the incumbent and the kubelet work until nothing changes any more.
func settleIncumbent(t *testing.T, w *sim.World) rest {
	t.Helper()
	i := newIncumbent(w)
	before, early := "", false
	for range 5000 {
		told := w.Set.Status
		err := i.sync(t.Context())
		early = early || isEarly(told, w)
		after := strings.Join(describe(w), "\n") + describeStatus(w.Set.Status)
		if before == after && !w.Advance() {
			if err != nil {
				t.Fatalf("the incumbent rests with %v", err)
			}
			if early {
				return rest{i.deleted, "complete too early"}
			}
			return rest{i.deleted, ""}
		}
		before = after
	}
	t.Fatal("the incumbent does not settle")
	return rest{}
}

// isEarly tells if a sync took an update for complete although a pod of the range does not have it or is not ready.
func isEarly(before appsv1.StatefulSetStatus, w *sim.World) bool {
	after := w.Set.Status
	if before.CurrentRevision == after.CurrentRevision || after.CurrentRevision != after.UpdateRevision {
		return false
	}
	span := ordinal.RangeOf(w.Set)
	for n := span.Start; n < span.End(); n++ {
		p := w.Pods[ordinal.PodName(w.Set.Name, n)]
		if p == nil || podstate.Revision(p) != after.UpdateRevision || !podstate.IsReady(p) {
			return true
		}
	}
	return false
}

// settleOurs lets Ordinal and the kubelet work until nothing changes any more.
func settleOurs(t *testing.T, w *sim.World) rest {
	t.Helper()
	var r rest
	seen := w.Snapshot()
	w.Observe = func(p plan.Plan, outcomes []plan.Outcome) {
		switch {
		case w.Options.Strict:
		case unsticks(p):
			r.apart = "unstuck"
		case passesBroken(seen, p):
			r.apart = "unavailable pod scaled down"
		}
		seen = w.Snapshot()
		for _, o := range outcomes {
			if d, ok := o.Action.(plan.DeletePod); ok {
				r.deleted = append(r.deleted, d.Pod.Name)
			}
		}
	}
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestHistories compares whole histories: after each edit both worlds come to the same rest, with the same pods deleted in
// the same order.
func TestHistories(t *testing.T) {
	silence()
	setGate(t, true)
	counts := map[string]int{}
	for n := range *histories {
		rng := rand.New(rand.NewPCG(*seed, uint64(n)))
		s := sim.Draw(rng.IntN, sim.Limits{Tame: true})
		calm(s)
		s.Options.Defaulter = appsdefaults.SetObjectDefaults_StatefulSet
		s.Options.Strict = n%2 == 1
		ours, theirs := sim.From(s), sim.From(s)
		story := []string{describeSet(s.Set)}
		compared.histories++
		for range 6 {
			a, b := settleOurs(t, ours), settleIncumbent(t, theirs)
			diff := atRest(ours, theirs, a.deleted, b.deleted)
			if apart := cmp.Or(a.apart, b.apart); len(diff) > 0 && apart != "" {
				counts["ended by "+apart]++
				break
			}
			if len(diff) > 0 {
				t.Fatalf("seed %d history %d:\n%s\ncomes to\n%s", *seed, n, strings.Join(story, "\n"), strings.Join(diff, "\n"))
			}
			e := drawEdit(rng, ours)
			story = append(story, e.name)
			e.do(ours)
			e.do(theirs)
			counts["with the same end"]++
		}
	}
	t.Log(summary(fmt.Sprintf("edits in %d histories", *histories), counts))
}

// calm takes away what makes the incumbent never settle, and what nobody heals.
func calm(s plan.Snapshot) {
	strategy := &s.Set.Spec.UpdateStrategy
	if strategy.RollingUpdate == nil && strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		strategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)}
	}
	s.Set.DeletionTimestamp = nil
	for _, c := range s.Claims {
		c.DeletionTimestamp = nil
	}
}

func atRest(ours, theirs *sim.World, a, b []string) []string {
	var diff []string
	left, right := describe(ours), describe(theirs)
	for _, line := range left {
		if !slices.Contains(right, line) {
			diff = append(diff, "ours:   "+line)
		}
	}
	for _, line := range right {
		if !slices.Contains(left, line) {
			diff = append(diff, "theirs: "+line)
		}
	}
	if x, y := describeStatus(ours.Set.Status), describeStatus(theirs.Set.Status); x != y {
		diff = append(diff, "ours:   "+x, "theirs: "+y)
	}
	if ours.Set.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement && !slices.Equal(a, b) {
		diff = append(diff, fmt.Sprintf("ours deletes %v, theirs %v", a, b))
	}
	return diff
}
