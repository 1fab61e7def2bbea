// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// Kind is the kind of an object that a plan speaks of.
type Kind string

// The kinds that plans speak of.
const (
	KindSet      Kind = "StatefulSet"
	KindPod      Kind = "Pod"
	KindClaim    Kind = "PersistentVolumeClaim"
	KindRevision Kind = "ControllerRevision"
)

// Ref names one object. With a UID it is that object and no later one of the same name; with a resource version it is the
// object as it was seen.
type Ref struct {
	Kind            Kind
	Name            string
	UID             types.UID
	ResourceVersion string
}

func (r Ref) String() string {
	word := map[Kind]string{KindSet: "set", KindPod: "pod", KindClaim: "claim", KindRevision: "revision"}[r.Kind]
	return word + " " + r.Name
}

// Action is one write. What it names by UID or resource version has to hold when it is carried out, or else it conflicts
// and has no effect.
//
//sumtype:decl
type Action interface {
	fmt.Stringer
	// Target is the object that the action writes.
	Target() Ref
	// Why is the reason for the action.
	Why() Reason
	sealed()
}

// AdoptPod makes the set the controller of a pod that has none, provided the set is not being deleted meanwhile.
type AdoptPod struct{ Pod Ref }

// ReleasePod ends the set's ownership of a pod.
type ReleasePod struct{ Pod Ref }

// CreatePod creates a pod.
type CreatePod struct{ Pod *corev1.Pod }

// LabelPod sets labels of a pod.
type LabelPod struct {
	Pod    Ref
	Labels map[string]string
}

// DeletePod deletes a pod, with the grace that its spec asks for.
type DeletePod struct {
	Pod    Ref
	Reason Reason
	// Evict means that the pod's eviction is asked for, so that PodDisruptionBudgets hold.
	Evict bool
}

// TellPod tells a pod by its annotations that it is about to be removed, or that it is not.
type TellPod struct {
	Pod Ref
	// Stop is why the pod will be removed, for the annotation ordinal.dev/stop-reason; empty if it stays.
	Stop string
	// At is when it will be removed at the earliest; zero for at once.
	At time.Time
}

// CreateClaim creates a claim for a pod.
type CreateClaim struct {
	Claim *corev1.PersistentVolumeClaim
	// Pod is the name of the pod that will use the claim.
	Pod string
}

// OwnClaim replaces the owner references of a claim.
type OwnClaim struct {
	Claim  Ref
	Owners []metav1.OwnerReference
	// Pod is the name of the pod that uses the claim.
	Pod string
}

// AdoptRevision makes the set the controller of a revision that has none, provided the set is not being deleted meanwhile.
type AdoptRevision struct{ Revision Ref }

// CreateRevision creates a revision. If the name is taken by other data, the outcome is a collision.
type CreateRevision struct{ Revision *appsv1.ControllerRevision }

// BumpRevision gives a revision another number.
type BumpRevision struct {
	Revision Ref
	Number   int64
}

// DeleteRevision deletes a revision.
type DeleteRevision struct{ Revision Ref }

func (AdoptPod) sealed()       {}
func (ReleasePod) sealed()     {}
func (CreatePod) sealed()      {}
func (LabelPod) sealed()       {}
func (DeletePod) sealed()      {}
func (TellPod) sealed()        {}
func (CreateClaim) sealed()    {}
func (OwnClaim) sealed()       {}
func (AdoptRevision) sealed()  {}
func (CreateRevision) sealed() {}
func (BumpRevision) sealed()   {}
func (DeleteRevision) sealed() {}

// Target is the pod.
func (a AdoptPod) Target() Ref { return a.Pod }

// Target is the pod.
func (a ReleasePod) Target() Ref { return a.Pod }

// Target is the pod to be; it has no UID yet.
func (a CreatePod) Target() Ref { return Ref{Kind: KindPod, Name: a.Pod.Name} }

// Target is the pod.
func (a LabelPod) Target() Ref { return a.Pod }

// Target is the pod.
func (a DeletePod) Target() Ref { return a.Pod }

// Target is the pod.
func (a TellPod) Target() Ref { return a.Pod }

// Target is the claim to be; it has no UID yet.
func (a CreateClaim) Target() Ref { return Ref{Kind: KindClaim, Name: a.Claim.Name} }

// Target is the claim.
func (a OwnClaim) Target() Ref { return a.Claim }

// Target is the revision.
func (a AdoptRevision) Target() Ref { return a.Revision }

// Target is the revision to be; it has no UID yet.
func (a CreateRevision) Target() Ref { return Ref{Kind: KindRevision, Name: a.Revision.Name} }

// Target is the revision.
func (a BumpRevision) Target() Ref { return a.Revision }

