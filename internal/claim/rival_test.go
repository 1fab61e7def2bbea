// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Set a-b with template data and set b with template data-a share claim data-a-b-0.
func rivals() (set, other *appsv1.StatefulSet) {
	named := func(name, template string, age time.Duration) *appsv1.StatefulSet {
		s := newSet("Retain", "Retain", template)
		s.Name, s.UID = name, types.UID(name)
		s.Spec.Replicas = new(int32(2))
		s.Spec.Selector.MatchLabels = map[string]string{"app": name}
		s.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age))
		return s
	}
	return named("a-b", "data", time.Hour), named("b", "data-a", 0)
}

func owner(kind, name string, uid types.UID) metav1.OwnerReference {
	version := "apps/v1"
	if kind == "Pod" {
		version = "v1"
	}
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: uid}
}

// Each line of evidence is told apart from the ones that come after it, which speak for the other side.
func TestHeldBy(t *testing.T) {
	labelled := func(app string, owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-a-b-0", OwnerReferences: owners}}
		if app != "" {
			c.Labels = map[string]string{"app": app}
		}
		return c
	}
	type given struct {
		claim *corev1.PersistentVolumeClaim
		// theirs and ours tell who has a pod.
		theirs, ours bool
		change       func(set, other *appsv1.StatefulSet)
		ordinal      int
		template     string
	}
	younger := func(set, other *appsv1.StatefulSet) {
		set.CreationTimestamp, other.CreationTimestamp = other.CreationTimestamp, set.CreationTimestamp
	}
	tests := map[string]struct {
		given
		want string
	}{
		"we are older":                             {given{}, ""},
		"it is older":                              {given{change: younger}, "b"},
		"of one age, our UID is lower":             {given{change: func(s, o *appsv1.StatefulSet) { o.CreationTimestamp = s.CreationTimestamp }}, ""},
		"of one age, its UID is lower":             {given{change: func(s, o *appsv1.StatefulSet) { o.CreationTimestamp, o.UID = s.CreationTimestamp, "a" }}, "b"},
		"it has a pod":                             {given{theirs: true}, "b"},
		"we have a pod":                            {given{ours: true, change: younger}, ""},
		"both have pods, it is older":              {given{theirs: true, ours: true, change: younger}, "b"},
		"both have pods, we are older":             {given{theirs: true, ours: true}, ""},
		"labels are its":                           {given{claim: labelled("b"), ours: true}, "b"},
		"labels are ours":                          {given{claim: labelled("a-b"), theirs: true, change: younger}, ""},
		"labels are nobody's":                      {given{claim: labelled(""), theirs: true}, "b"},
		"it owns":                                  {given{claim: labelled("a-b", owner("StatefulSet", "b", "b")), ours: true}, "b"},
		"its pod owns":                             {given{claim: labelled("a-b", owner("Pod", "b-0", "x")), ours: true}, "b"},
		"we own":                                   {given{claim: labelled("b", owner("StatefulSet", "a-b", "a-b")), theirs: true, change: younger}, ""},
		"our pod owns":                             {given{claim: labelled("b", owner("Pod", "a-b-0", "x")), theirs: true, change: younger}, ""},
		"both own, labels are its":                 {given{claim: labelled("b", owner("StatefulSet", "b", "b"), owner("Pod", "a-b-0", "x")), ours: true}, "b"},
		"one of its name owned":                    {given{claim: labelled("a-b", owner("StatefulSet", "b", "former")), theirs: true}, ""},
		"a pod of another ordinal owns":            {given{claim: labelled("a-b", owner("Pod", "b-1", "x"))}, ""},
		"neither has it, and it does not want it":  {given{ordinal: 2, change: younger}, ""},
		"it does not want it any more, and had it": {given{ordinal: 2, claim: labelled("b"), change: younger}, "b"},
		"it cannot be read": {given{claim: labelled("b"), ours: true, change: func(_, o *appsv1.StatefulSet) {
			o.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Operator: "Like"}}
		}}, ""},
		"it shares the claims of another template": {given{template: "logs", theirs: true}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			set, other := rivals()
			if test.change != nil {
				test.change(set, other)
			}
			template := test.template
			if template == "" {
				template = "data"
			}
			r := Rival{Set: other, Template: "data", Ordinals: map[int]bool{test.ordinal: test.theirs}}
			got, held := HeldBy(set, test.claim, template, test.ordinal, test.ours, []Rival{r})
			if got != test.want || held != (test.want != "") {
				t.Errorf("it is held by %q (%t), want %q", got, held, test.want)
			}
		})
	}
}

// Of two sets that share a claim, exactly one may have it, as far as the evidence that both see tells.
func TestExactlyOneHolds(t *testing.T) {
	set, other := rivals()
	for _, c := range []*corev1.PersistentVolumeClaim{
		nil,
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "b"}}},
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a-b"}}},
		{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner("Pod", "b-0", "x")}}},
	} {
		for _, ours := range []bool{true, false} {
			for _, theirs := range []bool{true, false} {
				_, held := HeldBy(set, c, "data", 0, ours, []Rival{{Set: other, Template: "data", Ordinals: map[int]bool{0: theirs}}})
				_, heldToo := HeldBy(other, c, "data-a", 0, theirs, []Rival{{Set: set, Template: "data-a", Ordinals: map[int]bool{0: ours}}})
				if held == heldToo {
					t.Errorf("claim %v, pods %t and %t: both or neither may have it (%t)", c, ours, theirs, !held)
				}
			}
		}
	}
	if _, held := HeldBy(set, nil, "data", 0, false, nil); held {
		t.Error("it is held although there is no rival")
	}
}
