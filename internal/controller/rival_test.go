// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

func TestRivalControllers(t *testing.T) {
	var r rivals
	web, db := observe.Key{Name: "web"}, observe.Key{Name: "db"}
	now := time.Unix(1000, 0)
	expectRest := func(want time.Duration, over bool) {
		t.Helper()
		if left, is := r.rest(now); left != want || is != over {
			t.Errorf("it rests for %v, over is %t; want %v, %t", left, is, want, over)
		}
	}
	expectRest(0, false)
	if s := r.saw(web, now); !s.first || !s.newSet || s.quiet != firstQuiet {
		t.Errorf("the first sighting is %+v", s)
	}
	if s := r.saw(web, now); s.first || s.newSet {
		t.Errorf("the same again is %+v", s)
	}
	now = now.Add(time.Minute)
	expectRest(time.Minute, false)
	if s := r.saw(db, now); s.first || !s.newSet {
		t.Errorf("another set is %+v", s)
	}
	expectRest(firstQuiet, false)
	now = now.Add(firstQuiet)
	expectRest(0, true)
	expectRest(0, false)
	var quiet []time.Duration
	for range 6 {
		s := r.saw(web, now)
		quiet = append(quiet, s.quiet)
		now = now.Add(s.quiet)
		r.rest(now)
	}
	m := time.Minute
	if want := []time.Duration{4 * m, 8 * m, 16 * m, maxQuiet, maxQuiet, maxQuiet}; !slices.Equal(quiet, want) {
		t.Errorf("it rests for %v, want %v", quiet, want)
	}
	now = now.Add(peace + time.Second)
	if s := r.saw(web, now); s.quiet != firstQuiet {
		t.Errorf("after peace it rests for %v", s.quiet)
	}
}

// The API server calls a client by what its user agent begins with. Whatever the program is called, ours has to be known by it.
func TestOurName(t *testing.T) {
	cfg := config(&rest.Config{UserAgent: "somebody/1"}, Options{wire: &wire{}}.withDefaults(), telemetry.Manager)
	if name, _, _ := strings.Cut(cfg.UserAgent, "/"); name != telemetry.Manager {
		t.Errorf("the API server knows us as %q", name)
	}
}

// writeStatus is a write of the set's status by another program, in which nothing else changes.
func (c *cluster) writeStatus(manager string) {
	c.t.Helper()
	c.edit(func(set *appsv1.StatefulSet) {
		set.Generation-- // edit counts it up
		set.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: manager, Subresource: "status", Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:replicas":{}}}`),
		}}
	})
}

// yields gives the metric.
func yields(t *testing.T, m *telemetry.Metrics) float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "ordinal_yields" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no such metric")
	return 0
}

// warnings gives the events so far about another controller.
func (c *cluster) warnings() []string {
	var found []string
	for {
		select {
		case e := <-c.events.Events:
			if strings.Contains(e, telemetry.EventOtherController) {
				found = append(found, e)
			}
		default:
			return found
		}
	}
}

// While another controller works, ours does not, and says so; once that has been silent, ours goes on.
func TestYieldsToAnotherController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m := telemetry.New()
		c.create(setsResource, newSet(func(set *appsv1.StatefulSet) {
			set.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Subresource: "status", Time: new(metav1.Now()),
				FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:replicas":{}}}`),
			}}
		}))
		defer c.run(Options{Metrics: m, named: true})()
		settle()
		if pods := len(c.pods()); pods != 3 || yields(t, m) != 0 {
			t.Fatalf("a write from before the start lets it make %d pods, yields %v", pods, yields(t, m))
		}
		c.drain()

		for n := range 3 {
			c.writeStatus("kube-controller-manager")
			pass(time.Second)
			c.scale(int32(2 - n))
			pass(firstQuiet - 2*time.Second)
			if writes := c.drain(); len(writes) != 0 || yields(t, m) != 1 {
				t.Fatalf("while another works it does %q, yields %v", writes, yields(t, m))
			}
		}
		want := fmt.Sprintf("Warning %s kube-controller-manager writes the status of this set too; "+
			"Ordinal leaves all sets to it until it has written none for 2m0s", telemetry.EventOtherController)
		if got := c.warnings(); !slices.Equal(got, []string{want}) {
			t.Errorf("events are %q", got)
		}
		pass(3 * time.Second)
		if pods := len(c.pods()); pods == 3 || yields(t, m) != 0 {
			t.Errorf("when the other is silent there are %d pods, yields %v", pods, yields(t, m))
		}
		// It was not gone for good.
		c.writeStatus("kube-controller-manager")
		pass(firstQuiet + time.Minute)
		if yields(t, m) != 1 {
			t.Error("it trusts a silence as short as the one that proved nothing")
		}
		if got := c.warnings(); len(got) != 1 || !strings.Contains(got[0], "4m0s") {
			t.Errorf("events are %q", got)
		}
	})
}

// What people, and other parts of Kubernetes, do to sets and pods stops nothing.
func TestYieldsToNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m := telemetry.New()
		defer c.run(Options{Metrics: m, named: true})()
		c.create(setsResource, newSet())
		settle()
		for _, e := range []metav1.ManagedFieldsEntry{
			{Manager: telemetry.Manager, Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:replicas":{}}}`)},
			{Manager: "kubectl-edit", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)},
			{Manager: "kube-controller-manager", Subresource: "scale", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`)},
			{Manager: "kubectl-annotate", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{}}}`)},
			{Manager: "operator", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`)},
		} {
			e.Time = new(metav1.Now())
			c.edit(func(set *appsv1.StatefulSet) { set.ManagedFields = []metav1.ManagedFieldsEntry{e} })
			pass(time.Second)
			c.kill("web-1")
			pass(10 * time.Second)
			if yields(t, m) != 0 || c.pod("web-1").DeletionTimestamp != nil {
				t.Errorf("after a write by %s it does nothing", e.Manager)
			}
		}
		if got := c.warnings(); len(got) != 0 {
			t.Errorf("events are %q", got)
		}
	})
}
