// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// Component is the name under which events are recorded. Tools know it from kube-controller-manager.
const Component = "statefulset-controller"

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
	case plan.LabelPod, plan.OwnClaim, plan.BumpRevision:
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
	case plan.ResultConflict, plan.ResultCollision:
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
	blocked := func(cause string) (Event, bool) {
		text := fmt.Sprintf("Create Pod %s in StatefulSet %s failed error: %s", w.For, set, cause)
		return Event{corev1.EventTypeWarning, EventFailedCreate, text}, true
	}
	switch w.Reason {
	case plan.WaitClaimTerminating:
		return blocked(fmt.Sprintf("pvc %s is being deleted", w.On.Name))
	case plan.WaitClaimStale:
		return blocked(fmt.Sprintf("pvc %s will be deleted with the former pod of this name", w.On.Name))
	case plan.WaitNameTaken:
		return blocked(fmt.Sprintf("pods %q already exists and belongs to another owner or does not match the selector", w.On.Name))
	case plan.WaitBadRevision:
		return blocked(fmt.Sprintf("controllerrevisions %q holds no template", w.On.Name))
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
		return Event{}, false
	}
}
