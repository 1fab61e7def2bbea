// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// team labels a set.
func team(name string) option {
	return func(s *appsv1.StatefulSet) { s.Labels = map[string]string{"team": name} }
}

// A controller of some namespaces needs no rights but in them, and keeps what its selector matches there, as long as it does.
func TestScope(t *testing.T) {
	alone(t)
	first, second, other := newLoneSpace(t), newLoneSpace(t), newLoneSpace(t)
	user := "scope-" + first.name
	for _, s := range []*space{first, second} {
		grant(t, user, s.name, controller.ClusterRole().Rules)
	}
	c := newSolo(t, user, controller.Options{
		Scope:       observe.Scope{Namespaces: []string{first.name, second.name}, Selector: labels.SelectorFromSet(labels.Set{"team": "db"})},
		LeaderElect: true, LeaseNamespace: first.name, LeaseName: "scope",
	})
	// A pod without an owner that the set of another team would adopt, if that were ours.
	first.stranger("web-1", "web")
	first.create(newSet(team("db")))
	first.create(newSet(of("web"), team("web"), replicas(2)))
	second.create(newSet(team("db")))
	other.create(newSet(team("db")))
	c.start()
	first.settled("db")
	second.settled("db")
	leftAlone := func(s *space, name string) {
		t.Helper()
		w := s.look()
		if set := w.sets[name]; set.Status.ObservedGeneration != 0 || len(w.members(name)) != 0 {
			t.Errorf("%s of %s has the status %+v and %d pods", name, s.name, set.Status, len(w.members(name)))
		}
	}
	leftAlone(first, "web")
	leftAlone(other, "db")

	// What was not ours becomes it, with what it would adopt, and what was ours ceases to be it.
	first.patch("web", `{"metadata":{"labels":{"team":"db"}}}`)
	if w := first.settled("web"); len(w.members("web")) != 2 {
		t.Errorf("web has %d pods", len(w.members("web")))
	}
	second.patch("db", `{"metadata":{"labels":{"team":"web"}}}`)
	// An event about another set, which comes later, shows that the first was seen.
	first.scale("web", 1)
	first.settled("web")
	second.scale("db", 1)
	second.kill("db-1")
	second.until("db-1 is gone", func(w world) string { return unless(w.pods["db-1"] == nil, "it is there") })
	second.quiet(2*time.Second, "a set that is not ours any more is kept", func(c change) bool { return c.pod() != nil })
	if missing := c.missing(); len(missing) != 0 {
		t.Errorf("rights are missing: %q", missing)
	}
}

// A namespace that may not be read is told, and holds up no other; it is kept once it may be.
func TestNamespaceWithoutRights(t *testing.T) {
	alone(t)
	open, closed := newLoneSpace(t), newLoneSpace(t)
	user := "scope-" + open.name
	grant(t, user, open.name, controller.ClusterRole().Rules)
	open.create(newSet())
	closed.create(newSet())
	health := &telemetry.Health{}
	c := newSolo(t, user, controller.Options{Scope: observe.Scope{Namespaces: []string{open.name, closed.name}}, Health: health})
	c.start()
	open.settled("db")
	want := "not all is read yet of StatefulSet, Pod, PersistentVolumeClaim, ControllerRevision in " + closed.name
	if err := health.Ready(); err == nil || !strings.Contains(err.Error(), want) || health.Alive() != nil {
		t.Errorf("it is ready: %v, alive: %v; want %q", err, health.Alive(), want)
	}
	if got := c.missing(); len(got) < 4 {
		t.Errorf("missing is said to be %q", got)
	}
	grant(t, user, closed.name, controller.ClusterRole().Rules)
	closed.settled("db")
	poll(t, "it is ready", func(context.Context) string { return text(health.Ready()) })
}
