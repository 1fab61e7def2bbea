// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podstate tells the state of one pod at one instant. All functions are pure; a nil pod is never passed.
package podstate

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// IsCreated tells if the API server holds the pod.
func IsCreated(pod *corev1.Pod) bool {
	return pod.Status.Phase != ""
}

// IsPending tells if the pod does not run yet.
func IsPending(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodPending
}

// IsFinished tells if the pod ended, in success or failure, and will never run again. A stateful pod is replaced in
// both cases: a pod that its node stopped ends by its container's exit code, not by the reason for the stop.
func IsFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// IsTerminating tells if the pod is asked to go.
func IsTerminating(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil
}

// IsReady tells if the pod runs and is ready.
func IsReady(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && readyCondition(pod) != nil
}

// IsAvailable tells if the pod runs and has been ready for minReadySeconds.
func IsAvailable(pod *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	if !IsReady(pod) {
		return false
	}
	if minReadySeconds == 0 {
		return true
	}
	at, ok := AvailableAt(pod, minReadySeconds)
	return ok && !at.After(now)
}

// IsServing tells if the pod is available and is not asked to go.
func IsServing(pod *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	return IsAvailable(pod, minReadySeconds, now) && !IsTerminating(pod)
}

// AvailableAt is when a ready pod becomes available if it stays ready; false when no time can be told.
func AvailableAt(pod *corev1.Pod, minReadySeconds int32) (time.Time, bool) {
	c := readyCondition(pod)
	if c == nil || pod.Status.Phase != corev1.PodRunning || c.LastTransitionTime.IsZero() {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second), true
}

// Revision is the name of the revision that the pod was made from; empty when it carries none.
func Revision(pod *corev1.Pod) string {
	return pod.Labels[appsv1.StatefulSetRevisionLabel]
}

func readyCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodReady {
			if c.Status == corev1.ConditionTrue {
				return c
			}
			return nil
		}
	}
	return nil
}
