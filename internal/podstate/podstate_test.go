// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func pod(phase corev1.PodPhase, conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: phase, Conditions: conditions}}
}

func ready(ago time.Duration) corev1.PodCondition {
	return corev1.PodCondition{
		Type:               corev1.PodReady,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(-ago)),
	}
}

func TestStates(t *testing.T) {
	unready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	undated := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	type state struct{ created, pending, finished, ready, available bool }
	tests := map[string]struct {
		pod  *corev1.Pod
		want state
	}{
		"only planned":          {pod(""), state{}},
		"pending":               {pod(corev1.PodPending, scheduled), state{created: true, pending: true}},
		"pending, marked ready": {pod(corev1.PodPending, ready(time.Hour)), state{created: true, pending: true}},
		"running":               {pod(corev1.PodRunning, scheduled), state{created: true}},
		"not ready":             {pod(corev1.PodRunning, unready), state{created: true}},
		"just ready":            {pod(corev1.PodRunning, scheduled, ready(0)), state{created: true, ready: true}},
		"ready for too short":   {pod(corev1.PodRunning, ready(9*time.Second)), state{created: true, ready: true}},
		"ready for long enough": {pod(corev1.PodRunning, ready(10*time.Second)), state{created: true, ready: true, available: true}},
		"ready since never":     {pod(corev1.PodRunning, undated), state{created: true, ready: true}},
		"failed":                {pod(corev1.PodFailed, ready(time.Hour)), state{created: true, finished: true}},
		"succeeded":             {pod(corev1.PodSucceeded), state{created: true, finished: true}},
		"unknown":               {pod(corev1.PodUnknown, ready(time.Hour)), state{created: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := state{
				IsCreated(test.pod), IsPending(test.pod), IsFinished(test.pod), IsReady(test.pod), IsAvailable(test.pod, 10, now),
			}
			if got != test.want {
				t.Errorf("state is %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestAvailableWithoutMinimum(t *testing.T) {
	undated := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	if !IsAvailable(pod(corev1.PodRunning, undated), 0, now) {
		t.Error("a ready pod is not available without a minimum")
	}
	if IsAvailable(pod(corev1.PodRunning), 0, now) {
		t.Error("a pod that is not ready is available")
	}
}

func TestServing(t *testing.T) {
	p := pod(corev1.PodRunning, ready(time.Minute))
	if !IsServing(p, 10, now) || IsTerminating(p) {
		t.Error("an available pod does not serve")
	}
	p.DeletionTimestamp = &metav1.Time{Time: now}
	if IsServing(p, 10, now) || !IsTerminating(p) || !IsAvailable(p, 10, now) {
		t.Error("a pod that goes serves, or is no longer available")
	}
}

func TestAvailableAt(t *testing.T) {
	at, ok := AvailableAt(pod(corev1.PodRunning, ready(4*time.Second)), 10)
	if want := now.Add(6 * time.Second); !ok || !at.Equal(want) {
		t.Errorf("available at %v %t, want %v", at, ok, want)
	}
	// The longest minimum that the API takes is within what a duration can hold.
	at, ok = AvailableAt(pod(corev1.PodRunning, ready(0)), 1<<31-1)
	if want := now.Add((1<<31 - 1) * time.Second); !ok || !at.Equal(want) {
		t.Errorf("available at %v %t, want %v", at, ok, want)
	}
	for name, p := range map[string]*corev1.Pod{
		"not ready":   pod(corev1.PodRunning),
		"not running": pod(corev1.PodFailed, ready(time.Hour)),
		"undated":     pod(corev1.PodRunning, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}),
	} {
		if _, ok := AvailableAt(p, 10); ok {
			t.Errorf("%s: a time is told", name)
		}
	}
}

func TestRevision(t *testing.T) {
	p := pod(corev1.PodRunning)
	if Revision(p) != "" {
		t.Error("a pod without labels has a revision")
	}
	p.Labels = map[string]string{appsv1.StatefulSetRevisionLabel: "web-1"}
	if Revision(p) != "web-1" {
		t.Errorf("revision is %q", Revision(p))
	}
}
