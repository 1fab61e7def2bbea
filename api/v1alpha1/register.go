// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of the resource.
const (
	// Group is the API group.
	Group = "ordinal.dev"
	// Resource is the plural under which policies are served.
	Resource = "statefulsetpolicies"
	// Kind is the kind of a policy.
	Kind = "StatefulSetPolicy"
)

// GroupVersion is the group and version of this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1alpha1"}
}

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &StatefulSetPolicy{}, &StatefulSetPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
