// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// Component is the name under which events are recorded. Tools know it from kube-controller-manager.
const Component = "statefulset-controller"

// Manager is the name under which the API server keeps who has written what of an object.
const Manager = "ordinal-controller"

// Reasons of events. The first six are those of kube-controller-manager, on which tools match.
const (
	EventSuccessfulCreate = "SuccessfulCreate"
	EventSuccessfulUpdate = "SuccessfulUpdate"
	EventSuccessfulDelete = "SuccessfulDelete"
	EventFailedCreate     = "FailedCreate"
	EventFailedUpdate     = "FailedUpdate"
	EventFailedDelete     = "FailedDelete"

	EventConflictingController = "ConflictingController"
	EventUnknownStrategy       = "UnknownStrategy"
	EventFailedAdopt           = "FailedAdopt"
	EventFailedRelease         = "FailedRelease"
	EventInvalidSpec           = "InvalidSpec"
	EventPolicyConflict        = "PolicyConflict"
	EventRolloutFailed         = "RolloutFailed"
	EventEvictionBlocked       = "EvictionBlocked"
	// EventOtherController tells, as a warning, that another controller works on the set too, so that ours works on none.
	EventOtherController = "OtherController"
)

// Event is what is recorded about a set.
type Event struct {
	Type, Reason, Message string
}

// verb is how events name an action on a pod or claim.
type verb struct {
	word             string
	success, failure string
}

func verbOf(a plan.Action) (verb, bool) {
	switch a.(type) {
	case plan.CreatePod, plan.CreateClaim, plan.CreateRevision:
		return verb{"Create", EventSuccessfulCreate, EventFailedCreate}, true
	case plan.LabelPod, plan.TellPod, plan.OwnClaim, plan.BumpRevision:
		return verb{"Update", EventSuccessfulUpdate, EventFailedUpdate}, true
	case plan.DeletePod, plan.DeleteRevision:
		return verb{"Delete", EventSuccessfulDelete, EventFailedDelete}, true
	case plan.AdoptPod, plan.AdoptRevision:
		return verb{"Adopt", "", EventFailedAdopt}, true
	case plan.ReleasePod:
		return verb{"Release", "", EventFailedRelease}, true
	}
	return verb{}, false
}

// ForOutcome is the event that tells of an outcome; false when there is nothing to tell a user.
func ForOutcome(set string, o plan.Outcome) (Event, bool) {
	v, ok := verbOf(o.Action)
	if !ok {
		return Event{}, false
	}
	switch o.Result {
	case plan.ResultDone, plan.ResultGone:
		return success(set, v, o.Action)
	case plan.ResultFailed:
		return Event{corev1.EventTypeWarning, v.failure, failure(set, v, o)}, true
	case plan.ResultConflict, plan.ResultCollision, plan.ResultBlocked:
	}
	return Event{}, false
}

func success(set string, v verb, a plan.Action) (Event, bool) {
	name := a.Target().Name
	var text string
	switch a := a.(type) {
	case plan.CreatePod, plan.LabelPod, plan.DeletePod:
		text = fmt.Sprintf("%s Pod %s in StatefulSet %s successful", v.word, name, set)
	case plan.CreateClaim:
		text = fmt.Sprintf("%s Claim %s Pod %s in StatefulSet %s success", v.word, name, a.Pod, set)
	default:
		return Event{}, false
	}
	return Event{corev1.EventTypeNormal, v.success, text}, true
}

func failure(set string, v verb, o plan.Outcome) string {
	name := o.Action.Target().Name
	switch a := o.Action.(type) {
	case plan.CreateClaim:
		return fmt.Sprintf("%s Claim %s for Pod %s in StatefulSet %s failed error: %v", v.word, name, a.Pod, set, o.Err)
	case plan.OwnClaim:
		return fmt.Sprintf("%s Claim %s for Pod %s in StatefulSet %s failed error: %v", v.word, name, a.Pod, set, o.Err)
	case plan.AdoptRevision, plan.CreateRevision, plan.BumpRevision, plan.DeleteRevision:
		return fmt.Sprintf("%s ControllerRevision %s in StatefulSet %s failed error: %v", v.word, name, set, o.Err)
	default:
		return fmt.Sprintf("%s Pod %s in StatefulSet %s failed error: %v", v.word, name, set, o.Err)
	}
}

