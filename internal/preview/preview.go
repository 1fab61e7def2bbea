// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preview tells what an edit of a StatefulSet would do: it lets the planner work in the model world until that comes
// to rest, and writes down what happens. It is pure.
package preview

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

// MaxTime is how far into the future a preview looks, and maxSteps is how many plans it makes.
const (
	MaxTime  = 30 * 24 * time.Hour
	maxSteps = 100_000
)

// Edit is what is to be looked at beforehand.
type Edit struct {
	// Live is what there is. Its Set is nil if there is no such set; its pods, claims and revisions are then those that the set
	// will meet.
	Live plan.Snapshot
	// After is the set as the API server would keep it; nil if it is deleted.
	After *appsv1.StatefulSet
	// Policies are those that will name the set.
	Policies []*v1alpha1.StatefulSetPolicy
	// Anew means that the set is deleted without its pods, and After made in its place.
	Anew bool
}

// Verb is what happens to an object.
type Verb string

// What happens to objects.
const (
	Create  Verb = "create"
	Delete  Verb = "delete"
	Evict   Verb = "evict"
	Adopt   Verb = "adopt"
	Release Verb = "release"
	// Reuse means that an old revision is wanted again.
	Reuse Verb = "reuse"
	// Keep means that a claim stays although its pod goes.
	Keep Verb = "keep"
	// Own means that a claim gets other owners.
	Own Verb = "own"
	// Label means that a pod gets its labels back.
	Label Verb = "label"
	// Tell means that a pod is told that it goes, or that it stays.
	Tell Verb = "tell"
	// Wait means that time passes because a rule says so.
	Wait Verb = "wait"
)

// Happening is one thing that happens.
type Happening struct {
	Verb Verb `json:"verb"`
	// Kind and Name are what it happens to.
	Kind plan.Kind `json:"kind"`
	Name string    `json:"name"`
	// Revision is the one that the pod is made from.
	Revision string `json:"revision,omitempty"`
	// Next is the revision at which a pod that is deleted comes back; empty if it does not.
	Next string `json:"next,omitempty"`
	// Owners are those that a claim gets.
	Owners []string `json:"owners,omitempty"`
	// Reason is why it happens.
	Reason plan.Reason `json:"reason,omitempty"`
	// Because is the reason in words.
	Because string `json:"because,omitempty"`
	// Seconds is how long is waited.
	Seconds int64 `json:"seconds,omitempty"`
}

// Stop is what holds up the set at the end, and will not end by itself.
type Stop struct {
	Reason plan.Reason `json:"reason"`
	// Kind and Name are what has to change.
	Kind plan.Kind `json:"kind"`
	Name string    `json:"name"`
	// For is the pod that is held up, if it is another one.
	For string `json:"for,omitempty"`
	// Text is all of it in words.
	Text string `json:"text"`
}

// StopMaxTime is the reason of the stop that ends a preview that comes to no end.
const StopMaxTime plan.Reason = "MaxTime"

// Pod is a pod at the end.
type Pod struct {
	Name     string `json:"name"`
	Revision string `json:"revision"`
	// Available means that it is ready, and has been for minReadySeconds.
	Available bool `json:"available"`
}

// End is what there is at the end.
type End struct {
	Wanted          int      `json:"wanted"`
	Available       int      `json:"available"`
	CurrentRevision string   `json:"currentRevision,omitempty"`
	UpdateRevision  string   `json:"updateRevision,omitempty"`
	Pods            []Pod    `json:"pods"`
	Claims          []string `json:"claims"`
	Revisions       []string `json:"revisions"`
}

// Totals count what happens.
type Totals struct {
	// PodsCreated are those that were not there before, and PodsDeleted those that do not come back.
	PodsCreated      int `json:"podsCreated"`
	PodsReplaced     int `json:"podsReplaced"`
	PodsDeleted      int `json:"podsDeleted"`
	ClaimsCreated    int `json:"claimsCreated"`
	ClaimsKept       int `json:"claimsKept"`
	ClaimsDeleted    int `json:"claimsDeleted"`
	RevisionsCreated int `json:"revisionsCreated"`
}

// Preview is what an edit would do.
type Preview struct {
	Happenings []Happening `json:"happenings"`
	// Stops are why the set is not as its spec wants it at the end, or may not be for long.
	Stops  []Stop `json:"stops"`
	End    End    `json:"end"`
	Totals Totals `json:"totals"`
}

// Of tells what an edit would do.
func Of(e Edit) Preview {
	r := begin(e)
	switch {
	case e.After == nil:
		r.world.Delete()
		r.noteGone()
	case e.Anew:
		r.world.Orphan()
		r.replaceSet(e.After)
	case e.Live.Set != nil:
		r.replaceSet(e.After)
	}
	r.run()
	return r.finish()
}
