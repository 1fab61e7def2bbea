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
	// TroubleUnschedulable means that a pod finds no node; the message is the scheduler's.
	TroubleUnschedulable = "Unschedulable"
	// TroubleImage means that a container cannot get its image.
	TroubleImage = "ImagePull"
	// TroubleCrash means that a container keeps ending.
	TroubleCrash = "CrashLoop"
	// TroubleConfig means that a container cannot be made, because a ConfigMap or a Secret is missing for example.
	TroubleConfig = "BadConfig"
	// TroubleNotReady means that a pod has not become ready within a minute.
	TroubleNotReady = "NotReady"
	// TroubleTerminating means that a pod is still there a minute after the time that it had to end.
	TroubleTerminating = "Terminating"
	// TroubleFailed means that a pod ended.
	TroubleFailed = "Failed"
)

// TroubleOf tells what is wrong with the pod; nil if nothing is, or not yet.
func TroubleOf(pod *corev1.Pod, now time.Time) *Trouble {
	switch {
	case IsTerminating(pod):
		return lingering(pod, now)
	case IsReady(pod):
		return nil
	case pod.Status.Phase == corev1.PodFailed:
		return failed(pod)
	}
	isDue := !TroubleAt(pod).IsZero() && !TroubleAt(pod).After(now)
	if c := unschedulable(pod); c != nil {
		if !isDue {
			return nil
		}
		return &Trouble{TroubleUnschedulable, "it cannot be scheduled: " + c.Message}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := containerTrouble(s, now); t != nil {
			return t
		}
	}
	if isDue {
		return &Trouble{TroubleNotReady, "it is not ready"}
	}
	return nil
}

func failed(pod *corev1.Pod) *Trouble {
	text := "it failed"
	if pod.Status.Reason != "" {
		text += ": " + pod.Status.Reason
	}
	return &Trouble{TroubleFailed, text}
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
	since := UnreadySince(pod)
	if since.IsZero() {
		return time.Time{}
	}
	return since.Add(Patience)
}

// UnreadySince is when a pod that is not ready was made, or ready for the last time; zero if that is not known.
func UnreadySince(pod *corev1.Pod) time.Time {
	since := pod.CreationTimestamp.Time
	if c := conditionOf(pod, corev1.PodReady); c != nil && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return since
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
	return slices.Contains([]string{
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError",
		"PostStartHookError",
	}, reason)
}

// memorable is how long the end of a container is a sign that it keeps ending.
const memorable = 10 * time.Minute

func containerTrouble(s corev1.ContainerStatus, now time.Time) *Trouble {
	switch w := s.State.Waiting; {
	case s.Ready:
		return nil
	case w != nil && IsImageReason(w.Reason):
		return &Trouble{TroubleImage, fmt.Sprintf("container %s cannot get its image %s", s.Name, s.Image)}
	case w != nil && IsConfigReason(w.Reason):
		return &Trouble{TroubleConfig, fmt.Sprintf("container %s cannot be made: %s", s.Name, cmp.Or(w.Message, w.Reason))}
	case !keepsEnding(s, now):
		return nil
	}
	text := fmt.Sprintf("container %s keeps ending", s.Name)
	if last := lastEnd(s); last != nil {
		text += fmt.Sprintf(", with exit code %d", last.ExitCode)
	}
	return &Trouble{TroubleCrash, text}
}

// keepsEnding tells if a container ended more than once, and not long ago. One restart is nothing: the node may have been
// restarted.
func keepsEnding(s corev1.ContainerStatus, now time.Time) bool {
	if last := lastEnd(s); last != nil && !last.FinishedAt.IsZero() && now.Sub(last.FinishedAt.Time) > memorable {
		return false
	}
	isHeldBack := s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	return s.RestartCount >= 2 || isHeldBack
}

func lastEnd(s corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	return cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