// ForWait is the event that tells of a wait; false when the wait is nothing unusual.
func ForWait(namespace, set string, w plan.Wait) (Event, bool) {
	if cause := blocker(w); cause != "" {
		text := fmt.Sprintf("Create Pod %s in StatefulSet %s failed error: %s", w.For, set, cause)
		return Event{corev1.EventTypeWarning, EventFailedCreate, text}, true
	}
	switch w.Reason {
	case plan.WaitClaimConflict:
		text := fmt.Sprintf("PersistentVolumeClaim %s has a conflicting OwnerReference that acts as a managing controller, "+
			"the retention policy is ignored for this claim", w.On.Name)
		return Event{corev1.EventTypeWarning, EventConflictingController, text}, true
	case plan.WaitRecreateDisabled:
		text := fmt.Sprintf("statefulset %s/%s uses Recreate strategy but feature gate StatefulSetRecreateStrategy is disabled",
			namespace, set)
		return Event{corev1.EventTypeWarning, EventUnknownStrategy, text}, true
	case plan.WaitBadSelector:
		return Event{corev1.EventTypeWarning, EventInvalidSpec, "the selector cannot be read"}, true
	case plan.WaitBadTemplate:
		return Event{corev1.EventTypeWarning, EventInvalidSpec, "the template cannot be recorded"}, true
	default:
		return forPolicyWait(w)
	}
}

// blocker is why the pod of a wait is not created; empty if that is not what the wait is about.
func blocker(w plan.Wait) string {
	switch w.Reason {
	case plan.WaitClaimTerminating:
		return fmt.Sprintf("pvc %s is being deleted", w.On.Name)
	case plan.WaitClaimStale:
		return fmt.Sprintf("pvc %s will be deleted with the former pod of this name", w.On.Name)
	case plan.WaitClaimShared:
		return fmt.Sprintf("pvc %s belongs to %s, whose claims have the same names", w.On.Name, w.Detail)
	case plan.WaitNameTaken:
		return fmt.Sprintf("pods %q already exists and belongs to another owner or does not match the selector", w.On.Name)
	case plan.WaitBadName:
		return w.Detail
	case plan.WaitBadRevision:
		return fmt.Sprintf("controllerrevisions %q holds no template", w.On.Name)
	default:
		return ""
	}
}

// forPolicyWait is the event that tells of a wait for which a StatefulSetPolicy is the cause.
func forPolicyWait(w plan.Wait) (Event, bool) {
	switch w.Reason {
	case plan.WaitPolicyConflict:
		held := "no pod is replaced or scaled down"
		if w.For != "" {
			held = fmt.Sprintf("Pod %s is not created", w.For)
		}
		return Event{corev1.EventTypeWarning, EventPolicyConflict, "its policies contradict each other or cannot be read: " + held}, true
	case plan.WaitDeadline:
		return Event{corev1.EventTypeWarning, EventRolloutFailed, "the rollout made no progress for too long and is left as it is"}, true
	case plan.WaitRolledBack:
		text := "the rollout failed: pods are brought back, and the template is not tried again until it changes"
		return Event{corev1.EventTypeWarning, EventRolloutFailed, text}, true
	case plan.WaitDisruption:
		text := fmt.Sprintf("Evict Pod %s is held up by a PodDisruptionBudget, and asked for again", w.On.Name)
		return Event{corev1.EventTypeNormal, EventEvictionBlocked, text}, true
	default:
		return Event{}, false
	}
}

// ForDegraded is the event that tells that something new is wrong with a set, as the condition Degraded of those that were
// written says; false when it is nothing new, or when an outcome or a wait has an event for it.
func ForDegraded(set *appsv1.StatefulSet, written []appsv1.StatefulSetCondition, waits []plan.Wait) (Event, bool) {
	before, after := degradedOf(set.Status.Conditions), degradedOf(written)
	if after.Status != corev1.ConditionTrue || after.Reason == status.ReasonFailedCreate {
		return Event{}, false
	}
	if before.Status == after.Status && before.Reason == after.Reason && before.Message == after.Message {
		return Event{}, false
	}
	for _, w := range waits {
		if _, told := ForWait(set.Namespace, set.Name, w); told && string(w.Reason) == after.Reason {
			return Event{}, false
		}
	}
	return Event{corev1.EventTypeWarning, after.Reason, after.Message}, true
}

func degradedOf(conditions []appsv1.StatefulSetCondition) appsv1.StatefulSetCondition {
	for _, c := range conditions {
		if c.Type == status.Degraded {
			return c
		}
	}
	return appsv1.StatefulSetCondition{}
}
