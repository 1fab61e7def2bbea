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

	// spec is what is wanted.
	Spec StatefulSetPolicySpec `json:"spec"`
	// status is what was seen last, written by the controller.
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
	// apiVersion is that of the target.
	// +optional
	// +kubebuilder:default="apps/v1"
	// +kubebuilder:validation:Enum=apps/v1
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is that of the target.
	// +optional
	// +kubebuilder:default=StatefulSet
	// +kubebuilder:validation:Enum=StatefulSet
	Kind string `json:"kind,omitempty"`
	// name is the name of the StatefulSet.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
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
// +kubebuilder:validation:XValidation:rule="!has(self.onDeadline) || self.onDeadline != 'RollBack' || has(self.progressDeadlineSeconds)",message="onDeadline RollBack needs progressDeadlineSeconds"
// +kubebuilder:validation:XValidation:rule="(has(self.order) && self.order == 'LeaderLast') == has(self.leaderSelector)",message="leaderSelector goes with order LeaderLast, and LeaderLast needs it"
type RolloutPolicy struct {
	// progressDeadlineSeconds is how long a rollout may make no progress until it counts as failed. Each pod that becomes
	// available at the new revision is progress. The time in which the rollout is paused does not count. Without it, a rollout
	// may take for ever.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// onDeadline says what becomes of a rollout that failed. Hold (the default) replaces no more pods. RollBack brings the pods
	// back to the last revision that was rolled out to its end; the StatefulSet's spec stays as it is, and is tried again when
	// its template changes, or when the annotation ordinal.dev/retry-at is set (ordinal rollout retry).
	// +optional
	OnDeadline OnDeadline `json:"onDeadline,omitempty"`
	// paused lets no pod be replaced because of the template. Pods that come back have the current revision.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// pauseAfter holds up the rollout after each batch of pods.
	// +optional
	PauseAfter *PauseAfter `json:"pauseAfter,omitempty"`
	// order is the order in which pods are replaced: HighestFirst (the default) or LeaderLast.
	// +optional
	Order Order `json:"order,omitempty"`
	// leaderSelector matches the labels of the pods that LeaderLast takes last. It is read anew for each decision, as a leader
	// may move.
	// +optional
	LeaderSelector *metav1.LabelSelector `json:"leaderSelector,omitempty"`
	// disruption is how pods are removed: Delete (the default), or Evict, so that PodDisruptionBudgets hold.
	// +optional
	Disruption Disruption `json:"disruption,omitempty"`
}

// PauseAfter holds up a rollout after each batch of pods.
//
// +kubebuilder:validation:XValidation:rule="has(self.ordinals) != has(self.percent)",message="exactly one of ordinals and percent is needed"
type PauseAfter struct {
	// ordinals is how many pods a batch has.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Ordinals *int32 `json:"ordinals,omitempty"`
	// percent is how many pods a batch has, as a share of the StatefulSet's replicas, rounded up.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`
	// seconds is how long all pods of the batch have to be available before the next begins. Without it, the next begins when
	// the annotation ordinal.dev/resume-at is set (ordinal rollout resume).
	// +optional
	// +kubebuilder:validation:Minimum=1
	Seconds *int32 `json:"seconds,omitempty"`
}

// ScalingPolicy says which ordinals run, and how pods go when the StatefulSet is scaled down.
type ScalingPolicy struct {
	// reservedOrdinals never run: numbers such as 3, and ranges such as "5-7". replicas counts those that run, so the next
	// higher ordinals take their place, before a pod that is reserved now is removed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:XIntOrString
	// +kubebuilder:validation:items:Pattern="^[0-9]{1,9}(-[0-9]{1,9})?$"
	ReservedOrdinals []intstr.IntOrString `json:"reservedOrdinals,omitempty"`
	// scaleDown says how pods go.
	// +optional
	ScaleDown *ScaleDown `json:"scaleDown,omitempty"`
}

// ScaleDown says how pods go.
type ScaleDown struct {
	// drainSeconds is how long a pod that is scaled away is told so (by the annotation ordinal.dev/stop-reason) before it is
	// deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DrainSeconds int32 `json:"drainSeconds,omitempty"`
	// reasonAnnotation tells each pod that the controller removes why, by the annotation ordinal.dev/stop-reason: ScaleDown,
	// Update, Failed or Succeeded. With drainSeconds, pods that are scaled away are told anyway.
	// +optional
	ReasonAnnotation bool `json:"reasonAnnotation,omitempty"`
}

// Annotations.
const (
	// StopReasonAnnotation tells a pod why it is about to be removed.
	StopReasonAnnotation = "ordinal.dev/stop-reason"
	// StopAtAnnotation tells a pod when it will be removed at the earliest, in RFC 3339.
	StopAtAnnotation = "ordinal.dev/stop-at"
	// RetryAtAnnotation on a policy lets a revision that failed before that time (RFC 3339) be tried again.
	RetryAtAnnotation = "ordinal.dev/retry-at"
	// ResumeAtAnnotation on a policy ends the pauses between batches that began before that time (RFC 3339).
	ResumeAtAnnotation = "ordinal.dev/resume-at"
)

// StatefulSetPolicyStatus is what was seen last.
type StatefulSetPolicyStatus struct {
	// observedGeneration is the generation of the policy that was seen last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions tell whether the policy is obeyed (Accepted).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// rollout is how the newest rollout fares.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// failedRevision is the revision whose rollout failed last. It is not tried again while it is named here.
	// +optional
	FailedRevision string `json:"failedRevision,omitempty"`
	// failedTime is when it failed.
	// +optional
	FailedTime *metav1.Time `json:"failedTime,omitempty"`
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
	// revision is what is rolled out.
	Revision string `json:"revision"`
	// phase is how it fares.
	Phase RolloutPhase `json:"phase"`
	// availableReplicas is how many pods of the revision are available.
	AvailableReplicas int32 `json:"availableReplicas"`
	// lastProgressTime is when the rollout began, went on after a pause, or when the last of its pods became available.
	LastProgressTime metav1.Time `json:"lastProgressTime"`
}

// Reasons of the condition Accepted.
const (
	// ConditionAccepted tells whether a policy is obeyed.
	ConditionAccepted = "Accepted"
	// ReasonAccepted is why it is.
	ReasonAccepted = "Accepted"
	// ReasonTargetNotFound is why it is not: there is no such StatefulSet.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonConflict is why it is not: another policy names the StatefulSet too.
	ReasonConflict = "Conflict"
	// ReasonInvalid is why it is not: the API server let something pass that cannot be obeyed.
	ReasonInvalid = "Invalid"
)