// Target is the revision.
func (a DeleteRevision) Target() Ref { return a.Revision }

// Why is ReasonMatches.
func (AdoptPod) Why() Reason { return ReasonMatches }

// Why is ReasonNoMatch.
func (ReleasePod) Why() Reason { return ReasonNoMatch }

// Why is ReasonNoPod.
func (CreatePod) Why() Reason { return ReasonNoPod }

// Why is ReasonIdentity.
func (LabelPod) Why() Reason { return ReasonIdentity }

// Why is the reason for which the pod has to go.
func (a DeletePod) Why() Reason { return a.Reason }

// Why is ReasonStop or ReasonStay.
func (a TellPod) Why() Reason {
	if a.Stop == "" {
		return ReasonStay
	}
	return ReasonStop
}

// Why is ReasonNoClaim.
func (CreateClaim) Why() Reason { return ReasonNoClaim }

// Why is ReasonRetention.
func (OwnClaim) Why() Reason { return ReasonRetention }

// Why is ReasonMatches.
func (AdoptRevision) Why() Reason { return ReasonMatches }

// Why is ReasonNewTemplate.
func (CreateRevision) Why() Reason { return ReasonNewTemplate }

// Why is ReasonOldTemplate.
func (BumpRevision) Why() Reason { return ReasonOldTemplate }

// Why is ReasonHistoryLimit.
func (DeleteRevision) Why() Reason { return ReasonHistoryLimit }

func (a AdoptPod) String() string {
	return fmt.Sprintf("adopt %s: it has no owner and matches", a.Pod)
}

func (a ReleasePod) String() string {
	return fmt.Sprintf("release %s: it no longer matches", a.Pod)
}

func (a CreatePod) String() string {
	return fmt.Sprintf("create pod %s at %s: there is none", a.Pod.Name, podstate.Revision(a.Pod))
}

func (a LabelPod) String() string {
	pairs := make([]string, 0, len(a.Labels))
	for _, key := range slices.Sorted(maps.Keys(a.Labels)) {
		pairs = append(pairs, key+"="+a.Labels[key])
	}
	return fmt.Sprintf("label %s with %s: it is its identity", a.Pod, strings.Join(pairs, ", "))
}

func (a DeletePod) String() string {
	why := map[Reason]string{
		ReasonFailed:         "it failed",
		ReasonSucceeded:      "it ended, and it should run",
		ReasonScaledDown:     "the set is scaled below it",
		ReasonOutdated:       "it is outdated",
		ReasonOutdatedBroken: "it is outdated and not available",
		ReasonRecreate:       "it is outdated and all are recreated",
		ReasonStuck:          "it is not ready, and its revision is not the one that it should have",
	}[a.Reason]
	verb := "delete"
	if a.Evict {
		verb = "evict"
	}
	return fmt.Sprintf("%s %s: %s", verb, a.Pod, why)
}

func (a TellPod) String() string {
	if a.Stop == "" {
		return fmt.Sprintf("tell %s that it stays", a.Pod)
	}
	text := fmt.Sprintf("tell %s that it goes: %s", a.Pod, a.Stop)
	if !a.At.IsZero() {
		text += ", at " + a.At.UTC().Format(time.RFC3339)
	}
	return text
}

func (a CreateClaim) String() string {
	text := "create claim " + a.Claim.Name
	if owners := describeOwners(a.Claim.OwnerReferences); owners != "" {
		text += " owned by " + owners
	}
	return text
}

func (a OwnClaim) String() string {
	owners := describeOwners(a.Owners)
	if owners == "" {
		owners = "nobody"
	}
	return fmt.Sprintf("let %s be owned by %s: the retention policy says so", a.Claim, owners)
}

func (a AdoptRevision) String() string {
	return fmt.Sprintf("adopt %s: it has no owner and matches", a.Revision)
}

func (a CreateRevision) String() string {
	return fmt.Sprintf("create revision %s as number %d: the template is new", a.Revision.Name, a.Revision.Revision)
}

func (a BumpRevision) String() string {
	return fmt.Sprintf("number %s %d: its template is wanted again", a.Revision, a.Number)
}

func (a DeleteRevision) String() string {
	return fmt.Sprintf("delete %s: it is past the history limit", a.Revision)
}

func describeOwners(refs []metav1.OwnerReference) string {
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.Kind + " " + r.Name
	}
	return strings.Join(names, " and ")
}

func refPod(p *corev1.Pod) Ref {
	return Ref{Kind: KindPod, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
}

func refClaim(c *corev1.PersistentVolumeClaim) Ref {
	return Ref{Kind: KindClaim, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
}

func refRevision(r *appsv1.ControllerRevision) Ref {
	return Ref{Kind: KindRevision, Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion}
}
