// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// recorder lets a world run and takes down what happens in it.
type recorder struct {
	world   *sim.World
	preview Preview
	// first are the pods and claims of the beginning.
	pods   map[string]*corev1.Pod
	claims map[string]*corev1.PersistentVolumeClaim
	// last is the newest plan.
	last plan.Plan
	// since is when a wait that ends by itself began, and passed are those that have ended since the last happening.
	since  map[plan.Wait]time.Time
	passed []Happening
	gone   bool
	began  time.Time
}

// begin makes the world as it is before the edit.
func begin(e Edit) *recorder {
	live := e.Live
	live.Policies = e.Policies
	if live.Set == nil {
		live.Set = e.After.DeepCopy()
		live.Set.UID, live.Set.Generation = cmp.Or(live.Set.UID, "new"), 1
		live.Set.CreationTimestamp.Time = live.Now
		live.Set.Status = appsv1.StatefulSetStatus{}
	}
	r := &recorder{world: sim.Live(live), gone: e.After == nil, since: map[plan.Wait]time.Time{}, began: live.Now}
	r.pods, r.claims = maps.Clone(r.world.Pods), maps.Clone(r.world.Claims)
	r.world.Observe = r.observe
	return r
}

// replaceSet makes the edit.
func (r *recorder) replaceSet(after *appsv1.StatefulSet) {
	r.world.Edit(func(s *appsv1.StatefulSet) {
		s.Labels, s.Annotations = after.Labels, after.Annotations
		s.DeletionTimestamp = cmp.Or(s.DeletionTimestamp, after.DeletionTimestamp)
		s.Spec = *after.Spec.DeepCopy()
	})
}

// run lets the world come to rest.
func (r *recorder) run() {
	for range maxSteps {
		if r.world.Sync() {
			continue
		}
		before := maps.Clone(r.world.Claims)
		more := r.world.Advance()
		r.noteClaims(before)
		if !more {
			return
		}
		r.notePassed()
		if r.world.Now.Sub(r.began) > MaxTime {
			break
		}
	}
	r.preview.Stops = append(r.preview.Stops, Stop{
		Reason: StopMaxTime, Kind: plan.KindSet, Name: r.world.Set.Name, Text: "it goes on; this is only its beginning",
	})
}

// observe takes down what a plan did.
func (r *recorder) observe(p plan.Plan, outcomes []plan.Outcome) {
	r.last = p
	for _, o := range outcomes {
		if o.Result == plan.ResultDone {
			r.note(r.happening(o.Action))
		}
	}
	for _, w := range p.Waits {
		if _, known := r.since[w]; !known && w.Until.After(r.world.Now) {
			r.since[w] = r.world.Now
		}
	}
}

// note takes down a happening, and before it the waits that made it possible.
func (r *recorder) note(h Happening) {
	r.preview.Happenings = append(append(r.preview.Happenings, r.passed...), h)
	r.passed = nil
}

// notePassed takes down the waits that have ended by themselves. Of several for the same reason that end together, one is
// told.
func (r *recorder) notePassed() {
	for _, w := range r.last.Waits {
		began, known := r.since[w]
		if !known || w.Until.After(r.world.Now) {
			continue
		}
		delete(r.since, w)
		told := slices.ContainsFunc(r.passed, func(h Happening) bool { return h.Reason == w.Reason })
		if took := w.Until.Sub(began); took >= time.Second && !told {
			r.passed = append(r.passed, Happening{
				Verb: Wait, Kind: w.On.Kind, Name: w.On.Name, Reason: w.Reason,
				Because: explain(w), Seconds: int64((took + time.Second - 1) / time.Second),
			})
		}
	}
}

// explain is the reason for a wait in words, without its object and its time.
func explain(w plan.Wait) string {
	w.Until = time.Time{}
	return w.Because()
}

// happening is what an action does.
func (r *recorder) happening(action plan.Action) Happening {
	target := action.Target()
	h := Happening{Verb: verbOf(action), Kind: target.Kind, Name: target.Name, Reason: action.Why()}
	_, h.Because, _ = strings.Cut(action.String(), ": ")
	switch a := action.(type) {
	case plan.CreatePod:
		h.Revision = podstate.Revision(a.Pod)
	case plan.DeletePod, plan.AdoptPod, plan.ReleasePod:
		if pod := r.world.Pods[target.Name]; pod != nil {
			h.Revision = podstate.Revision(pod)
		}
	case plan.OwnClaim:
		h.Because = ""
		for _, o := range a.Owners {
			h.Owners = append(h.Owners, plan.Ref{Kind: plan.Kind(o.Kind), Name: o.Name}.String())
		}
	case plan.TellPod:
		h.Because = "stays"
		if a.Stop != "" {
			h.Because = "goes (" + a.Stop + ")"
		}
	default:
	}
	return h
}

func verbOf(action plan.Action) Verb {
	switch a := action.(type) {
	case plan.CreatePod, plan.CreateClaim, plan.CreateRevision:
		return Create
	case plan.AdoptPod, plan.AdoptRevision:
		return Adopt
	case plan.ReleasePod:
		return Release
	case plan.BumpRevision:
		return Reuse
	case plan.OwnClaim:
		return Own
	case plan.LabelPod:
		return Label
	case plan.TellPod:
		return Tell
	case plan.DeletePod:
		if a.Evict {
			return Evict
		}
	case plan.DeleteRevision:
	}
	return Delete
}

// noteClaims takes down the claims that the garbage collector has taken.
func (r *recorder) noteClaims(before map[string]*corev1.PersistentVolumeClaim) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if r.world.Claims[name] == nil {
			r.note(Happening{
				Verb: Delete, Kind: plan.KindClaim, Name: name, Reason: plan.ReasonRetention, Because: "its owner is gone",
			})
		}
	}
}

// reasonSetDeleted is why pods go that the garbage collector takes.
const reasonSetDeleted plan.Reason = "SetDeleted"

// noteGone takes down what goes at once with a set that is deleted.
func (r *recorder) noteGone() {
	r.note(Happening{Verb: Delete, Kind: plan.KindSet, Name: r.world.Set.Name})
	for _, name := range r.podNames() {
		p := r.world.Pods[name]
		if r.pods[name].DeletionTimestamp == nil && p.DeletionTimestamp != nil {
			r.note(Happening{
				Verb: Delete, Kind: plan.KindPod, Name: name, Revision: podstate.Revision(p),
				Reason: reasonSetDeleted, Because: "its set is deleted",
			})
		}
	}
}

// podNames are the names of all pods, in the order of their ordinals.
func (r *recorder) podNames() []string {
	set := r.world.Set.Name
	return slices.SortedFunc(maps.Keys(r.world.Pods), func(a, b string) int {
		n, _ := ordinal.Of(set, a)
		m, _ := ordinal.Of(set, b)
		return cmp.Or(cmp.Compare(n, m), cmp.Compare(a, b))
	})
}
