// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// A snapshot names the sets that give names of the set's claims, the templates whose they are, and the pods that use them.
func TestRivals(t *testing.T) {
	going := set("c-x-web", "a")
	going.DeletionTimestamp = new(metav1.Now())
	elsewhere := set("x-web", "data")
	elsewhere.Namespace = "elsewhere"
	i := caches(t,
		set("web", "data-x", "logs", "a-c-x"), set("x-web", "data"), set("web-x", "data"), set("logs-web", "logs"), going, elsewhere,
		pod("x-web-0", "StatefulSet/x-web"), pod("x-web-7", "StatefulSet/x-web"), pod("odd", "StatefulSet/x-web"), pod("x-web-3", "Job/job"),
	)
	rivals := func(name string, o plan.Options) []string {
		t.Helper()
		s, view, err := New(i, NewWatermark(i), o).Look(Key{Namespace: "default", Name: name}, time.Time{})
		if err != nil || view != Fresh {
			t.Fatalf("view is %d, %v", view, err)
		}
		var all []string
		for _, r := range s.Rivals {
			if r.Set.Namespace != "default" {
				t.Errorf("%s has a rival in %s", name, r.Set.Namespace)
			}
			all = append(all, fmt.Sprint(r.Template, " ", r.Set.Name, " ", slices.Sorted(maps.Keys(r.Ordinals))))
		}
		return all
	}
	for name, want := range map[string][]string{
		"web":      {"data-x x-web [0 7]", "a-c-x c-x-web []"},
		"x-web":    {"data web []"},
		"c-x-web":  {"a web []"},
		"web-x":    nil,
		"logs-web": nil,
	} {
		if got := rivals(name, plan.Options{}); !slices.Equal(got, want) {
			t.Errorf("rivals of %s are %q, want %q", name, got, want)
		}
	}
	if got := rivals("web", plan.Options{Strict: true}); got != nil {
		t.Errorf("as upstream, rivals are %q", got)
	}
}
