// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Where the API forgets a pod at once, the next of its name starts when the old one's processes are dead all the same. In both
// tests these ignore the request to end, and are killed by the kubelet some two seconds later.

func TestGraceOfZero(t *testing.T) {
	s := onShared(t)
	s.webOf(1, heart, firstHeart, grace(0))
	for range 4 {
		s.replace("delete", "pod", "web-0", "--wait=false")
	}
	s.checkHeartbeats("web-0", 5)
}

func TestForcedDeletion(t *testing.T) {
	s := onShared(t)
	s.webOf(1, heart, firstHeart, grace(30))
	for range 3 {
		s.replace("delete", "pod", "web-0", "--force", "--grace-period=0")
	}
	s.checkHeartbeats("web-0", 4)
}

// It does not depend on a memory that a crash could wipe out.
func TestForcedDeletionInACrash(t *testing.T) {
	s := onShared(t)
	s.webOf(1, heart, grace(0))
	for _, names := range [][]string{{"kubelet"}, {"containerd"}, {"kubelet", "containerd"}} {
		parts := s.cluster.mustStatus(t)
		old := s.pods()["web-0"].UID
		s.kubectl("delete", "pod", "web-0", "--wait=false")
		for _, name := range names {
			send(t, parts[name].PID, syscall.SIGKILL)
		}
		s.awaitSuccessor(old)
	}
	s.checkHeartbeats("web-0", 4)
}

// replace deletes web-0 and waits until the next one works.
func (s *space) replace(deletion ...string) {
	s.Helper()
	old := s.pods()["web-0"].UID
	began := time.Now()
	s.kubectl(deletion...)
	s.awaitSuccessor(old)
	s.Logf("the next web-0 worked after %.1f s", time.Since(began).Seconds())
}

// awaitSuccessor waits until a web-0 other than the old one has written a while.
func (s *space) awaitSuccessor(old types.UID) {
	s.Helper()
	s.eventually(patience, "the next web-0 beats", func() error {
		pod, err := tryGet[corev1.Pod](s, "pod", "web-0")
		if err != nil {
			return err
		}
		if pod.UID == old || !isReady(&pod) {
			return errors.New("it is not there")
		}
		return s.beat()
	})
}

func grace(seconds int64) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.TerminationGracePeriodSeconds = new(seconds) }
}

// firstHeart gives the set's pods an init container that writes too. It comes after heart.
func firstHeart(set *appsv1.StatefulSet) {
	spec := &set.Spec.Template.Spec
	first := *spec.Containers[0].DeepCopy()
	first.Name, first.Ports = "first", nil
	first.Command = []string{"sh", "-c", "for i in 1 2 3 4 5; do echo $POD >> /usr/share/nginx/html/beats; sleep 0.05; done"}
	spec.InitContainers = []corev1.Container{first}
}
