// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// finish tells what can only be told at the end.
func (r *recorder) finish() Preview {
	p := &r.preview
	r.link()
	r.noteKept()
	if !r.gone {
		r.noteStops()
	}
	p.End = r.end()
	p.Totals = r.totals()
	return *p
}

// link tells of each pod that goes at which revision it comes back.
func (r *recorder) link() {
	next := map[string]string{}
	for i := range slices.Backward(r.preview.Happenings) {
		h := &r.preview.Happenings[i]
		switch {
		case h.Kind != plan.KindPod:
		case h.Verb == Create:
			next[h.Name] = h.Revision
		case h.Verb == Delete || h.Verb == Evict:
			h.Next = next[h.Name]
			delete(next, h.Name)
		}
	}
}

// noteKept tells, after each pod that does not come back, which of its claims stay.
func (r *recorder) noteKept() {
	var all []Happening
	for _, h := range r.preview.Happenings {
		all = append(all, h)
		pod := r.pods[h.Name]
		if h.Kind != plan.KindPod || (h.Verb != Delete && h.Verb != Evict) || r.world.Pods[h.Name] != nil || pod == nil {
			continue
		}
		for i := range pod.Spec.Volumes {
			v := pod.Spec.Volumes[i].PersistentVolumeClaim
			if v != nil && r.world.Claims[v.ClaimName] != nil && r.isOurs(v.ClaimName, h.Name) {
				all = append(all, Happening{
					Verb: Keep, Kind: plan.KindClaim, Name: v.ClaimName, Reason: plan.ReasonRetention,
				})
			}
		}
	}
	r.preview.Happenings = all
}

// isOurs tells if the claim is one that a template gives the pod, and not one that all pods share.
func (r *recorder) isOurs(claim, pod string) bool {
	return slices.ContainsFunc(r.world.Set.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool {
		return claim == t.Name+"-"+pod
	})
}

func (r *recorder) noteStops() {
	p := plan.Make(r.world.Snapshot())
	for _, w := range p.Waits {
		if !w.Until.IsZero() {
			continue
		}
		r.preview.Stops = append(r.preview.Stops, Stop{
			Reason: w.Reason, Kind: w.On.Kind, Name: w.On.Name, For: w.For, Text: w.Sentence(),
		})
	}
}

func (r *recorder) end() End {
	e := End{Pods: []Pod{}, Claims: names(r.world.Claims), Revisions: names(r.world.Revisions)}
	if r.gone {
		return e
	}
	set := r.world.Set
	if set.Spec.Replicas != nil {
		e.Wanted = int(*set.Spec.Replicas)
	}
	e.CurrentRevision, e.UpdateRevision = set.Status.CurrentRevision, set.Status.UpdateRevision
	for _, name := range r.podNames() {
		pod := r.world.Pods[name]
		if owner := metav1.GetControllerOfNoCopy(pod); owner == nil || owner.UID != set.UID {
			continue
		}
		is := podstate.IsAvailable(pod, set.Spec.MinReadySeconds, r.world.Now)
		e.Pods = append(e.Pods, Pod{Name: name, Revision: podstate.Revision(pod), Available: is})
		if is {
			e.Available++
		}
	}
	return e
}

// names are the names of objects in order.
func names[T any](objects map[string]T) []string {
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(objects))))
}

func (r *recorder) totals() Totals {
	var t Totals
	for _, h := range r.preview.Happenings {
		switch h.Kind {
		case plan.KindPod:
			countPod(&t, h, r.pods[h.Name] != nil)
		case plan.KindClaim:
			countClaim(&t, h)
		case plan.KindRevision:
			t.RevisionsCreated += one(h.Verb == Create)
		case plan.KindSet:
		}
	}
	return t
}

func countPod(t *Totals, h Happening, isKnown bool) {
	isDeletion := h.Verb == Delete || h.Verb == Evict
	t.PodsCreated += one(h.Verb == Create && !isKnown)
	t.PodsReplaced += one(isDeletion && h.Next != "")
	t.PodsDeleted += one(isDeletion && h.Next == "")
}

func countClaim(t *Totals, h Happening) {
	t.ClaimsCreated += one(h.Verb == Create)
	t.ClaimsKept += one(h.Verb == Keep)
	t.ClaimsDeleted += one(h.Verb == Delete)
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}
