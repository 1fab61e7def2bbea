// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// StatefulSetPolicy says how one StatefulSet of its namespace is rolled out and scaled. The StatefulSet itself stays plain
// apps/v1. Without a policy, a StatefulSet behaves as one with an empty policy.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=stspolicy,categories=all
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRef.name`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.rollout.paused`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.rollout.revision`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.rollout.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StatefulSetPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is how the StatefulSet is to be rolled out and scaled.
	Spec StatefulSetPolicySpec `json:"spec"`
	// status is what the controller saw last. Nobody else writes it.
	// +optional
	Status StatefulSetPolicyStatus `json:"status,omitempty"`
}

// StatefulSetPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type StatefulSetPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []StatefulSetPolicy `json:"items"`
}

// StatefulSetPolicySpec is what a policy asks for.
type StatefulSetPolicySpec struct {
	// targetRef names the StatefulSet. Two policies for one StatefulSet hold up its rollouts and its scaling down until one
	// of them is gone.
	// +structType=atomic
	TargetRef TargetRef `json:"targetRef"`
	// rollout says how pods are replaced when the StatefulSet's template changes.
	// +optional
	Rollout *RolloutPolicy `json:"rollout,omitempty"`
	// scaling says which ordinals run, and how pods go when the StatefulSet is scaled down.
	// +optional
	Scaling *ScalingPolicy `json:"scaling,omitempty"`
}

// TargetRef names a StatefulSet in the policy's own namespace.
type TargetRef struct {
	// apiVersion is the API version of the target: apps/v1.
	// +optional
	// +kubebuilder:default="apps/v1"
	// +kubebuilder:validation:Enum=apps/v1
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is the kind of the target: StatefulSet.
	// +optional
	// +kubebuilder:default=StatefulSet
	// +kubebuilder:validation:Enum=StatefulSet
	Kind string `json:"kind,omitempty"`
	// name is the name of the StatefulSet, which need not exist yet.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a StatefulSet of this namespace, without its kind: web, not statefulset/web"
	Name string `json:"name"`
}

// OnDeadline says what becomes of a rollout that makes no progress.
//
// +kubebuilder:validation:Enum=Hold;RollBack
type OnDeadline string

// What becomes of a rollout that makes no progress.
const (
	// Hold leaves all pods as they are.
	Hold OnDeadline = "Hold"
	// RollBack brings the pods back to the last revision that was rolled out to its end.
	RollBack OnDeadline = "RollBack"
)

// Order is the order in which a rollout takes pods.
//
// +kubebuilder:validation:Enum=HighestFirst;LeaderLast
type Order string

// Orders of a rollout.
const (
	// HighestFirst takes the highest ordinal first.
	HighestFirst Order = "HighestFirst"
	// LeaderLast takes the pods that leaderSelector matches last, and the others from the highest ordinal down.
	LeaderLast Order = "LeaderLast"
)

// Disruption is how a rollout removes a pod.
//
// +kubebuilder:validation:Enum=Delete;Evict
type Disruption string

// How a rollout removes a pod.
const (
	// Delete deletes it, as StatefulSets do.
	Delete Disruption = "Delete"
	// Evict asks for its eviction, which PodDisruptionBudgets may hold up.
	Evict Disruption = "Evict"
)

// RolloutPolicy says how pods are replaced when the template changes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.onDeadline) || self.onDeadline != 'RollBack' || has(self.progressDeadlineSeconds)",fieldPath=".progressDeadlineSeconds",reason=FieldValueRequired,message="onDeadline RollBack needs a deadline: say after how many seconds without progress a rollout has failed"
// +kubebuilder:validation:XValidation:rule="!has(self.order) || self.order != 'LeaderLast' || has(self.leaderSelector)",fieldPath=".leaderSelector",reason=FieldValueRequired,message="order LeaderLast needs a selector: give labels that only the leading pod has"
// +kubebuilder:validation:XValidation:rule="!has(self.leaderSelector) || (has(self.order) && self.order == 'LeaderLast')",fieldPath=".order",message="leaderSelector is obeyed by no other order than LeaderLast: set that order, or leave out leaderSelector"
type RolloutPolicy struct {
	// progressDeadlineSeconds is after how many seconds without progress a rollout has failed. It is progress when a pod becomes
	// available at the new revision, so choose more than one pod takes to stop, to start, and to be ready for the StatefulSet's
	// minReadySeconds. While the rollout is paused, no time counts. Without a deadline, a rollout never fails.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// onDeadline is what becomes of a rollout that has failed. Hold replaces no more pods. RollBack brings the pods back to the
	// last revision that was rolled out to its end; the StatefulSet's spec is not written, and its template is tried again
	// when it changes, or when the annotation ordinal.dev/retry-at of the policy says so (ordinal rollout retry).
	// +optional
	// +kubebuilder:default=Hold
	OnDeadline OnDeadline `json:"onDeadline,omitempty"`
	// paused lets no pod be replaced because the template has changed. A pod that comes back meanwhile comes back at the
	// revision from before the rollout.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// pauseAfter makes a rollout go in batches of pods, with a pause after each. Pods that are not ready are replaced whatever
	// the batch is. Without it, there are no pauses.
	// +optional
	// +structType=atomic
	PauseAfter *PauseAfter `json:"pauseAfter,omitempty"`
	// order is the order in which pods are replaced. HighestFirst begins with the highest ordinal. LeaderLast does too, but
	// takes the pods that leaderSelector matches last.
	// +optional
	// +kubebuilder:default=HighestFirst
	Order Order `json:"order,omitempty"`
	// leaderSelector matches the labels of the pods that the order LeaderLast takes last, once all others are available at the
	// new revision. It is matched anew before each pod, as the leader may change meanwhile.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="must have matchLabels or matchExpressions: an empty selector matches every pod"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",fieldPath=".matchExpressions",message="must have operators out of In, NotIn, Exists and DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",fieldPath=".matchExpressions",message="must have values with the operators In and NotIn, and none with Exists and DoesNotExist"
	LeaderSelector *metav1.LabelSelector `json:"leaderSelector,omitempty"`
	// disruption is how a rollout removes pods. Delete deletes them. Evict asks for their eviction, which waits while a
	// PodDisruptionBudget forbids it. Pods that are scaled away are deleted either way.
	// +optional
	// +kubebuilder:default=Delete
	Disruption Disruption `json:"disruption,omitempty"`
}

// PauseAfter holds up a rollout after each batch of pods.
//
// +kubebuilder:validation:XValidation:rule="has(self.ordinals) || has(self.percent)",message="must say how many pods a batch has: give ordinals or percent"
// +kubebuilder:validation:XValidation:rule="!has(self.ordinals) || !has(self.percent)",message="must not have both ordinals and percent: leave out one"
type PauseAfter struct {
	// ordinals is how many pods a batch has. Either this or percent is given.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Ordinals *int32 `json:"ordinals,omitempty"`
	// percent is how many pods a batch has, as a share of the StatefulSet's replicas, rounded up. Either this or ordinals is
	// given.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`
	// seconds is for how long all pods of a batch have to be available before the next batch begins by itself. Without it, each
	// batch waits until the annotation ordinal.dev/resume-at of the policy lets it begin (ordinal rollout resume).
	// +optional
	// +kubebuilder:validation:Minimum=1
	Seconds *int32 `json:"seconds,omitempty"`
}

