// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// deletesClaims lets claims go with the pods that are scaled away.
func deletesClaims(s *appsv1.StatefulSet) {
	s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
}

// Without one of its rights, the controller does all that can be done without it, and the rest once it has the right.
func TestWithoutOneRight(t *testing.T) {
	for name, tt := range map[string]struct {
		verb, resource, subresource string
		// pods are as many as are there, and updated as many of them as have the update, when a set of three is updated and then
		// scaled to two.
		pods, updated int
	}{
		"status of sets":     {"update", "statefulsets", "status", 2, 2},
		"status of policies": {"update", v1alpha1.Resource, "status", 2, 2},
		"history":            {"delete", "controllerrevisions", "", 2, 2},
		// What becomes of a claim is settled before its pod goes. So the set is updated, and not scaled down.
		"claims": {"patch", "persistentvolumeclaims", "", 3, 3},
		// The update cannot begin.
		"pods": {"delete", "pods", "", 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var denied atomic.Bool
				c.refuse = func(a clienttesting.Action) error {
					if denied.Load() && a.Matches(tt.verb, tt.resource) && a.GetSubresource() == tt.subresource {
						return apierrors.NewForbidden(a.GetResource().GroupResource(), "x", errors.New(`User "u" cannot do that`))
					}
					return nil
				}
				defer c.run(Options{Policies: c.policies})()
				c.create(setsResource, newSet(deletesClaims, func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = new(int32(0)) }))
				settle()
				denied.Store(true)
				c.create(policiesResource, newPolicy("p", func(*v1alpha1.StatefulSetPolicySpec) {}))
				c.image("two")
				settle()
				c.scale(2)
				settle()
				updated := 0
				for _, pod := range c.pods() {
					if pod.Spec.Containers[0].Image == "two" {
						updated++
					}
				}
				if pods := len(c.pods()); pods != tt.pods || updated != tt.updated {
					t.Errorf("%d pods are there, %d of them updated; want %d and %d", pods, updated, tt.pods, tt.updated)
				}
				denied.Store(false)
				settle()
				revisions := list[*appsv1.ControllerRevision](&stage{cluster: c}, revisionsResource, "ControllerRevision")
				if s := c.set().Status; s.Replicas != 2 || s.UpdatedReplicas != 2 || len(revisions) != 1 || c.accepted("p") == "" {
					t.Errorf("with the right, the status is %+v, and there are %d revisions", s, len(revisions))
				}
			})
		})
	}
}

// What the API server does not let us read is waited for; until then nothing is done, and health says so.
func TestPodsMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newCluster(t), &telemetry.Health{}
		var allowed atomic.Bool
		c.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !allowed.Load(), nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no rights"))
		})
		defer c.run(Options{Health: h})()
		c.create(setsResource, newSet())
		c.drain()
		settle()
		if writes := c.drain(); len(writes) != 0 {
			t.Errorf("without seeing pods it writes %q", writes)
		}
		if err := h.Ready(); err == nil || err.Error() != "not all is read yet of Pod in all namespaces" || h.Alive() != nil {
			t.Errorf("it is ready: %v; alive: %v", err, h.Alive())
		}
		allowed.Store(true)
		settle()
		if pods := len(c.pods()); pods != 3 || h.Ready() != nil {
			t.Errorf("once they may be read there are %d pods; ready: %v", pods, h.Ready())
		}
	})
}

// Work that hangs is told by health. It may be slow, as long as it gets on.
func TestWorkThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newCluster(t), &telemetry.Health{}
		hangs := make(chan struct{})
		c.api = slowClient{c.client, func(_ context.Context, pod *corev1.Pod) error {
			if pod.Name == "web-2" {
				<-hangs
			} else {
				<-time.After(hung - time.Minute)
			}
			return nil
		}}
		defer c.run(Options{Health: h})()
		// The first pod is made alone, the others together.
		c.create(setsResource, newSet(parallel))
		pass(2*hung - 3*time.Minute)
		if err := h.Alive(); err != nil {
			t.Errorf("while it gets on it is said to hang: %v", err)
		}
		pass(hung + 2*time.Minute)
		if err := h.Alive(); err == nil || err.Error() != "the work on default/web hangs: nothing has become of it for 6m0s" || h.Ready() == nil {
			t.Errorf("it is said to hang: %v", err)
		}
		close(hangs)
		settle()
		if err := h.Alive(); err != nil || len(c.pods()) != 3 {
			t.Errorf("when it goes on it is said to hang: %v", err)
		}
	})
}
