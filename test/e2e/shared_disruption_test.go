// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A budget protects the pods that work: one that does not may be evicted, and the controller's own work is not held up.
func TestEvictions(t *testing.T) {
	s := onShared(t)
	s.webOf(3, withoutClaims, readyWhen("test ! -e /tmp/broken"))
	budget := policyv1.PodDisruptionBudget{}
	budget.APIVersion, budget.Kind, budget.Name = "policy/v1", "PodDisruptionBudget", "web"
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "my-app"}}
	budget.Spec.MinAvailable = new(intstr.FromInt32(2))
	s.apply(budget)
	s.breakPod("web-1", 2)

	if out := s.evict("web-0"); out.code == 0 || !strings.Contains(out.stderr, "disruption budget") {
		t.Errorf("web-0 can be evicted though only two work: %s", said(out))
	}
	before := s.pods()
	if err := s.evict("web-1").err(); err != nil {
		t.Errorf("the broken web-1 cannot be evicted: %v", err)
	}
	s.awaitReady(3)
	if s.pods()["web-1"].UID == before["web-1"].UID || s.pods()["web-0"].UID != before["web-0"].UID {
		t.Error("web-1 was not replaced, or web-0 was")
	}

	budget.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	s.apply(budget)
	s.breakPod("web-1", 2)
	s.breakPod("web-2", 1)
	if err := s.evict("web-2").err(); err != nil {
		t.Errorf("the broken web-2 cannot be evicted though it always may: %v", err)
	}
	s.kubectl("delete", "pod", "web-1")
	s.awaitReady(3)
	s.kubectl("scale", "sts/web", "--replicas=1")
	s.awaitReady(1)
}

// breakPod makes a pod unready and waits until the budget counts so many that work, of three.
func (s *space) breakPod(pod string, left int32) {
	s.Helper()
	s.exec(pod, "touch /tmp/broken")
	s.eventually(patience, "the budget knows", func() error {
		status := get[policyv1.PodDisruptionBudget](s, "pdb", "web").Status
		if status.ExpectedPods != 3 || status.CurrentHealthy != left {
			return fmt.Errorf("status is %+v", status)
		}
		return nil
	})
}

// evict asks the API to evict a pod, as `kubectl drain` does.
func (s *space) evict(pod string) output {
	s.Helper()
	eviction := policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: s.name}}
	eviction.APIVersion, eviction.Kind = "policy/v1", "Eviction"
	text, err := json.Marshal(eviction)
	if err != nil {
		s.Fatal(err)
	}
	cmd := s.command("create", "--raw", "/api/v1/namespaces/"+s.name+"/pods/"+pod+"/eviction", "-f", "-")
	cmd.Stdin = strings.NewReader(string(text))
	return finish(cmd)
}

// While the part that runs containers is frozen or dead, nothing takes a pod's place; what was deleted meanwhile is ended, and
// then replaced.
func TestFrozenNode(t *testing.T) {
	s := onShared(t)
	s.webOf(2, heart, parallel)
	s.eventually(patience, "all hearts beat", s.beat)
	lives := s.lives()
	parts := s.cluster.mustStatus(t)
	story := s.watchPods()
	told := story.now()
	for _, name := range []string{"kubelet", "containerd"} {
		send(t, parts[name].PID, syscall.SIGSTOP)
	}
	s.kubectl("delete", "pod", "web-1", "--wait=false")
	story.expect(told, "web-1 deleting")
	s.throughout(5*time.Second, "nothing takes the place of web-1", func() error {
		if chapters, _ := story.since(told + 1); len(chapters) > 0 {
			return fmt.Errorf("it goes on: %v", chapters)
		}
		return nil
	})
	for _, name := range []string{"kubelet", "containerd"} {
		send(t, parts[name].PID, syscall.SIGKILL)
	}
	story.expect(told+1, "web-1 gone", "web-1 created", "web-1 ready")
	s.eventually(patience, "all hearts beat", s.beat)
	s.checkHeartbeats("web-0", 1)
	s.checkHeartbeats("web-1", 2)
	delete(lives, "web-1")
	s.checkSameLives(lives)
}

func send(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// heart makes the set's pods write their pod's UID into their volume all the time, and ignore the request to end.
func heart(set *appsv1.StatefulSet) {
	spec := &set.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = new(int64(1))
	c := &spec.Containers[0]
	c.Command = []string{"sh", "-c", `trap "" TERM; while :; do echo $POD >> /usr/share/nginx/html/beats; sleep 0.05; done`}
	c.Env = []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}}
}

// beats are the UIDs that pods of a name have written, in the order of writing.
func (s *space) beats(pod string) ([]string, error) {
	out := s.try("exec", pod, "--", "cat", "/usr/share/nginx/html/beats")
	return strings.Fields(out.stdout), out.err()
}

// beat is nil when every pod of the set has written a while.
func (s *space) beat() error {
	for name, pod := range s.pods() {
		beats, err := s.beats(name)
		if err != nil {
			return err
		}
		if last := beats[max(0, len(beats)-20):]; len(last) < 20 || last[0] != string(pod.UID) {
			return fmt.Errorf("%s has not written much yet", name)
		}
	}
	return nil
}

// checkHeartbeats checks that so many pods of a name have written, one after the other and never two at a time.
func (s *space) checkHeartbeats(pod string, want int) {
	s.Helper()
	beats, err := s.beats(pod)
	if err != nil {
		s.Fatal(err)
	}
	turns := slices.Compact(slices.Clone(beats))
	writers := map[string]bool{}
	for _, uid := range turns {
		writers[uid] = true
	}
	if len(turns) != len(writers) {
		s.Errorf("%d pods called %s wrote %d times by turns: two ran at a time", len(writers), pod, len(turns))
	}
	if len(writers) != want {
		s.Errorf("%d pods called %s have written, want %d", len(writers), pod, want)
	}
}
