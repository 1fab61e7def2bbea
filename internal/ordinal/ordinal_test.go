// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package ordinal

import (
	"math"
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	if got, want := PodName("web", 12), "web-12"; got != want {
		t.Errorf("PodName is %q, want %q", got, want)
	}
	if got, want := ClaimName("data", "web", 0), "data-web-0"; got != want {
		t.Errorf("ClaimName is %q, want %q", got, want)
	}
}

func TestParsePod(t *testing.T) {
	tests := map[string]struct {
		pod Pod
		ok  bool
	}{
		"web-0":           {Pod{"web", 0}, true},
		"web-10":          {Pod{"web", 10}, true},
		"web-1-2":         {Pod{"web-1", 2}, true},
		"web-2147483647":  {Pod{"web", math.MaxInt32}, true},
		"web-2147483648":  {},
		"web-99999999999": {},
		"web-01":          {},
		"web-00":          {},
		"web-":            {},
		"web":             {},
		"":                {},
		"-0":              {Pod{"", 0}, true},
		"web-+1":          {},
		"web--1":          {Pod{"web-", 1}, true},
		"web-1a":          {},
		"web-\u0661":      {},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			pod, ok := ParsePod(name)
			if ok != want.ok || (ok && pod != want.pod) {
				t.Errorf("ParsePod(%q) is %v %t, want %v %t", name, pod, ok, want.pod, want.ok)
			}
		})
	}
}

func TestOf(t *testing.T) {
	if n, ok := Of("web", "web-7"); n != 7 || !ok {
		t.Errorf("web-7 is %d %t in web", n, ok)
	}
	if _, ok := Of("web", "web-1-0"); ok {
		t.Error("web-1-0 is a pod of web, want of web-1")
	}
	if _, ok := Of("we", "web-0"); ok {
		t.Error("web-0 is a pod of we")
	}
}

func TestParseClaim(t *testing.T) {
	claim := func(template, set string, n int) Claim { return Claim{template, Pod{set, n}} }
	tests := map[string][]Claim{
		"data-web-0": {claim("data", "web", 0)},
		"data-a-b-3": {claim("data", "a-b", 3), claim("data-a", "b", 3)},
		"web-0":      nil,
		"-web-0":     nil,
		"data--0":    nil,
		"data-web-x": nil,
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			if got := slices.Collect(ParseClaim(name)); !slices.Equal(got, want) {
				t.Errorf("ParseClaim(%q) is %v, want %v", name, got, want)
			}
		})
	}
	for range ParseClaim("data-a-b-3") {
		break // A reader may stop early.
	}
}

func TestRange(t *testing.T) {
	set := func(replicas *int32, start int32) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{}
		s.Spec.Replicas = replicas
		if start != 0 {
			s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: start}
		}
		return s
	}
	tests := map[string]struct {
		set  *appsv1.StatefulSet
		want Range
	}{
		"default":            {set(nil, 0), Range{Start: 0, Count: 1}},
		"three":              {set(new(int32(3)), 0), Range{Start: 0, Count: 3}},
		"none":               {set(new(int32(0)), 5), Range{Start: 5, Count: 0}},
		"start":              {set(new(int32(2)), 5), Range{Start: 5, Count: 2}},
		"negative":           {set(new(int32(-2)), -5), Range{Start: 0, Count: 0}},
		"past the last name": {set(new(int32(10)), math.MaxInt32), Range{Start: math.MaxInt32, Count: 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := RangeOf(test.set); !reflect.DeepEqual(got, test.want) {
				t.Errorf("range is %v, want %v", got, test.want)
			}
		})
	}
	r := Range{Start: 5, Count: 2}
	for n, want := range map[int]bool{4: false, 5: true, 6: true, 7: false} {
		if r.Contains(n) != want {
			t.Errorf("%v contains %d is %t", r, n, !want)
		}
	}
}

