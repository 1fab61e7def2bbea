// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/preview"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

func TestFields(t *testing.T) {
	before := sim.NewSet("web", 3)
	before.ResourceVersion, before.Generation, before.Status.Replicas = "1", 1, 3
	before.Annotations = map[string]string{lastApplied: "{}"}
	for name, c := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   []string
	}{
		"what the server keeps": {func(s *appsv1.StatefulSet) {
			s.ResourceVersion, s.Generation, s.Status.Replicas, s.Annotations = "2", 2, 2, nil
		}, nil},
		"a value": {func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(5)) }, []string{"spec.replicas: 3 becomes 5"}},
		"an element": {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" }, []string{
			`spec.template.spec.containers[main].image: "one" becomes "two"`,
		}},
		"another element": {func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers = append(s.Spec.Template.Spec.Containers, corev1.Container{Name: "side"})
		}, []string{"spec.template.spec.containers[side] is added"}},
		"a removal": {func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate = nil }, []string{
			"spec.updateStrategy.rollingUpdate is removed",
		}},
		"a claim": {func(s *appsv1.StatefulSet) {
			s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
		}, []string{"spec.volumeClaimTemplates[data].spec.resources.requests is added"}},
		"a list without names": {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Command = []string{"a"} }, []string{
			"spec.template.spec.containers[main].command is added",
		}},
		"annotations": {func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{"a": "b"} }, []string{
			"metadata.annotations is added",
		}},
	} {
		after := before.DeepCopy()
		c.change(after)
		fields, err := fieldsOf(before, after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range fields {
			got = append(got, f.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: fields are %q, want %q", name, got, c.want)
		}
	}
}

func TestChange(t *testing.T) {
	two := func(s *appsv1.StatefulSet) {
		spec := &s.Spec.Template.Spec
		spec.Containers = append(spec.Containers, corev1.Container{Name: "side", Image: "one", Env: []corev1.EnvVar{{Name: "A", Value: "a"}}})
		spec.InitContainers = []corev1.Container{{Name: "first", Image: "one"}}
	}
	set := sim.NewSet("web", 3, two)
	c := Change{Images: []string{"side=two", "first=three"}, Env: []string{"A=x=y", "B="}, Replicas: new(int32(0)), Partition: new(int32(2))}
	if err := c.apply(set); err != nil {
		t.Fatal(err)
	}
	spec := set.Spec.Template.Spec
	if spec.Containers[0].Image != "one" || spec.Containers[1].Image != "two" || spec.InitContainers[0].Image != "three" {
		t.Errorf("containers are %+v", spec)
	}
	if want := []corev1.EnvVar{{Name: "A", Value: "x=y"}, {Name: "B"}}; !reflect.DeepEqual(spec.Containers[1].Env, want) ||
		!reflect.DeepEqual(spec.Containers[0].Env, want) {
		t.Errorf("environments are %+v", spec.Containers)
	}
	if *set.Spec.Replicas != 0 || *set.Spec.UpdateStrategy.RollingUpdate.Partition != 2 {
		t.Errorf("the spec is %+v", set.Spec)
	}
	for words, bad := range map[string]struct {
		Change

		options []func(*appsv1.StatefulSet)
	}{
		"name the one":     {Change{Images: []string{"two"}}, []func(*appsv1.StatefulSet){two}},
		"no container nob": {Change{Images: []string{"nobody=two"}}, nil},
		"name=value":       {Change{Env: []string{"A"}}, nil},
		"OnDelete": {Change{Partition: new(int32(1))}, []func(*appsv1.StatefulSet){func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}}},
	} {
		if err := bad.apply(sim.NewSet("web", 3, bad.options...)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("the error is %v, which lacks %q", err, words)
		}
	}
	alone := sim.NewSet("web", 3)
	if err := (Change{Images: []string{"two"}}).apply(alone); err != nil || alone.Spec.Template.Spec.Containers[0].Image != "two" {
		t.Errorf("the image is %s: %v", alone.Spec.Template.Spec.Containers[0].Image, err)
	}
}

func policyNamed(name, target string) *v1alpha1.StatefulSetPolicy {
	return &v1alpha1.StatefulSetPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       v1alpha1.StatefulSetPolicySpec{TargetRef: v1alpha1.TargetRef{Name: target}},
	}
}

// What the policies of a set will be: those of the files take the place of those of the same name, and may name another set.
func TestAmend(t *testing.T) {
	kind := v1alpha1.GroupVersion().WithKind(v1alpha1.Kind)
	policyEdit := func(namespace string, before, after runtime.Object) *edit {
		return &edit{kind: kind, namespace: namespace, live: before, after: after}
	}
	live := []*v1alpha1.StatefulSetPolicy{policyNamed("a", "web"), policyNamed("b", "web")}
	edits := []*edit{
		policyEdit("default", policyNamed("a", "web"), policyNamed("a", "other")),
		policyEdit("default", policyNamed("c", "other"), policyNamed("c", "web")),
		policyEdit("elsewhere", nil, policyNamed("d", "web")),
	}
	got, err := amend(live, observe.Key{Namespace: "default", Name: "web"}, edits)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range got {
		names = append(names, p.Name)
	}
	if want := []string{"b", "c"}; !slices.Equal(names, want) {
		t.Errorf("policies are %v, want %v", names, want)
	}
	targets, err := targetsOf(edits)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(targets, observe.Key{Namespace: "default", Name: "web"}) ||
		!slices.Contains(targets, observe.Key{Namespace: "default", Name: "other"}) {
		t.Errorf("targets are %v", targets)
	}
}

// A report says what it has to within 80 columns.
func TestReport(t *testing.T) {
	long := strings.Repeat("a-word-of-many ", 12)
	r := Report{
		Sets: []Set{
			{Object: Object{Kind: "StatefulSet", Namespace: "default", Name: "web", Outcome: Refused, Refusal: long}},
			{
				Object: Object{Kind: "StatefulSet", Namespace: "default", Name: "db", Outcome: Refused, Refusal: "the server's words"},
				Fixed:  []string{"spec.serviceName"}, Way: []string{"kubectl delete sts db"}, Preview: &preview.Preview{},
			},
		},
		Others: []Object{{Kind: "Service", Namespace: "new", Name: "db", Outcome: Created, Unchecked: true}},
		Errors: []string{long},
	}
	for n := range maxFields + 2 {
		r.Others[0].Fields = append(r.Others[0].Fields, Field{Path: "spec.a" + strings.Repeat("b", n), From: "a", To: true})
	}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > 81 {
			t.Errorf("a line of %d characters: %s", len(line)-1, line)
		}
	}
	for _, words := range []string{
		"The server says: a-word-of-many", "spec.serviceName cannot be changed", "\n      kubectl delete sts db\n", "No pod, claim or revision",
		"Service new/db: created (unchecked", `spec.a: "a" becomes true`, "and 2 more fields", "error: a-word",
	} {
		if !strings.Contains(b.String(), words) {
			t.Errorf("%q is not said:\n%s", words, b.String())
		}
	}
	if strings.Contains(b.String(), "the server's words") {
		t.Error("the server's words on what cannot be changed are said, though the way that works is")
	}
	if !r.IsRefused() || !r.IsChange() || (Report{Others: []Object{{Outcome: Unchanged}}}).IsChange() {
		t.Error("refusals and changes are mixed up")
	}
}

func TestFixedFieldsAreKnownByTheRefusal(t *testing.T) {
	if isFixed(errors.New("updates to statefulset spec")) {
		t.Error("any error tells that a field cannot be changed")
	}
}
