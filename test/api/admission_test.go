// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onlyHere selects the namespace of the space.
func (s *space) onlyHere() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.name}}
}

// podCreations are the requests that create pods.
func podCreations() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}
}

// deny refuses pods of which an expression is not true, from now on until the function is called that it gives.
func (s *space) deny(expression, message string) func() {
	s.t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
				{RuleWithOperations: podCreations()},
			}},
			// The probe, by which is found out whether the policy is in force, is always refused.
			Validations: []admissionv1.Validation{
				{Expression: "object.metadata.name != 'probe'", Message: "in force"},
				{Expression: expression, Message: message},
			},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: s.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: s.onlyHere()},
		},
	}
	client := env.client.AdmissionregistrationV1()
	if _, err := client.ValidatingAdmissionPolicies().Create(s.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	bindings := client.ValidatingAdmissionPolicyBindings()
	if _, err := bindings.Create(s.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	poll(s.t, "the policy is in force", func(ctx context.Context) string {
		_, err := env.client.CoreV1().Pods(s.name).Create(ctx, barePod("probe", "probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return unless(err != nil && strings.Contains(err.Error(), "in force"), fmt.Sprint(err))
	})
	return func() {
		s.t.Helper()
		if err := bindings.Delete(s.t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// barePod is a pod that no controller made.
func barePod(name, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "ordinal.dev/model:0"}}},
	}
}

// quota lets there be that many pods in the space, and returns when it does.
func (s *space) quota(pods int) {
	s.t.Helper()
	quotas := env.client.CoreV1().ResourceQuotas(s.name)
	hard := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(pods), resource.DecimalSI)}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	_, err := quotas.Create(s.t.Context(), q, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = quotas.Update(s.t.Context(), q, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	poll(s.t, "the quota is in force", func(ctx context.Context) string {
		q, err := quotas.Get(ctx, "pods", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		got := q.Status.Hard[corev1.ResourcePods]
		return unless(got.Value() == int64(pods), fmt.Sprintf("%+v", q.Status))
	})
}

// renew makes the namespace anew after it has gone.
func (s *space) renew() {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if _, err := env.client.CoreV1().Namespaces().Create(s.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.awaitAccount()
}
