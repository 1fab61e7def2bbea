// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status settles what a StatefulSet's status has to say after a plan was carried out. It is pure.
package status

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// Settle gives the status of a snapshot's set after the outcomes of its plan, and tells if it differs from the one that the
// set has. All counters are counted from pods, so that they are true at any time.
func Settle(s plan.Snapshot, p plan.Plan, outcomes []plan.Outcome) (appsv1.StatefulSetStatus, bool) {
	next := *s.Set.Status.DeepCopy()
	if p.Blind {
		return next, false
	}
	t := tallyOf(outcomes)
	if next.CollisionCount == nil {
		next.CollisionCount = new(int32)
	}
	// A count of none and no count are the same: that alone is no reason to write.
	before := *next.DeepCopy()
	*next.CollisionCount += t.collisions
	if p.Revisions.Known && !t.revisionMissing {
		next.ObservedGeneration = max(next.ObservedGeneration, s.Set.Generation)
		next.CurrentRevision = p.Revisions.Current
		next.UpdateRevision = p.Revisions.Update
	}
	members := t.members(p.Members)
	count(&next, s, members)
	complete := isComplete(&next, p.Span, s.Set, members)
	if complete {
		next.CurrentRevision, next.CurrentReplicas = next.UpdateRevision, next.UpdatedReplicas
	}
	setProgressing(&next, s, p, complete)
	scene{snapshot: s, plan: p, outcomes: outcomes, members: members, next: &next}.setConditions()
	return next, !equality.Semantic.DeepEqual(next, before)
}

// tally is what outcomes changed.
type tally struct {
	created         []*corev1.Pod
	deleted         map[types.UID]bool
	gone            map[types.UID]bool
	adopted         map[types.UID]bool
	collisions      int32
	revisionMissing bool
}

func tallyOf(outcomes []plan.Outcome) tally {
	t := tally{deleted: map[types.UID]bool{}, gone: map[types.UID]bool{}, adopted: map[types.UID]bool{}}
	for _, o := range outcomes {
		t.add(o)
	}
	return t
}

func (t *tally) add(o plan.Outcome) {
	done := o.Result == plan.ResultDone
	uid := o.Action.Target().UID
	switch o.Action.(type) {
	case plan.CreatePod:
		if pod, ok := o.Object.(*corev1.Pod); ok && done {
			t.created = append(t.created, pod)
		}
	case plan.DeletePod:
		t.deleted[uid] = done
		t.gone[uid] = o.Result == plan.ResultGone
	case plan.AdoptPod:
		t.adopted[uid] = done
	case plan.CreateRevision:
		t.revisionMissing = !done
		if o.Result == plan.ResultCollision {
			t.collisions++
		}
	default:
		// The others change nothing that is counted.
	}
}

// member is a pod to be counted.
type member struct {
	*corev1.Pod
	// leaving means that it is asked to go.
	leaving bool
}

// members are the pods of the set after the outcomes.
func (t *tally) members(before []*corev1.Pod) []member {
	after := make([]member, 0, len(before)+len(t.created))
	for _, pod := range before {
		isOrphan := metav1.GetControllerOfNoCopy(pod) == nil
		if !t.gone[pod.UID] && (!isOrphan || t.adopted[pod.UID]) {
			after = append(after, member{Pod: pod, leaving: podstate.IsTerminating(pod) || t.deleted[pod.UID]})
		}
	}
	for _, pod := range t.created {
		after = append(after, member{Pod: pod})
	}
	return after
}

func count(next *appsv1.StatefulSetStatus, s plan.Snapshot, members []member) {
	next.Replicas, next.ReadyReplicas, next.AvailableReplicas = 0, 0, 0
	next.CurrentReplicas, next.UpdatedReplicas = 0, 0
	for _, m := range members {
		next.Replicas += one(podstate.IsCreated(m.Pod))
		next.ReadyReplicas += one(podstate.IsReady(m.Pod))
		next.AvailableReplicas += one(podstate.IsAvailable(m.Pod, s.Set.Spec.MinReadySeconds, s.Now))
		if m.leaving {
			continue
		}
		next.CurrentReplicas += one(podstate.Revision(m.Pod) == next.CurrentRevision)
		next.UpdatedReplicas += one(podstate.Revision(m.Pod) == next.UpdateRevision)
	}
}

func one(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// isComplete tells if an update has come to its end: the set has exactly the pods of its range, and all have the update and
// are ready. A pod beyond the range does not make up for one within it, as it does for kube-controller-manager, which then
// forgets what the pods below a partition have to be.
func isComplete(next *appsv1.StatefulSetStatus, span ordinal.Range, set *appsv1.StatefulSet, members []member) bool {
	done := 0
	for _, m := range members {
		n, ok := ordinal.Of(set.Name, m.Name)
		if ok && span.Contains(n) && !m.leaving && podstate.IsReady(m.Pod) && podstate.Revision(m.Pod) == next.UpdateRevision {
			done++
		}
	}
	return done == span.Count && int(next.Replicas) == span.Count
}

// setProgressing sets the condition Progressing as Kubernetes does: it tells how the Recreate strategy goes on, and is false
// when the strategy is done.
func setProgressing(next *appsv1.StatefulSetStatus, s plan.Snapshot, p plan.Plan, complete bool) {
	if !s.Options.Strict || s.Set.Spec.UpdateStrategy.Type != appsv1.RecreateStatefulSetStrategyType || !s.Options.Recreate {
		return
	}
	c := appsv1.StatefulSetCondition{
		Type:   appsv1.StatefulSetProgressing,
		Status: corev1.ConditionTrue,
		Reason: "RecreateInProgress",
	}
	switch {
	case complete && find(next.Conditions, c.Type) != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "RecreateCompleted", "All pods recreated successfully"
	case p.Recreate == plan.RecreateDeleting:
		c.Message = "Deleting old revision pods"
	case p.Recreate == plan.RecreateCreating:
		c.Message = "Waiting for new-revision pods to be created"
	default:
		return
	}
	set(next, c, s.Now)
}

// set puts a condition into the status. Its transition time changes only with its status.
func set(next *appsv1.StatefulSetStatus, c appsv1.StatefulSetCondition, now time.Time) {
	c.LastTransitionTime.Time = now.Truncate(time.Second)
	old := find(next.Conditions, c.Type)
	if old == nil {
		next.Conditions = append(next.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
}

func find(conditions []appsv1.StatefulSetCondition, kind appsv1.StatefulSetConditionType) *appsv1.StatefulSetCondition {
	i := slices.IndexFunc(conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}
