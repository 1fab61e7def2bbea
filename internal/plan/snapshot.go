// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a StatefulSet needs next. Make is pure: it has no client, clock, randomness or log, and the
// same snapshot in any order gives the same plan.
package plan

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/revision"
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
	// EvictAfter tells, by pod name, the moment before which its eviction is not asked for again, because that was refused.
	EvictAfter map[string]time.Time
	// Unstuck are the names of pods that were replaced because they were stuck at a revision that is not wanted. They come
	// back at the update revision, whatever the set's status counts. It does no harm if this is forgotten.
	Unstuck map[string]bool
	// Found is what the plan before found; zero for nothing. It spares a search, and does no harm if it is forgotten.
	Found revision.Found
	// Policies are those that name the set.
	Policies []*v1alpha1.StatefulSetPolicy
	// Rivals are other sets of the namespace whose claims bear the same names.
	Rivals  []claim.Rival
	Options Options
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
	// Strict does as Kubernetes 1.37 does, also where that is known to get stuck: pods that are stuck at a revision that is
	// not wanted stay, a condemned pod that is not available waits, nothing is known of rivals, and no condition is set. Policies
	// are obeyed all the same: somebody asked for them.
	Strict bool
}
