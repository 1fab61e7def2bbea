// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// upstream runs a test in virtual time, with a controller that does as Kubernetes' own.
func upstream(t *testing.T, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.run(Options{Strict: true, Policies: c.policies})()
		test(c)
	})
}

// breakImage lets pods of an image never become ready.
func (c *cluster) breakImage(image string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readyAfter = func(p *corev1.Pod) time.Duration {
		if p.Spec.Containers[0].Image == image {
			return -1
		}
		return time.Second
	}
}

func rolledOut(c *cluster) bool {
	s := c.set().Status
	return s.UpdatedReplicas == 3 && s.ReadyReplicas == 3 && s.CurrentRevision == s.UpdateRevision
}

// A pod that is stuck at a template that was mended meanwhile is replaced by itself: kubernetes/kubernetes#67250.
func TestStuckPodIsReplaced(t *testing.T) {
	stuck := func(c *cluster) {
		c.breakImage("bad")
		c.create(setsResource, newSet())
		settle()
		c.image("bad")
		settle()
		c.drain()
		c.image("two")
		settle()
	}
	bubble(t, func(c *cluster) {
		stuck(c)
		if !rolledOut(c) {
			c.t.Errorf("the status is %+v", c.set().Status)
		}
		if n := len(slices.DeleteFunc(c.work(), func(w string) bool { return w != "delete pods web-2" })); n != 1 {
			c.t.Errorf("web-2 is deleted %d times", n)
		}
	})
	upstream(t, func(c *cluster) {
		stuck(c)
		if rolledOut(c) {
			c.t.Error("as upstream, the stuck pod is replaced")
		}
	})
}

// As upstream, what is refused is tried again with its whole set, at first soon.
func TestRefusalAsUpstream(t *testing.T) {
	upstream(t, func(c *cluster) {
		var attempts []time.Time
		c.refuse = func(a clienttesting.Action) error {
			if create, ok := a.(clienttesting.CreateActionImpl); ok && create.GetResource() == podsResource {
				attempts = append(attempts, time.Now())
				return errors.New("no")
			}
			return nil
		}
		c.create(setsResource, newSet())
		pass(10 * time.Minute)
		if n := len(attempts); n < 25 || n > 40 {
			c.t.Fatalf("in 10 minutes there are %d attempts", n)
		}
		soon := slices.DeleteFunc(attempts, func(at time.Time) bool { return at.Sub(attempts[0]) >= firstDelay/2 })
		if n := len(soon); n < 4 {
			c.t.Errorf("at first there are %d attempts", n)
		}
	})
}

// As upstream, there are no conditions. Policies are obeyed all the same: somebody asked for them.
func TestPoliciesAsUpstream(t *testing.T) {
	upstream(t, func(c *cluster) {
		c.create(policiesResource, newPolicy("p", func(s *v1alpha1.StatefulSetPolicySpec) { s.Rollout.Paused = true }))
		c.create(setsResource, newSet())
		settle()
		c.image("two")
		settle()
		if rolledOut(c) || len(c.set().Status.Conditions) != 0 {
			c.t.Errorf("the status is %+v", c.set().Status)
		}
		if got := c.accepted("p"); got != v1alpha1.ReasonAccepted {
			c.t.Errorf("the policy is %q", got)
		}
	})
}

// A pod that fails is told once by an event, when the set's status tells it.
func TestDegradedIsTold(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.breakImage("bad")
		c.create(setsResource, newSet())
		settle()
		c.told()
		c.image("bad")
		settle()
		pass(time.Hour)
		warnings := slices.DeleteFunc(c.told(), func(e string) bool { return !strings.HasPrefix(e, corev1.EventTypeWarning) })
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "Warning NotReady pod web-2: ") {
			c.t.Errorf("warnings are %q", warnings)
		}
		at := slices.IndexFunc(c.set().Status.Conditions, func(d appsv1.StatefulSetCondition) bool { return d.Type == status.Degraded })
		if at < 0 || !strings.HasSuffix(warnings[0], c.set().Status.Conditions[at].Message) {
			c.t.Errorf("conditions are %+v", c.set().Status.Conditions)
		}
	})
}
