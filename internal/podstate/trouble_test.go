// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func at(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }

// young is a pod that runs since a moment, is not ready, and has one container like this.
func young(s corev1.ContainerStatus) *corev1.Pod {
	p := pod(corev1.PodRunning)
	p.CreationTimestamp = at(time.Second)
	s.Name, s.Image = "main", "one"
	p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	return p
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func ended(code int32, ago time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: at(ago)}}
}

// unschedulablePod is one that could not be scheduled for so long.
func unschedulablePod(ago time.Duration, reason string) *corev1.Pod {
	p := pod(corev1.PodPending, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: "no node fits", LastTransitionTime: at(ago),
	})
	p.CreationTimestamp = at(ago)
	return p
}

// goingPod should have been gone so long ago.
func goingPod(ago time.Duration, node string) *corev1.Pod {
	p := pod(corev1.PodRunning, ready(time.Hour))
	p.DeletionTimestamp = new(at(ago))
	p.Spec.NodeName = node
	return p
}

// oldPod is not ready, and was created so long ago.
func oldPod(ago time.Duration, conditions ...corev1.PodCondition) *corev1.Pod {
	p := pod(corev1.PodPending, conditions...)
	p.CreationTimestamp = at(ago)
	return p
}

func TestTrouble(t *testing.T) {
	unreadySince := func(ago time.Duration) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(ago)}
	}
	evicted := pod(corev1.PodFailed)
	evicted.Status.Reason = "Evicted"
	readyButCrashed := young(corev1.ContainerStatus{RestartCount: 9, Ready: true})
	readyButCrashed.Status.Conditions = []corev1.PodCondition{ready(0)}
	readyButOneIsNot := young(corev1.ContainerStatus{RestartCount: 9})
	readyButOneIsNot.Status.Conditions = []corev1.PodCondition{ready(0)}
	undatedEnd := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 5}}
	initCrash := young(corev1.ContainerStatus{})
	initCrash.Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "done", State: ended(0, time.Minute)},
		{Name: "prepare", RestartCount: 3, State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended(7, time.Minute)},
	}
	tests := map[string]struct {
		pod             *corev1.Pod
		reason, message string
	}{
		"ready":               {pod(corev1.PodRunning, ready(0)), "", ""},
		"ready after crashes": {readyButCrashed, "", ""},
		"ready but for a container": {
			readyButOneIsNot, "", "",
		},
		"succeeded":              {pod(corev1.PodSucceeded), "", ""},
		"failed":                 {pod(corev1.PodFailed), TroubleFailed, "it failed"},
		"evicted":                {evicted, TroubleFailed, "it failed: Evicted"},
		"undated":                {pod(corev1.PodPending), "", ""},
		"new":                    {oldPod(Patience - time.Second), "", ""},
		"not ready for too long": {oldPod(Patience), TroubleNotReady, "it is not ready"},
		"old, unready for a moment": {
			oldPod(time.Hour, unreadySince(Patience-time.Second)), "", "",
		},
		"old, unready for long": {oldPod(time.Hour, unreadySince(Patience)), TroubleNotReady, "it is not ready"},

		"not scheduled for a moment": {unschedulablePod(9*time.Second, "Unschedulable"), "", ""},
		"not scheduled": {
			unschedulablePod(10*time.Second, "Unschedulable"), TroubleUnschedulable, "it cannot be scheduled: no node fits",
		},
		"gated": {unschedulablePod(20*time.Second, "SchedulingGated"), "", ""},

		"going":              {goingPod(Patience-time.Second, "n"), "", ""},
		"going for too long": {goingPod(Patience, "n"), TroubleTerminating, "it should be gone since 2025-12-31T23:59:00Z; its node n may be down"},
		"going, never bound": {goingPod(Patience, ""), TroubleTerminating, "it should be gone since 2025-12-31T23:59:00Z"},

		"no image": {
			young(corev1.ContainerStatus{State: waiting("ImagePullBackOff", "Back-off 5m")}), TroubleImage,
			"container main cannot get its image one",
		},
		"no config": {
			young(corev1.ContainerStatus{State: waiting("CreateContainerConfigError", `secret "s" not found`)}), TroubleConfig,
			`container main cannot be made: secret "s" not found`,
		},
		"no config, unexplained": {
			young(corev1.ContainerStatus{State: waiting("RunContainerError", "")}), TroubleConfig,
			"container main cannot be made: RunContainerError",
		},
		"being made": {young(corev1.ContainerStatus{State: waiting("ContainerCreating", "")}), "", ""},

		"restarted once": {young(corev1.ContainerStatus{RestartCount: 1, LastTerminationState: ended(1, time.Minute)}), "", ""},
		"restarted twice": {
			young(corev1.ContainerStatus{RestartCount: 2, LastTerminationState: ended(1, time.Minute)}), TroubleCrash,
			"container main keeps ending, with exit code 1",
		},
		"held back": {
			young(corev1.ContainerStatus{RestartCount: 1, State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended(3, time.Minute)}),
			TroubleCrash, "container main keeps ending, with exit code 3",
		},
		"ended just now": {
			young(corev1.ContainerStatus{RestartCount: 2, State: ended(4, 0), LastTerminationState: ended(3, time.Minute)}),
			TroubleCrash, "container main keeps ending, with exit code 4",
		},
		"of unknown ends": {
			young(corev1.ContainerStatus{RestartCount: 2, State: waiting("CrashLoopBackOff", "")}), TroubleCrash, "container main keeps ending",
		},
		"ended nobody knows when": {
			young(corev1.ContainerStatus{RestartCount: 2, LastTerminationState: undatedEnd}), TroubleCrash,
			"container main keeps ending, with exit code 5",
		},
		"restarted long ago": {
			young(corev1.ContainerStatus{RestartCount: 9, LastTerminationState: ended(1, 10*time.Minute+time.Second)}), "", "",
		},
		"restarted not that long ago": {
			young(corev1.ContainerStatus{RestartCount: 9, LastTerminationState: ended(1, 10*time.Minute)}), TroubleCrash,
			"container main keeps ending, with exit code 1",
		},
		"its other container is ready": {
			young(corev1.ContainerStatus{RestartCount: 9, Ready: true, LastTerminationState: ended(1, time.Minute)}), "", "",
		},
		"init container": {initCrash, TroubleCrash, "container prepare keeps ending, with exit code 7"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := TroubleOf(test.pod, now)
			if got == nil {
				got = &Trouble{}
			}
			if got.Reason != test.reason || got.Message != test.message {
				t.Errorf("trouble is %+v, want %s: %s", *got, test.reason, test.message)
			}
		})
	}
}

