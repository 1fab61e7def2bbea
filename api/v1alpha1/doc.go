// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the types of the group ordinal.dev: StatefulSetPolicy, the companion that says how a StatefulSet
// is rolled out and scaled where the StatefulSet itself has no field for it. Nothing in it runs.
//
// +kubebuilder:object:generate=true
// +groupName=ordinal.dev
package v1alpha1