// Names and ordinals are one to one.
func TestNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.StringMatching(`[a-z]([-a-z0-9]{0,20}[a-z0-9])?`).Draw(t, "set")
		template := rapid.StringMatching(`[a-z]([-a-z0-9]{0,20}[a-z0-9])?`).Draw(t, "template")
		n := rapid.IntRange(0, math.MaxInt32).Draw(t, "ordinal")
		if got, ok := Of(set, PodName(set, n)); !ok || got != n {
			t.Fatalf("%s has ordinal %d %t", PodName(set, n), got, ok)
		}
		want := Claim{template, Pod{set, n}}
		if !slices.Contains(slices.Collect(ParseClaim(ClaimName(template, set, n))), want) {
			t.Fatalf("%s is not read as %v", ClaimName(template, set, n), want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"web-0", "data-web-0", "a--1", "x-01", "-", "", "web-2147483648"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if p, ok := ParsePod(name); ok && PodName(p.Set, p.Ordinal) != name {
			t.Errorf("%q is read as %v, whose name is %q", name, p, PodName(p.Set, p.Ordinal))
		}
		for c := range ParseClaim(name) {
			if ClaimName(c.Template, c.Set, c.Ordinal) != name {
				t.Errorf("%q is read as %v, whose name is %q", name, c, ClaimName(c.Template, c.Set, c.Ordinal))
			}
		}
	})
}

func TestReservedOrdinals(t *testing.T) {
	set := func(replicas int32, start int32) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Ordinals: &appsv1.StatefulSetOrdinals{Start: start},
		}}
	}
	tests := map[string]struct {
		set      *appsv1.StatefulSet
		reserved []Interval
		want     []int
	}{
		"none":             {set(3, 0), nil, []int{0, 1, 2}},
		"one inside":       {set(3, 0), []Interval{{1, 1}}, []int{0, 2, 3}},
		"the first":        {set(3, 0), []Interval{{0, 1}}, []int{2, 3, 4}},
		"just after":       {set(3, 0), []Interval{{3, 5}}, []int{0, 1, 2}},
		"below the start":  {set(2, 5), []Interval{{0, 3}}, []int{5, 6}},
		"across the start": {set(2, 5), []Interval{{3, 6}}, []int{7, 8}},
		"out of order, overlapping, touching": {
			set(3, 0), []Interval{{6, 7}, {1, 2}, {2, 3}, {4, 4}}, []int{0, 5, 8},
		},
		"one within another": {set(3, 0), []Interval{{1, 5}, {2, 3}}, []int{0, 6, 7}},
		"nobody runs":        {set(0, 0), []Interval{{0, 0}}, nil},
		"nothing is left":    {set(3, math.MaxInt32-1), []Interval{{math.MaxInt32 - 1, math.MaxInt32 - 1}}, []int{math.MaxInt32}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := RangeOf(test.set, test.reserved...)
			got := slices.Collect(r.All())
			if !slices.Equal(got, test.want) {
				t.Fatalf("%v run, want %v", got, test.want)
			}
			for n := range 20 {
				if r.Contains(n) != slices.Contains(test.want, n) {
					t.Errorf("contains %d: %t", n, r.Contains(n))
				}
			}
			if len(got) > 0 && r.End() != got[len(got)-1]+1 {
				t.Errorf("ends at %d, but the last is %d", r.End(), got[len(got)-1])
			}
		})
	}
}

func TestMerge(t *testing.T) {
	given := []Interval{{8, 8}, {1, 5}, {2, 3}, {6, 6}, {12, 12}}
	if got, want := Merge(given), []Interval{{1, 6}, {8, 8}, {12, 12}}; !slices.Equal(got, want) {
		t.Errorf("merged are %v, want %v", got, want)
	}
	if got := Merge(nil); len(got) > 0 {
		t.Errorf("of none, merged are %v", got)
	}
}

func TestParseInterval(t *testing.T) {
	for text, want := range map[string]Interval{"5": {5, 5}, "5-7": {5, 7}, "0-0": {0, 0}} {
		if got, ok := ParseInterval(text); !ok || got != want {
			t.Errorf("%q is read as %v, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "-", "a", "5-", "-5", "7-5", "05", "1-2-3", "4294967296"} {
		if got, ok := ParseInterval(text); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// How many ordinals run below one is counted by looking at each.
func TestBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var reserved []Interval
		for range rapid.IntRange(0, 3).Draw(t, "intervals") {
			first := rapid.IntRange(0, 12).Draw(t, "first")
			reserved = append(reserved, Interval{first, first + rapid.IntRange(0, 3).Draw(t, "more")})
		}
		r := RangeOf(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
			Replicas: new(rapid.Int32Range(0, 5).Draw(t, "replicas")),
			Ordinals: &appsv1.StatefulSetOrdinals{Start: rapid.Int32Range(0, 4).Draw(t, "start")},
		}}, reserved...)
		want := 0
		for n := range 40 {
			if got := r.Below(n); got != want {
				t.Fatalf("%d of %+v are below %d, not %d", got, r, n, want)
			}
			if r.Contains(n) {
				want++
			}
		}
		if want != r.Count {
			t.Fatalf("%+v holds %d", r, want)
		}
	})
}
