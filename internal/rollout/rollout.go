// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout tells how far the rollout of a StatefulSet's template has come, whichever controller runs it, and lets people
// hold it up, go on, and try again through its policy.
package rollout

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/policy"
)

// Subject is a set with all that its rollout depends on. It is read only.
type Subject struct {
	Set *appsv1.StatefulSet
	// Pods may hold pods of others too.
	Pods []*corev1.Pod
	// Policies are those that name the set; none where the controller does not know them.
	Policies []*v1alpha1.StatefulSetPolicy
	Now      time.Time
}

// Progress is how many pods have the template of a set.
type Progress struct {
	// Wanted is how many pods are to have it: those of the set's range that the partition does not keep.
	Wanted int
	// Updated is how many of them have it and stay, and Available is how many of those are available.
	Updated, Available int
	// Old are the names of those that have another one, ascending. Pods that are on their way out are not among them.
	Old []string
	// Kept are the names of those that have another one because of the partition, ascending.
	Kept []string
	// Serving is how many pods of the range are available, and Count how many there should be.
	Serving, Count int
	// Unavailable are the pods of the template that are not available, ascending.
	Unavailable []*corev1.Pod
}

// IsDone tells if all pods that may have the template have it and are available.
func (p *Progress) IsDone() bool {
	return p.Available == p.Wanted
}

// Measure counts the pods of the set whose revision is called update.
func (s Subject) Measure(update string) Progress {
	span := policy.Of(s.Policies).Range(s.Set)
	first := plan.FirstUpdated(s.Set, span)
	p := Progress{Count: span.Count, Wanted: span.Count - span.Below(first)}
	for _, m := range s.members() {
		if !span.Contains(m.ordinal) || podstate.IsTerminating(m.pod) {
			continue
		}
		p.add(m, m.ordinal >= first, podstate.Revision(m.pod) == update, podstate.IsServing(m.pod, s.Set.Spec.MinReadySeconds, s.Now))
	}
	return p
}

func (p *Progress) add(m member, wanted, updated, serving bool) {
	if serving {
		p.Serving++
	}
	switch {
	case !updated && wanted:
		p.Old = append(p.Old, m.pod.Name)
	case !updated:
		p.Kept = append(p.Kept, m.pod.Name)
	case !wanted:
	case serving:
		p.Updated++
		p.Available++
	default:
		p.Updated++
		p.Unavailable = append(p.Unavailable, m.pod)
	}
}

// member is a pod that the set owns.
type member struct {
	pod     *corev1.Pod
	ordinal int
}

// members are the set's own pods, from the lowest ordinal on.
func (s Subject) members() []member {
	var all []member
	for _, pod := range s.Pods {
		n, named := ordinal.Of(s.Set.Name, pod.Name)
		if named && metav1.IsControlledBy(pod, s.Set) {
			all = append(all, member{pod: pod, ordinal: n})
		}
	}
	slices.SortFunc(all, func(a, b member) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return all
}
