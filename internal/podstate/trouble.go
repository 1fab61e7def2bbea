// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Patience is how long a pod may be neither ready nor in visible trouble, and how long it may outlive its grace, until that
// is trouble.
const Patience = time.Minute

// schedulingPatience is how long a pod may be unschedulable until that is trouble. A claim that is about to be bound makes it
// so for a moment.
const schedulingPatience = 10 * time.Second

// Trouble is what keeps a pod from being ready or from going.
type Trouble struct {
	// Reason is one of the constants below.
	Reason string
	// Message tells it in words, without the pod's name. It is the same from one moment to the next while the trouble lasts.
	Message string
}

// Reasons of trouble.
const (
	TroubleUnschedulable = "Unschedulable"
	TroubleImage         = "ImagePull"
	TroubleCrash         = "CrashLoop"
	TroubleConfig        = "BadConfig"
	TroubleNotReady      = "NotReady"
	TroubleTerminating   = "Terminating"
	TroubleFailed        = "Failed"
)

// TroubleOf tells what is wrong with the pod; nil if nothing is, or not yet.
func TroubleOf(pod *corev1.Pod, now time.Time) *Trouble {
	if IsTerminating(pod) {
		return lingering(pod, now)
	}
	if IsReady(pod) {
		return nil
	}
	if pod.Status.Phase == corev1.PodFailed {
		text := "it failed"
		if pod.Status.Reason != "" {
			text += ": " + pod.Status.Reason
		}
		return &Trouble{TroubleFailed, text}
	}
	if c := unschedulable(pod); c != nil {
		if TroubleAt(pod).After(now) {
			return nil
		}
		return &Trouble{TroubleUnschedulable, "it cannot be scheduled: " + c.Message}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if t := containerTrouble(&statuses[i], now); t != nil {
				return t
			}
		}
	}
	if at := TroubleAt(pod); !at.IsZero() && !at.After(now) {
		return &Trouble{TroubleNotReady, "it is not ready"}
	}
	return nil
}

// TroubleAt is when a pod that is as it is now will be in trouble for being so; zero for never.
func TroubleAt(pod *corev1.Pod) time.Time {
	switch {
	case IsTerminating(pod):
		return pod.DeletionTimestamp.Add(Patience)
	case IsReady(pod) || IsFinished(pod):
		return time.Time{}
	}
	if c := unschedulable(pod); c != nil {
		return c.LastTransitionTime.Add(schedulingPatience)
	}
	since := pod.CreationTimestamp.Time
	if c := conditionOf(pod, corev1.PodReady); c != nil && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	if since.IsZero() {
		return time.Time{}
	}
	return since.Add(Patience)
}

func unschedulable(pod *corev1.Pod) *corev1.PodCondition {
	c := conditionOf(pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		return nil
	}
	return c
}

func lingering(pod *corev1.Pod, now time.Time) *Trouble {
	if TroubleAt(pod).After(now) {
		return nil
	}
	text := "it should be gone since " + pod.DeletionTimestamp.UTC().Format(time.RFC3339)
	if pod.Spec.NodeName != "" {
		text += "; its node " + pod.Spec.NodeName + " may be down"
	}
	return &Trouble{TroubleTerminating, text}
}

// IsImageReason tells if a container that waits for this reason cannot get its image.
func IsImageReason(reason string) bool {
	return slices.Contains([]string{
		"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
		"SignatureValidationFailed",
	}, reason)
}

// IsConfigReason tells if a container that waits for this reason cannot be made as its spec and the node are.
func IsConfigReason(reason string) bool {
	return slices.Contains([]string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
		"PreStartHookError", "PostStartHookError"}, reason)
}

// memorable is how long the end of a container is a sign that it keeps ending.
const memorable = 10 * time.Minute

func containerTrouble(s *corev1.ContainerStatus, now time.Time) *Trouble {
	if s.Ready || (s.State.Terminated != nil && s.State.Terminated.ExitCode == 0 && s.RestartCount == 0) {
		return nil
	}
	if w := s.State.Waiting; w != nil {
		switch {
		case IsImageReason(w.Reason):
			return &Trouble{TroubleImage, fmt.Sprintf("container %s cannot get its image %s", s.Name, s.Image)}
		case IsConfigReason(w.Reason):
			return &Trouble{TroubleConfig, fmt.Sprintf("container %s cannot be made: %s", s.Name, cmp.Or(w.Message, w.Reason))}
		}
	}
	isHeldBack := s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	last := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	if last != nil && !last.FinishedAt.IsZero() && now.Sub(last.FinishedAt.Time) > memorable {
		return nil
	}
	// One restart is nothing: the node may have been restarted.
	if s.RestartCount < 2 && !isHeldBack {
		return nil
	}
	if last == nil {
		return &Trouble{TroubleCrash, fmt.Sprintf("container %s keeps ending", s.Name)}
	}
	return &Trouble{TroubleCrash, fmt.Sprintf("container %s keeps ending, with exit code %d", s.Name, last.ExitCode)}
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