// What is no trouble yet becomes one at the moment that is foretold, and not before.
func TestTroubleComesWhenForetold(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want time.Duration
	}{
		"going":         {goingPod(10*time.Second, "n"), 50 * time.Second},
		"not scheduled": {unschedulablePod(3*time.Second, "Unschedulable"), 7 * time.Second},
		"not ready":     {oldPod(5 * time.Second), 55 * time.Second},
		"not ready again": {
			oldPod(time.Hour, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(20 * time.Second)}),
			40 * time.Second,
		},
		"not ready, nobody knows since when": {
			oldPod(5*time.Second, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}), 55 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			at := TroubleAt(test.pod)
			if at.Sub(now) != test.want {
				t.Fatalf("trouble is foretold in %s, want %s", at.Sub(now), test.want)
			}
			if early := TroubleOf(test.pod, at.Add(-time.Nanosecond)); early != nil {
				t.Errorf("before, there is trouble %v", early)
			}
			if TroubleOf(test.pod, at) == nil {
				t.Error("there is no trouble then")
			}
		})
	}
	oldAndFailed := oldPod(time.Hour)
	oldAndFailed.Status.Phase = corev1.PodFailed
	for name, p := range map[string]*corev1.Pod{
		"old":      oldAndFailed,
		"ready":    pod(corev1.PodRunning, ready(time.Hour)),
		"finished": pod(corev1.PodSucceeded),
		"failed":   pod(corev1.PodFailed),
		"undated":  pod(corev1.PodPending),
	} {
		if at := TroubleAt(p); !at.IsZero() {
			t.Errorf("%s: trouble is foretold at %v", name, at)
		}
	}
}

func TestReasonsOfContainers(t *testing.T) {
	tests := map[string]struct{ image, config bool }{
		"ErrImagePull": {true, false}, "ImagePullBackOff": {true, false}, "InvalidImageName": {true, false},
		"ErrImageNeverPull": {true, false}, "ImageInspectError": {true, false}, "RegistryUnavailable": {true, false},
		"SignatureValidationFailed": {true, false}, "CreateContainerConfigError": {false, true},
		"CreateContainerError": {false, true}, "RunContainerError": {false, true}, "PreCreateHookError": {false, true},
		"PreStartHookError": {false, true}, "PostStartHookError": {false, true}, "CrashLoopBackOff": {}, "ContainerCreating": {},
		"PodInitializing": {}, "": {},
	}
	for reason, want := range tests {
		if IsImageReason(reason) != want.image || IsConfigReason(reason) != want.config {
			t.Errorf("%q: image %t, config %t", reason, IsImageReason(reason), IsConfigReason(reason))
		}
	}
}
