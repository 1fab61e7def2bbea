// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// User is the user that Run's client is to authenticate as.
const User = "system:ordinal-storage"

// ClusterRole returns the rights that Run needs, and no more.
func ClusterRole() *rbacv1.ClusterRole {
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: User},
		Rules: []rbacv1.PolicyRule{
			rule("", "persistentvolumes", "get", "list", "watch", "create", "delete", "patch"),
			// Update takes the scheduler's choice of another node off a claim.
			rule("", "persistentvolumeclaims", "get", "list", "watch", "update"),
			rule("", "persistentvolumeclaims/status", "patch"),
			rule("storage.k8s.io", "storageclasses", "get", "list", "watch"),
			rule("", "events", "create", "patch"),
		},
	}
}

// ClusterRoleBinding gives the rights of ClusterRole to User.
func ClusterRoleBinding() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: User},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: User},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: User}},
	}
}
