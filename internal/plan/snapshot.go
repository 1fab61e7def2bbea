// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a StatefulSet needs next. Make is pure: it has no client, clock, randomness or log, and the
// same snapshot in any order gives the same plan.
package plan

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// AnyPod stands for the name of any pod.
const AnyPod = ""

// Snapshot is all that a decision may depend on. It is read only: the objects belong to caches.
type Snapshot struct {
	// Now is the moment at which the snapshot was taken.
	Now time.Time
	Set *appsv1.StatefulSet
	// Revisions are those that the set owns, and those without an owner that match its selector.
	Revisions []*appsv1.ControllerRevision
	// Pods are those that the set owns, and all others of its namespace that bear a name of its pods.
	Pods []*corev1.Pod
	// Claims are those that bear a name of the set's claims.
	Claims []*corev1.PersistentVolumeClaim
	// CreateAfter tells, by pod name, the moment before which a pod is not created again, because that was refused. AnyPod
	// stands for all that have no moment of their own.
	CreateAfter map[string]time.Time
	// ReplaceAfter tells, by pod name, the moment before which a pod that ended is not replaced again, because it keeps
	// ending.
	ReplaceAfter map[string]time.Time
	Options      Options
}

// Options choose between behaviours. The zero value is Kubernetes 1.37 with its default feature gates.
type Options struct {
	// Defaulter fills in what the API server fills in by default; nil for none.
	Defaulter func(*appsv1.StatefulSet)
	// BytewiseRevisions compares revisions by their bytes only: gate StatefulSetSemanticRevisionComparison off.
	BytewiseRevisions bool
	// IgnoreMaxUnavailable updates one pod at a time: gate MaxUnavailableStatefulSet off.
	IgnoreMaxUnavailable bool
	// Recreate allows the strategy of that name: gate StatefulSetRecreateStrategy on.
	Recreate bool
}
