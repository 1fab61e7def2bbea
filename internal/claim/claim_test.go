// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func newSet(whenScaled, whenDeleted string, templates ...string) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "set"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenScaled:  appsv1.PersistentVolumeClaimRetentionPolicyType(whenScaled),
		WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(whenDeleted),
	}
	for _, name := range templates {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates,
			corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return set
}

// refs reads owners such as "set pod!": a name, and "!" for one that does not control.
func refs(text string) []metav1.OwnerReference {
	var list []metav1.OwnerReference
	for name := range strings.FieldsSeq(text) {
		controls := !strings.HasSuffix(name, "!")
		name = strings.TrimSuffix(name, "!")
		r := map[string]metav1.OwnerReference{
			"set":    {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"},
			"oldset": {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "oldset"},
			"pod":    {APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "pod"},
			"oldpod": {APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "oldpod"},
			"other":  {APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"},
		}[name]
		if controls {
			r.Controller, r.BlockOwnerDeletion = new(true), new(true)
		}
		list = append(list, r)
	}
	return list
}

// names is the reverse of refs.
func names(list []metav1.OwnerReference) string {
	var text []string
	for _, r := range list {
		name := string(r.UID)
		if r.Controller == nil || !*r.Controller {
			name += "!"
		}
		text = append(text, name)
	}
	return strings.Join(text, " ")
}

// Each policy, for a pod in the range and one beyond it, from each set of owners that a claim may have before.
func TestOwners(t *testing.T) {
	tests := []struct {
		whenScaled, whenDeleted string
		before                  string
		inRange, condemned      string
	}{
		{"Retain", "Retain", "", "", ""},
		{"Retain", "Retain", "set", "", ""},
		{"Retain", "Retain", "pod", "", ""},
		{"Retain", "Retain", "set! pod! other!", "other!", "other!"},
		{"Retain", "Retain", "other", "other", "other"},
		{"Retain", "Retain", "other set", "other", "other"},

		{"Retain", "Delete", "", "set", "set"},
		{"Retain", "Delete", "set", "set", "set"},
		{"Retain", "Delete", "set!", "set", "set"},
		{"Retain", "Delete", "pod", "set", "set"},
		{"Retain", "Delete", "other!", "other! set", "other! set"},

		{"Delete", "Retain", "", "", "pod"},
		{"Delete", "Retain", "set", "", "pod"},
		{"Delete", "Retain", "pod", "", "pod"},
		{"Delete", "Retain", "pod!", "", "pod"},

		{"Delete", "Delete", "", "set", "pod"},
		{"Delete", "Delete", "set", "set", "pod"},
		{"Delete", "Delete", "pod", "set", "pod"},
		{"Delete", "Delete", "set pod", "set", "pod"},
		{"Delete", "Delete", "set!", "set", "pod"},

		// What an earlier set or pod of the name owns is left alone.
		{"Delete", "Delete", "oldset", "oldset", "oldset"},
		{"Delete", "Delete", "oldpod", "oldpod", "oldpod"},
		{"Retain", "Retain", "oldpod set", "oldpod set", "oldpod set"},

		// Where another controller owns the claim, ours give way.
		{"Delete", "Delete", "other", "other", "other"},
		{"Delete", "Delete", "other set", "other", "other"},
		{"Retain", "Delete", "other pod!", "other", "other"},

		// An unknown policy retains.
		{"", "Later", "set", "", ""},
	}
	for _, test := range tests {
		for _, condemned := range []bool{false, true} {
			want := test.inRange
			if condemned {
				want = test.condemned
			}
			name := fmt.Sprintf("%s %s from %q condemned %t", test.whenScaled, test.whenDeleted, test.before, condemned)
			t.Run(name, func(t *testing.T) {
				set := newSet(test.whenScaled, test.whenDeleted)
				c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refs(test.before)}}
				v := Owners(set, Holder{Name: "web-0", UID: "pod", Condemned: condemned}, c)
				if got := names(v.Refs); got != want {
					t.Errorf("owners are %q, want %q", got, want)
				}
				if v.Change != (test.before != want) {
					t.Errorf("change is %t", v.Change)
				}
				if names(c.OwnerReferences) != test.before {
					t.Errorf("the claim itself was changed to %q", names(c.OwnerReferences))
				}
				c.OwnerReferences = v.Refs
				if again := Owners(set, Holder{Name: "web-0", UID: "pod", Condemned: condemned}, c); again.Change {
					t.Errorf("the owners %q are changed again, to %q", want, names(again.Refs))
				}
			})
		}
	}
}

func TestConflict(t *testing.T) {
	conflict := func(whenScaled, before string) bool {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refs(before)}}
		return Owners(newSet(whenScaled, "Retain"), Holder{Name: "web-0", UID: "pod"}, c).Conflict
	}
	if !conflict("Delete", "other") || conflict("Delete", "other!") || conflict("Delete", "pod") {
		t.Error("only another controller conflicts with a policy that deletes")
	}
	if conflict("Retain", "other") {
		t.Error("another controller conflicts with a policy that retains")
	}
}

