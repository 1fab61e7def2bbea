// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
)

// User is the user that Run's client authenticates as in a cluster of our own.
const User = "system:ordinal-controller"

// ClusterRole returns the rights that Run needs, and no more. A test at a real API server takes away one verb after the other, and
// sees each one missed.
func ClusterRole() *rbacv1.ClusterRole {
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: User},
		Rules: []rbacv1.PolicyRule{
			// Caches are filled by a watch alone where the API server can do that, and by a list where it cannot. What is read
			// past them is the set before it adopts something, and a revision whose name is taken.
			rule("apps", "statefulsets", "get", "list", "watch"),
			rule("apps", "statefulsets/status", "update"),
			rule("apps", "controllerrevisions", "get", "list", "watch", "create", "patch", "delete"),
			rule("", "pods", "list", "watch", "create", "patch", "delete"),
			rule("", "pods/eviction", "create"),
			// No claim is deleted. But where admission checks owners, only who may delete an object may change those it has.
			rule("", "persistentvolumeclaims", "list", "watch", "create", "patch", "delete"),
			rule(v1alpha1.Group, v1alpha1.Resource, "list", "watch"),
			rule(v1alpha1.Group, v1alpha1.Resource+"/status", "update"),
			rule("", "events", "create", "patch"),
			// And an owner whose deletion waits may be named only by who may update its finalizers.
			rule("apps", "statefulsets/finalizers", "update"),
			rule("", "pods/finalizers", "update"),
			// The lease of the leader.
			rule("coordination.k8s.io", "leases", "get", "create", "update"),
		},
	}
}
