// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// What is loaded is all of each object, as it was at that moment.
func TestLoad(t *testing.T) {
	web := set("web", "data")
	web.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	p := pod("web-0", "StatefulSet/web")
	p.Annotations = map[string]string{"a": "b"}
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	c := newClaim("data-web-0")
	c.Spec.VolumeName = "pv"
	elsewhere := pod("web-1", "")
	elsewhere.Namespace = "elsewhere"
	client := fake.NewClientset(web, p, c, elsewhere, revision("a-1", "StatefulSet/web"))
	// The fake server drops managed fields that it has not written.
	client.PrependReactor("list", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &appsv1.StatefulSetList{Items: []appsv1.StatefulSet{*web}}, nil
	})
	o, err := Load(t.Context(), client, newFakePolicies(t, policyOf("a", "web")).client, "default", plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, view, err := o.Look(Key{Namespace: "default", Name: "web"}, time.Time{})
	if err != nil || view != Fresh {
		t.Fatalf("view is %d, %v", view, err)
	}
	expect(t, "pods", s.Pods, "web-0")
	expect(t, "claims", s.Claims, "data-web-0")
	expect(t, "revisions", s.Revisions, "a-1")
	expect(t, "policies", s.Policies, "a")
	if len(s.Set.ManagedFields) == 0 || len(s.Pods[0].Spec.Containers) == 0 || s.Pods[0].Annotations["a"] == "" || s.Claims[0].Spec.VolumeName == "" {
		t.Errorf("something is missing of %+v, %+v, %+v", s.Set.ManagedFields, s.Pods[0], s.Claims[0])
	}
}

// Only policies may be unknown to a cluster.
func TestLoadFails(t *testing.T) {
	f := newFakePolicies(t)
	f.trouble.Store(notServed())
	o, err := Load(t.Context(), fake.NewClientset(set("web")), f.client, "default", plan.Options{})
	if err != nil {
		t.Fatalf("without policies: %v", err)
	}
	if s, view, err := o.Look(Key{Namespace: "default", Name: "web"}, time.Time{}); err != nil || view != Fresh || len(s.Policies) > 0 {
		t.Errorf("view is %d of %v, %v", view, s.Policies, err)
	}
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no rights")
	})
	if _, err := Load(t.Context(), client, nil, "default", plan.Options{}); err == nil || !strings.Contains(err.Error(), "list Pod: no rights") {
		t.Errorf("the error is %v", err)
	}
}
