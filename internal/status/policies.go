// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/policy"
)

// PolicyStatus is the status that a policy is to have.
type PolicyStatus struct {
	Policy *v1alpha1.StatefulSetPolicy
	Status v1alpha1.StatefulSetPolicyStatus
}

// Policies give the statuses of a set's policies that differ from what they have.
func Policies(s plan.Snapshot, p plan.Plan, outcomes []plan.Outcome) []PolicyStatus {
	known := p.Revisions.Known && !tallyOf(outcomes).revisionMissing && s.Set.DeletionTimestamp == nil
	var changed []PolicyStatus
	for _, pol := range s.Policies {
		next := pol.Status.DeepCopy()
		accept(next, s, pol)
		if known && len(s.Policies) == 1 && policy.Check(pol) == nil {
			follow(next, s, p)
		}
		changed = appendChanged(changed, pol, next)
	}
	return changed
}

// Orphaned gives the statuses of policies whose set does not exist.
func Orphaned(policies []*v1alpha1.StatefulSetPolicy, now time.Time) []PolicyStatus {
	var changed []PolicyStatus
	for _, pol := range policies {
		next := pol.Status.DeepCopy()
		next.Rollout, next.CompleteRevision, next.FailedRevision, next.FailedTime, next.FailedMessage = nil, "", "", nil, ""
		setAccepted(next, pol, now, metav1.ConditionFalse, v1alpha1.ReasonTargetNotFound,
			fmt.Sprintf("there is no StatefulSet %s in namespace %s", pol.Spec.TargetRef.Name, pol.Namespace))
		changed = appendChanged(changed, pol, next)
	}
	return changed
}

func appendChanged(
	changed []PolicyStatus, pol *v1alpha1.StatefulSetPolicy, next *v1alpha1.StatefulSetPolicyStatus,
) []PolicyStatus {
	if equality.Semantic.DeepEqual(pol.Status, *next) {
		return changed
	}
	return append(changed, PolicyStatus{Policy: pol, Status: *next})
}

// accept tells whether the policy is obeyed.
func accept(next *v1alpha1.StatefulSetPolicyStatus, s plan.Snapshot, pol *v1alpha1.StatefulSetPolicy) {
	for _, other := range policy.Sorted(s.Policies) {
		if other.Name != pol.Name {
			setAccepted(next, pol, s.Now, metav1.ConditionFalse, v1alpha1.ReasonConflict, fmt.Sprintf(
				"policy %s names StatefulSet %s too; nothing is replaced or scaled down until one of them is gone", other.Name, s.Set.Name))
			return
		}
	}
	if err := policy.Check(pol); err != nil {
		setAccepted(next, pol, s.Now, metav1.ConditionFalse, v1alpha1.ReasonInvalid, err.Error())
		return
	}
	setAccepted(next, pol, s.Now, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "StatefulSet "+s.Set.Name+" obeys the policy")
}

func setAccepted(next *v1alpha1.StatefulSetPolicyStatus, pol *v1alpha1.StatefulSetPolicy, now time.Time,
	is metav1.ConditionStatus, reason, message string,
) {
	next.ObservedGeneration = pol.Generation
	meta.SetStatusCondition(&next.Conditions, metav1.Condition{
		Type:               v1alpha1.ConditionAccepted,
		Status:             is,
		ObservedGeneration: pol.Generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Reason:             reason,
		Message:            message,
	})
}

// follow tells how the rollout fares.
func follow(next *v1alpha1.StatefulSetPolicyStatus, s plan.Snapshot, p plan.Plan) {
	r := p.Rollout
	next.Rollout = progress(next.Rollout, r)
	if r.Phase == v1alpha1.RolloutComplete && r.Wanted == p.Span.Count {
		next.CompleteRevision = r.Revision
	}
	switch {
	case !r.Failed:
		next.FailedRevision, next.FailedTime, next.FailedMessage = "", nil, ""
	case next.FailedRevision != r.Revision:
		next.FailedMessage = failure(s, p)
		next.FailedRevision, next.FailedTime = r.Revision, new(metav1.NewTime(s.Now.Truncate(time.Second)))
	}
}

// failure tells why a rollout that has failed did not go on: what the policy remembers of it, or else what is wrong now.
func failure(s plan.Snapshot, p plan.Plan) string {
	for _, pol := range s.Policies {
		if before := pol.Status; before.FailedRevision == p.Rollout.Revision && before.FailedMessage != "" {
			return before.FailedMessage
		}
	}
	text := "no progress for " + policy.Of(s.Policies).Deadline.String()
	for _, pod := range p.Members {
		t := podstate.TroubleOf(pod, s.Now)
		if t != nil && podstate.Revision(pod) == p.Rollout.Revision {
			return text + "; pod " + pod.Name + ": " + shortened(t.Message)
		}
	}
	return text
}

// progress is the status of a rollout, after what it was before.
func progress(before *v1alpha1.RolloutStatus, r plan.Rollout) *v1alpha1.RolloutStatus {
	after := &v1alpha1.RolloutStatus{
		Revision:          r.Revision,
		Phase:             r.Phase,
		Replicas:          int32(r.Wanted),
		AvailableReplicas: int32(r.Available),
		LastProgressTime:  metav1.NewTime(r.Since.Truncate(time.Second)),
	}
	if before == nil || before.Revision != after.Revision {
		return after
	}
	rests := after.Phase == v1alpha1.RolloutPaused || after.Phase == v1alpha1.RolloutComplete
	if rests && before.Phase == after.Phase {
		after.LastProgressTime = before.LastProgressTime
	}
	isSame := before.Replicas == after.Replicas && before.Phase != v1alpha1.RolloutComplete
	if isSame && after.Phase != v1alpha1.RolloutComplete {
		// A pod that comes and goes is no progress.
		after.AvailableReplicas = max(after.AvailableReplicas, before.AvailableReplicas)
	}
	return after
}