// ScalingPolicy says which ordinals run, and how pods go when the StatefulSet is scaled down.
type ScalingPolicy struct {
	// reservedOrdinals never run: numbers such as 3, and ranges such as "5-7". The StatefulSet's replicas count only ordinals
	// that run, so the next higher ones take the place of those that are reserved. In order (OrderedReady), they have their
	// pods before a pod whose ordinal has become reserved is removed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:XIntOrString
	// +kubebuilder:validation:items:MaxLength=19
	// +kubebuilder:validation:items:XValidation:rule="type(self) == string ? self.matches('^(0|[1-9][0-9]{0,8})(-(0|[1-9][0-9]{0,8}))?$') : (type(self) == int && self >= 0 && self <= 999999999)",message="must be an ordinal such as 3, or a range of ordinals such as \"5-7\""
	// +kubebuilder:validation:items:XValidation:rule="type(self) != string || !self.matches('^[0-9]{1,9}-[0-9]{1,9}$') || int(self.split('-')[0]) <= int(self.split('-')[1])",message="must have its lower end first: \"5-7\", not \"7-5\""
	ReservedOrdinals []intstr.IntOrString `json:"reservedOrdinals,omitempty"`
	// scaleDown says how pods go that are scaled away, or whose ordinal has become reserved.
	// +optional
	ScaleDown *ScaleDown `json:"scaleDown,omitempty"`
}

