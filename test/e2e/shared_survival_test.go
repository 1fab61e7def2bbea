// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A part that dies is started again; the others go on, and pods do not notice.
func TestPartsAreKilled(t *testing.T) {
	s := onShared(t)
	s.webOf(2)
	s.mark(2)
	lives := s.lives()
	before := s.cluster.mustStatus(t)
	wantParts := []string{
		"containerd", "controller", "coredns", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubelet", "storage",
	}
	if got := names(before); !slices.Equal(got, wantParts) {
		t.Fatalf("the parts are %v, want %v", got, wantParts)
	}
	for _, name := range wantParts {
		t.Run(name, func(t *testing.T) {
			before := s.cluster.mustStatus(t)
			if err := syscall.Kill(before[name].PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, patience, name+" runs again", func() error {
				now, err := s.cluster.status(t.Context())
				if err != nil {
					return err
				}
				if part := now[name]; part.PID == before[name].PID || part.State != running || part.Restarts != before[name].Restarts+1 {
					return fmt.Errorf("it is %+v", part)
				}
				return nil
			})
			// Kubernetes' own controllers and scheduler would wait for up to a minute, so they are started anew with the API server.
			var followers []string
			if name == "kube-apiserver" {
				followers = []string{"kube-controller-manager", "kube-scheduler"}
			}
			for _, follower := range followers {
				eventually(t, patience, follower+" starts anew", func() error {
					now, err := s.cluster.status(t.Context())
					if part := now[follower]; err == nil && (part.Restarts != before[follower].Restarts+1 || part.State != running) {
						return fmt.Errorf("it is %+v", part)
					}
					return err
				})
			}
			now := s.cluster.mustStatus(t)
			for other, part := range now {
				if other != name && !slices.Contains(followers, other) && (part.PID != before[other].PID || part.State != running) {
					t.Errorf("%s was disturbed: it was %+v and is %+v", other, before[other], part)
				}
			}
		})
	}
	s.checkSameLives(lives)
	s.checkHeard("web-0")
	s.kubectl("scale", "sts/web", "--replicas=3")
	s.awaitReady(3)
	s.asker("")
	s.eventually(prompt*5, "the new pod's name is known", func() error {
		if found, want := s.addresses("web-2.web-svc"), []string{s.pods()["web-2"].Status.PodIP}; !slices.Equal(found, want) {
			return fmt.Errorf("it is at %v, want %v", found, want)
		}
		return nil
	})
	s.checkSameLives(lives)
	s.checkMarks(2)
}

// checkHeard checks that what a container prints still reaches its log. A kubelet that has just started needs a moment to know its pods.
func (s *space) checkHeard(pod string) {
	s.Helper()
	s.eventually(patience, "the log has what "+pod+" prints", func() error {
		if err := s.try("exec", pod, "--", "sh", "-c", "echo is anybody there > /proc/1/fd/1").err(); err != nil {
			return err
		}
		if log := s.kubectl("logs", pod); !strings.Contains(log, "is anybody there") {
			return fmt.Errorf("it ends with\n%s", tail(log, 5))
		}
		return nil
	})
}
