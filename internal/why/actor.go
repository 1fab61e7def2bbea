// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// Actor is the controller that works on a set.
type Actor string

// The controllers that work on sets.
const (
	// Ordinal is ours.
	Ordinal Actor = "ordinal"
	// Incumbent is the one of Kubernetes.
	Incumbent Actor = "kube-controller-manager"
	// Unknown means that no trace of either was found.
	Unknown Actor = ""
)

// ActorOf tells which controller works on a set: the one that wrote its status last, or, if the set has no status yet, or if ours
// has begun to lead since, the one that holds our lease. The lease is nil if there is none or if it cannot be read.
func ActorOf(set *appsv1.StatefulSet, lease *coordinationv1.Lease, now time.Time) Actor {
	writer, at := statusWriter(set)
	leads := isHeld(lease, now)
	switch {
	case isOurs(writer):
		return Ordinal
	case leads && (writer == "" || lease.Spec.AcquireTime == nil || lease.Spec.AcquireTime.After(at)):
		return Ordinal
	case writer == string(Incumbent):
		return Incumbent
	}
	return Unknown
}

// statusWriter is who wrote the set's status last, as the API server calls it by its user agent, and when.
func statusWriter(set *appsv1.StatefulSet) (string, time.Time) {
	writer, last := "", time.Time{}
	for _, f := range set.ManagedFields {
		if f.Subresource != "status" || f.Time == nil || f.Time.Time.Before(last) {
			continue
		}
		writer, last = f.Manager, f.Time.Time
	}
	return writer, last
}

// isOurs tells if a field manager is our binary, whatever is added to its name.
func isOurs(manager string) bool {
	return manager == string(Ordinal) || strings.HasPrefix(manager, string(Ordinal)+"-")
}

func isHeld(lease *coordinationv1.Lease, now time.Time) bool {
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return false
	}
	// Clocks differ a little, and a leader that was lost is replaced soon.
	return now.Sub(lease.Spec.RenewTime.Time) < time.Minute
}