// ScaleDown says how pods go that are scaled away.
type ScaleDown struct {
	// drainSeconds is how many seconds before its deletion a pod that is scaled away is told so, by the annotations
	// ordinal.dev/stop-reason and ordinal.dev/stop-at. 0 (the default) deletes it at once.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DrainSeconds int32 `json:"drainSeconds,omitempty"`
	// reasonAnnotation tells each pod that is scaled away, or replaced by a rollout, so just before: the annotation
	// ordinal.dev/stop-reason is ScaleDown or Update. With drainSeconds, pods that are scaled away are told anyway.
	// +optional
	ReasonAnnotation bool `json:"reasonAnnotation,omitempty"`
}

// Annotations.
const (
	// StopReasonAnnotation tells a pod why it is about to be removed.
	StopReasonAnnotation = "ordinal.dev/stop-reason"
	// StopAtAnnotation tells a pod when it will be removed at the earliest, in RFC 3339.
	StopAtAnnotation = "ordinal.dev/stop-at"
	// RetryAtAnnotation lets, on a policy, a revision that failed before that time (RFC 3339) be tried again.
	RetryAtAnnotation = "ordinal.dev/retry-at"
	// ResumeAtAnnotation ends, on a policy, the pauses between batches that began before that time (RFC 3339).
	ResumeAtAnnotation = "ordinal.dev/resume-at"
)

// Why a pod is removed.
const (
	// StopScaleDown means that the StatefulSet is scaled below it, or its ordinal is reserved.
	StopScaleDown = "ScaleDown"
	// StopUpdate means that it will come back with another revision.
	StopUpdate = "Update"
)

// StatefulSetPolicyStatus is what the controller saw last.
type StatefulSetPolicyStatus struct {
	// observedGeneration is the generation of the policy that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions tell whether the policy is obeyed (type Accepted), and if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// rollout is how the rollout of the StatefulSet's template fares.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// completeRevision is the revision that was rolled out to its end last. It is what a rollout is brought back to.
	// +optional
	CompleteRevision string `json:"completeRevision,omitempty"`
	// failedRevision is the revision whose rollout failed last and was brought back. While it is named here and the StatefulSet
	// has its template, it is not rolled out again.
	// +optional
	FailedRevision string `json:"failedRevision,omitempty"`
	// failedTime is when that rollout failed. An annotation ordinal.dev/retry-at that is not earlier lets it be tried again.
	// +optional
	FailedTime *metav1.Time `json:"failedTime,omitempty"`
	// failedMessage is what kept it from going on when it failed.
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
}

// RolloutPhase is how a rollout fares.
type RolloutPhase string

// Phases of a rollout.
const (
	// RolloutProgressing means that pods are being replaced, or wait to be.
	RolloutProgressing RolloutPhase = "Progressing"
	// RolloutPaused means that it is paused, by spec.rollout.paused or between batches.
	RolloutPaused RolloutPhase = "Paused"
	// RolloutHeld means that it made no progress for too long and is left as it is.
	RolloutHeld RolloutPhase = "Held"
	// RolloutRollingBack means that it failed and its pods are brought back.
	RolloutRollingBack RolloutPhase = "RollingBack"
	// RolloutRolledBack means that it failed and its pods are back.
	RolloutRolledBack RolloutPhase = "RolledBack"
	// RolloutComplete means that all pods that it may take have the revision and are available.
	RolloutComplete RolloutPhase = "Complete"
)

// RolloutStatus is how a rollout fares.
type RolloutStatus struct {
	// revision is the name of the ControllerRevision of the StatefulSet's template.
	Revision string `json:"revision"`
	// phase is how its rollout fares: Progressing, Paused (by spec.rollout.paused, or between batches), Held (the deadline has
	// passed, and the pods stay as they are), RollingBack, RolledBack, or Complete.
	Phase RolloutPhase `json:"phase"`
	// replicas is how many pods are to have the revision: those that the partition does not keep.
	Replicas int32 `json:"replicas"`
	// availableReplicas is how many of them have it and are available; until the rollout is complete, the most that were so far.
	AvailableReplicas int32 `json:"availableReplicas"`
	// lastProgressTime is when the rollout began, went on after a pause, or made a pod available last. The deadline counts from
	// then.
	LastProgressTime metav1.Time `json:"lastProgressTime"`
}

// Reasons of the condition Accepted.
const (
	// ConditionAccepted tells whether a policy is obeyed.
	ConditionAccepted = "Accepted"
	// ReasonAccepted means that the policy is obeyed.
	ReasonAccepted = "Accepted"
	// ReasonTargetNotFound means that there is no such StatefulSet.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonConflict means that it is not obeyed, as another policy names the StatefulSet too.
	ReasonConflict = "Conflict"
	// ReasonInvalid means that it is not obeyed, as the API server let something pass that cannot be obeyed.
	ReasonInvalid = "Invalid"
)
