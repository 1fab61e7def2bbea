// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// team labels a set, by which it is ours if it is that of databases.
func team(name string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Labels = map[string]string{"team": name} }
}

// inScope runs a controller that keeps the sets of databases alone.
func inScope(t *testing.T, test func(*cluster, *telemetry.Metrics)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), telemetry.New()
		scope := observe.Scope{Selector: labels.SelectorFromSet(labels.Set{"team": "db"})}
		defer c.run(Options{Policies: c.policies, Scope: scope, Metrics: m})()
		test(c, m)
	})
}

// Sets that are not ours are left alone: they, their pods, those without an owner that they would adopt, and their policies.
func TestSetsOfOthersAreLeftAlone(t *testing.T) {
	inScope(t, func(c *cluster, m *telemetry.Metrics) {
		c.create(podsResource, podNamed("web-1"))
		c.create(setsResource, newSet(team("web")))
		c.create(policiesResource, newPolicy("p", func(*v1alpha1.StatefulSetPolicySpec) {}))
		c.drain()
		settle()
		c.image("two")
		settle()
		if writes := c.drain(); len(writes) != 0 {
			t.Errorf("writes are %q", writes)
		}
		if got := series(t, m, "web"); len(got) != 0 {
			t.Errorf("metrics are %v", got)
		}
		if events := c.told(); len(events) != 0 {
			t.Errorf("events are %q", events)
		}
		// With the label it is kept at once.
		c.edit(team("db"))
		settle()
		if pods := c.pods(); len(pods) != 3 || metav1.GetControllerOf(pods[1]) == nil || c.accepted("p") == "" || len(series(t, m, "web")) == 0 {
			t.Errorf("once it is ours there are %d pods, the policy is %q", len(pods), c.accepted("p"))
		}
	})
}

// A set whose label is removed is left as it is, also in the midst of an update.
func TestSetThatLeavesTheSelection(t *testing.T) {
	inScope(t, func(c *cluster, m *telemetry.Metrics) {
		c.create(setsResource, newSet(team("db")))
		settle()
		c.image("two")
		pass(1500 * time.Millisecond)
		c.edit(team("web"))
		pass(10 * time.Millisecond)
		writes := c.work()
		if len(writes) == 0 || writes[len(writes)-1] != "delete pods web-2" {
			t.Fatalf("the update has not begun, or is over: %q", writes)
		}
		settle()
		if writes := c.drain(); len(writes) != 0 {
			t.Errorf("after the label is gone, writes are %q", writes)
		}
		if pods := len(c.pods()); pods != 2 || len(series(t, m, "web")) != 0 {
			t.Errorf("there are %d pods, and metrics %v", pods, series(t, m, "web"))
		}
		// The update goes on where it was when the label is back.
		c.edit(team("db"))
		settle()
		if s := c.set().Status; s.UpdatedReplicas != 3 || s.ReadyReplicas != 3 {
			t.Errorf("the status is %+v", s)
		}
	})
}

// A claim that a set of others holds is not ours to use, as if the set were ours.
func TestClaimOfSetOfOthers(t *testing.T) {
	inScope(t, func(c *cluster, _ *telemetry.Metrics) {
		other := newSet(team("web"), func(s *appsv1.StatefulSet) {
			s.Name = "x-web"
			s.Spec.VolumeClaimTemplates[0].Name = "data"
		})
		c.create(setsResource, other)
		pass(time.Second)
		c.create(setsResource, newSet(team("db"), func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates[0].Name = "data-x" }))
		settle()
		if pods := c.pods(); len(pods) != 0 {
			t.Errorf("%d pods use the claims of the older set", len(pods))
		}
	})
}

// Namespaces that are not ours are not even asked for.
func TestOtherNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() != "elsewhere" {
				t.Errorf("%s of namespace %q are listed", a.GetResource().Resource, a.GetNamespace())
			}
			return false, nil, nil
		})
		defer c.run(Options{Policies: c.policies, Scope: observe.Scope{Namespaces: []string{"elsewhere"}}})()
		c.create(setsResource, newSet())
		c.drain()
		settle()
		if writes := c.drain(); len(writes) != 0 {
			t.Errorf("writes are %q", writes)
		}
	})
}