func TestNoPolicyRetains(t *testing.T) {
	set := newSet("", "")
	set.Spec.PersistentVolumeClaimRetentionPolicy = nil
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refs("set pod")}}
	if v := Owners(set, Holder{Name: "web-0", UID: "pod"}, c); !v.Change || len(v.Refs) != 0 {
		t.Errorf("owners are %q", names(v.Refs))
	}
	if DeletesWhenScaled(set) || !DeletesWhenScaled(newSet("Delete", "Retain")) {
		t.Error("DeletesWhenScaled is wrong")
	}
}

// A pod that does not exist yet owns nothing, and a claim of the former pod of its name is seen as such.
func TestOwnersOfMissingPod(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: refs("pod")}}
	missing := Holder{Name: "web-0"}
	if v := Owners(newSet("Delete", "Delete"), missing, c); v.Change {
		t.Errorf("owners become %q", names(v.Refs))
	}
	if !OwnedByEarlierPod(c, missing) || OwnedByEarlierPod(c, Holder{Name: "web-0", UID: "pod"}) {
		t.Error("OwnedByEarlierPod is wrong")
	}
}

func TestNew(t *testing.T) {
	set := newSet("Retain", "Delete", "data")
	template := &set.Spec.VolumeClaimTemplates[0]
	template.Labels = map[string]string{"app": "mine", "tier": "db"}
	template.Annotations = map[string]string{"a": "b"}
	c := New(set, template, 3)
	if c.Name != "data-web-3" || c.Namespace != "default" {
		t.Errorf("claim is %s/%s", c.Namespace, c.Name)
	}
	if want := map[string]string{"app": "web", "tier": "db"}; !equality.Semantic.DeepEqual(c.Labels, want) {
		t.Errorf("labels are %v, want %v", c.Labels, want)
	}
	if c.Annotations["a"] != "b" {
		t.Errorf("annotations are %v", c.Annotations)
	}
	// Owned from the first moment on: https://github.com/kubernetes/kubernetes/issues/142130.
	if names(c.OwnerReferences) != "set" {
		t.Errorf("owners are %q", names(c.OwnerReferences))
	}
	if template.Labels["app"] != "mine" {
		t.Error("the template was changed")
	}
	set.Spec.Selector = nil
	template.Labels = nil
	if c := New(set, template, 0); len(c.Labels) != 0 {
		t.Errorf("labels are %v", c.Labels)
	}
}

func TestTemplatesOfOneName(t *testing.T) {
	set := newSet("", "", "a", "b", "a")
	set.Spec.VolumeClaimTemplates[2].Labels = map[string]string{"last": "yes"}
	templates := slices.Collect(Templates(set))
	if len(templates) != 2 || templates[0].Labels["last"] != "yes" || templates[1].Name != "b" {
		t.Errorf("templates are %v", templates)
	}
	if got, want := Names(set, 4), []string{"a-web-4", "b-web-4"}; !slices.Equal(got, want) {
		t.Errorf("names are %q, want %q", got, want)
	}
}

func TestVolumes(t *testing.T) {
	set := newSet("", "", "data", "logs")
	own := []corev1.Volume{{Name: "cache"}, {Name: "logs"}, {Name: "tmp"}}
	volumes := Volumes(set, own, 1)
	var got []string
	for _, v := range volumes {
		name := v.Name
		if v.PersistentVolumeClaim != nil {
			name += "=" + v.PersistentVolumeClaim.ClaimName
		}
		got = append(got, name)
	}
	want := []string{"data=data-web-1", "logs=logs-web-1", "cache", "tmp"}
	if !slices.Equal(got, want) {
		t.Errorf("volumes are %q, want %q", got, want)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: volumes}}
	if !IsMounted(set, pod, 1) || IsMounted(set, pod, 2) {
		t.Error("the claims of ordinal 1 are not mounted, or those of 2 are")
	}
	pod.Spec.Volumes = own
	if IsMounted(set, pod, 1) {
		t.Error("claims are mounted by volumes that are none")
	}
}

func FuzzOwners(f *testing.F) {
	f.Add("Delete", "Delete", "v1", "Pod", "web-0", "x", true)
	f.Add("Retain", "Delete", "apps/v1", "StatefulSet", "web", "set", false)
	f.Fuzz(func(t *testing.T, whenScaled, whenDeleted, version, kind, name, uid string, controls bool) {
		set := newSet(whenScaled, whenDeleted)
		ref := metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: &controls}
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{ref}}}
		v := Owners(set, Holder{Name: "web-0", UID: "pod"}, c)
		if ours := uid == "set" || uid == "pod"; !ours && !slices.ContainsFunc(v.Refs, func(r metav1.OwnerReference) bool { return r.UID == ref.UID }) {
			t.Errorf("the reference %v of somebody else is gone", ref)
		}
	})
}
