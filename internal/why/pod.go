// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// describe fills in what is the matter with a pod that is not available, or that is on its way out.
func (f *Facts) describe(w *Wait, pod *corev1.Pod) {
	trouble := podstate.TroubleOf(pod, f.Snapshot.Now)
	w.Wrong = trouble != nil
	w.since(unreadySince(pod))
	switch {
	case podstate.IsTerminating(pod):
		f.describeGoing(w, pod)
	case podstate.IsReady(pod):
		w.Message = fmt.Sprintf("is ready, but not yet for %ds (minReadySeconds)", f.Snapshot.Set.Spec.MinReadySeconds)
	case pod.Status.Phase == corev1.PodFailed:
		w.Message = "failed" + after(": ", cmp.Or(pod.Status.Reason, pod.Status.Message))
	case pod.Status.Phase == corev1.PodSucceeded:
		w.Message = "ended, and is made anew"
	case trouble != nil && trouble.Reason == podstate.TroubleUnschedulable:
		f.describeUnschedulable(w, pod)
	default:
		f.describeContainers(w, pod)
	}
}

// unreadySince is since when a pod is not available, or asked to go.
func unreadySince(pod *corev1.Pod) time.Time {
	if podstate.IsTerminating(pod) {
		grace := int64(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = *pod.DeletionGracePeriodSeconds
		}
		return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
	}
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

func (f *Facts) describeGoing(w *Wait, pod *corev1.Pod) {
	w.Message = "is on its way out"
	if pod.Spec.NodeName != "" {
		w.Message += ", on node " + pod.Spec.NodeName
	}
	if len(pod.Finalizers) > 0 {
		w.show("held by its finalizers: " + strings.Join(pod.Finalizers, ", "))
	}
	if !w.Wrong {
		return
	}
	w.show(fmt.Sprintf("the time that it has to end was over %s ago", f.ago(pod.DeletionTimestamp.Time)))
	switch {
	case len(pod.Finalizers) > 0:
		w.do("to see who holds it", f.Tools.kubectl("get pod "+pod.Name+" -o yaml"))
	case pod.Spec.NodeName != "":
		w.do(fmt.Sprintf("only if node %s is off and stays off, as else two pods of one name may run", pod.Spec.NodeName),
			f.Tools.kubectl("delete pod "+pod.Name+" --force --grace-period=0"))
	}
}

func (f *Facts) describeUnschedulable(w *Wait, pod *corev1.Pod) {
	w.Message = "cannot be scheduled"
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			w.show("scheduler: " + c.Message)
			w.since(c.LastTransitionTime.Time)
		}
	}
	w.do("to see what it asks for", f.Tools.kubectl("describe pod "+pod.Name))
	f.describeClaims(w, pod)
}

// describeClaims shows the claims of a pod that have no volume.
func (f *Facts) describeClaims(w *Wait, pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		v := pod.Spec.Volumes[i].PersistentVolumeClaim
		if v == nil {
			continue
		}
		c := f.claim(v.ClaimName)
		if c == nil || c.Status.Phase == corev1.ClaimBound {
			continue
		}
		text := fmt.Sprintf("claim %s is %s", c.Name, strings.ToLower(cmp.Or(string(c.Status.Phase), "Pending")))
		if e := f.newest("PersistentVolumeClaim", c.Name); e != nil {
			text += fmt.Sprintf(": %s (%s, %s)", e.Message, e.Reason, f.times(e))
		}
		w.show(text)
		w.do("to see why it gets no volume", f.Tools.kubectl("describe pvc "+c.Name))
	}
}

func (f *Facts) claim(name string) *corev1.PersistentVolumeClaim {
	i := slices.IndexFunc(f.Snapshot.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return f.Snapshot.Claims[i]
}

// describeContainers shows what its containers wait for, from the first that does.
func (f *Facts) describeContainers(w *Wait, pod *corev1.Pod) {
	w.Message = "starts"
	if pod.Status.Phase == corev1.PodRunning {
		w.Message = "runs and is not ready"
	}
	if s := culprit(pod); s != nil {
		f.describeContainer(w, pod, s)
		return
	}
	f.describeClaims(w, pod)
	f.describeReadiness(w, pod)
	if w.Wrong && w.Command == "" {
		w.do("to see what happened to it", f.Tools.kubectl("describe pod "+pod.Name))
	}
}

// culprit is the first container that keeps a pod from being ready in a way that its status tells; nil if there is none.
func culprit(pod *corev1.Pod) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if s := &statuses[i]; !s.Ready && (isRefused(s) || lastEnd(s) != nil) {
				return s
			}
		}
	}
	return nil
}

