// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// Item 6: `kubectl rollout` in all its forms.
func TestRolloutCommands(t *testing.T) {
	s := onShared(t)
	s.webOf(2, withoutClaims, withGreeting("one"))
	story := s.watchPods()
	first := s.set().Status.UpdateRevision

	s.kubectl("set", "env", "sts/web", "GREETING=two")
	s.kubectl("annotate", "sts/web", "kubernetes.io/change-cause=the second greeting", "--overwrite")
	s.rolledOut()
	s.checkGreeting("two")
	s.kubectl("set", "env", "sts/web", "GREETING=three")
	s.rolledOut()
	s.checkGreeting("three")

	history := s.kubectl("rollout", "history", "sts/web")
	for _, want := range []string{`(?m)^statefulset.apps/web`, `(?m)^1\s`, `(?m)^2\s`, `(?m)^3\s`} {
		if !regexp.MustCompile(want).MatchString(history) {
			t.Errorf("rollout history does not show %s:\n%s", want, history)
		}
	}
	if second := s.kubectl("rollout", "history", "sts/web", "--revision=2"); !regexp.MustCompile(`GREETING:\s+two`).MatchString(second) {
		t.Errorf("revision 2 is not the second greeting:\n%s", second)
	}

	told := story.now()
	s.kubectl("rollout", "undo", "sts/web")
	story.expect(told, replacedInOrder(1, 0)...)
	s.rolledOut()
	s.checkGreeting("two")
	s.kubectl("rollout", "undo", "sts/web", "--to-revision=1")
	s.rolledOut()
	s.checkGreeting("one")
	if set := s.set(); set.Status.UpdateRevision != first || set.Status.CurrentRevision != first {
		t.Errorf("the undone set is of revisions %s and %s, want the first one, %s", set.Status.CurrentRevision, set.Status.UpdateRevision, first)
	}
	if out := s.try("rollout", "undo", "sts/web", "--to-revision=99"); out.code == 0 || !strings.Contains(out.stderr, "unable to find specified revision 99 in history") {
		t.Errorf("undo to a revision that never was: %s", said(out))
	}

	told = story.now()
	s.kubectl("rollout", "restart", "sts/web")
	story.expect(told, replacedInOrder(1, 0)...)
	if said := s.rolledOut(); !strings.Contains(said, "roll") {
		t.Errorf("rollout status says %q", said)
	}
	for name, pod := range s.pods() {
		if pod.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
			t.Errorf("%s was not restarted", name)
		}
	}
	set := s.set()
	if set.Status.CurrentRevision != set.Status.UpdateRevision || set.Status.UpdatedReplicas != 2 || set.Status.CurrentReplicas != 2 {
		t.Errorf("the status after all this is %+v", set.Status)
	}
}

// Item 6: OnDelete updates a pod when somebody deletes it, and only then.
func TestOnDelete(t *testing.T) {
	s := onShared(t)
	onDelete := func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }
	s.webOf(2, withoutClaims, onDelete)
	story := s.watchPods()
	told := story.now()
	old := s.set().Status.UpdateRevision

	s.kubectl("set", "image", "sts/web", "nginx="+newImage)
	s.eventually(patience, "the update is known", func() error {
		if status := s.set().Status; status.UpdateRevision == old || status.CurrentRevision != old {
			return fmt.Errorf("status is %+v", status)
		}
		return nil
	})
	s.throughout(3*time.Second, "nothing is updated unasked", func() error {
		if chapters, _ := story.since(told); len(chapters) > 0 {
			return fmt.Errorf("it goes on: %v", chapters)
		}
		return nil
	})
	s.kubectl("delete", "pod", "web-0")
	story.expect(told, replacedInOrder(0)...)
	s.awaitReady(2)
	s.checkImages(map[string]string{"web-0": newImage, "web-1": image})
	if out := s.try("rollout", "status", "sts/web"); out.code == 0 || !strings.Contains(out.stderr, "rollout status is only available for RollingUpdate strategy type") {
		t.Errorf("rollout status of an OnDelete set: %s", said(out))
	}
}

// rolledOut waits with `rollout status` and gives what it says.
func (s *space) rolledOut() string {
	s.Helper()
	return s.kubectl("rollout", "status", "sts/web", "--timeout="+patience.String())
}

func withGreeting(text string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { greet(set, text) }
}

// checkGreeting checks that every pod runs with the greeting.
func (s *space) checkGreeting(want string) {
	s.Helper()
	for name := range s.pods() {
		if got := s.exec(name, "echo $GREETING"); got != want {
			s.Errorf("%s greets with %q, want %q", name, got, want)
		}
	}
}