// isRefused tells if a container cannot be made.
func isRefused(s *corev1.ContainerStatus) bool {
	w := s.State.Waiting
	return w != nil && !slices.Contains([]string{"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"}, w.Reason)
}

// lastEnd is how a container ended that should run; nil if it never did.
func lastEnd(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if t := s.State.Terminated; t != nil && (t.ExitCode != 0 || s.RestartCount > 0) {
		return t
	}
	return s.LastTerminationState.Terminated
}

// describeContainer shows what is the matter with the container that keeps its pod from being ready.
func (f *Facts) describeContainer(w *Wait, pod *corev1.Pod, s *corev1.ContainerStatus) {
	if !isRefused(s) {
		f.describeCrash(w, pod, s, lastEnd(s))
		return
	}
	waiting := s.State.Waiting
	if t := podstate.TroubleOf(pod, f.Snapshot.Now); t != nil && t.Reason == podstate.TroubleImage {
		w.Message = fmt.Sprintf("container %s cannot get its image %s", s.Name, s.Image)
		w.show(waiting.Reason + after(": ", f.pullError(pod, waiting)))
		f.mendTemplate(w, pod, s.Name)
		return
	}
	w.Message = fmt.Sprintf("container %s cannot be made", s.Name)
	w.show(waiting.Reason + after(": ", waiting.Message))
	w.do("to see what it needs", f.Tools.kubectl("describe pod "+pod.Name))
}

// pullError is why an image cannot be pulled. While the kubelet backs off, only the event tells it.
func (f *Facts) pullError(pod *corev1.Pod, waiting *corev1.ContainerStateWaiting) string {
	if e := f.ofPod(pod, "Failed", "InspectFailed", "ErrImageNeverPull"); e != nil && waiting.Reason == "ImagePullBackOff" &&
		!strings.HasPrefix(e.Message, "Error: ") {
		return e.Message
	}
	return waiting.Message
}

// mendTemplate is for a pod that cannot run as its template is.
func (f *Facts) mendTemplate(w *Wait, pod *corev1.Pod, container string) {
	if f.isRolling() && podstate.Revision(pod) == f.Plan.Revisions.Update {
		w.do("to go back to the template before", f.Tools.ordinal("rollout undo sts/"+f.Snapshot.Set.Name))
		return
	}
	w.do("to give it an image that exists", f.Tools.kubectl(fmt.Sprintf("set image sts/%s %s=IMAGE", f.Snapshot.Set.Name, container)))
}

func (f *Facts) describeCrash(w *Wait, pod *corev1.Pod, s *corev1.ContainerStatus, last *corev1.ContainerStateTerminated) {
	w.Message = fmt.Sprintf("container %s ended with exit code %d", s.Name, last.ExitCode)
	if s.RestartCount > 0 {
		w.Message = fmt.Sprintf("container %s keeps ending, with exit code %d", s.Name, last.ExitCode)
		w.show(fmt.Sprintf("started anew %s, ended last %s ago", plural(int(s.RestartCount), "time"), f.ago(last.FinishedAt.Time)))
	}
	if last.Reason != "" && last.Reason != "Error" {
		w.show(strings.TrimSuffix(last.Reason+": "+last.Message, ": "))
	} else {
		w.show(last.Message)
	}
	w.Log = f.Logs[Container{pod.Name, s.Name}]
	words := fmt.Sprintf("logs %s -c %s", pod.Name, s.Name)
	if s.State.Terminated == nil {
		words += " --previous"
	}
	w.do("to read all that it wrote", f.Tools.kubectl(words))
}

// describeReadiness shows what a pod that runs lacks to be ready.
func (f *Facts) describeReadiness(w *Wait, pod *corev1.Pod) {
	if e := f.ofPod(pod, "Unhealthy"); e != nil {
		w.show(fmt.Sprintf("%s (%s)", e.Message, f.times(e)))
		w.do("to read what it writes", f.Tools.kubectl("logs "+pod.Name))
	}
	for _, gate := range pod.Spec.ReadinessGates {
		met := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		})
		if !met {
			w.show(fmt.Sprintf("its readiness gate %s is not met", gate.ConditionType))
		}
	}
	if e := f.ofPod(pod, "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedPostStartHook"); e != nil {
		w.show(fmt.Sprintf("%s: %s (%s)", e.Reason, e.Message, f.times(e)))
	}
}

// after puts something between nothing and a text that is not empty.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
