// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// Of makes the report.
func Of(f Facts) Report {
	set := f.Snapshot.Set
	r := Report{Namespace: set.Namespace, Name: set.Name, At: metav1.Time{Time: f.Snapshot.Now}, Waits: f.waits()}
	stuck := slices.ContainsFunc(r.Waits, func(w Wait) bool { return w.Wrong })
	r.State, r.Headline = f.headline(stuck)
	r.Next = f.next(r.Waits)
	r.Notes = f.notes()
	return r
}

// count are the numbers of a headline.
type count struct {
	// wanted is how many pods there should be, serving how many of them are available, and beyond how many others there are.
	wanted, serving, beyond int
	// old are the pods of the range that have not the update revision, ascending.
	old []string
}

func (f *Facts) count() count {
	c := count{wanted: f.Plan.Span.Count}
	byOrdinal := map[int]*corev1.Pod{}
	for _, pod := range f.Plan.Members {
		n, ok := ordinal.Of(f.Snapshot.Set.Name, pod.Name)
		if !ok || !f.Plan.Span.Contains(n) {
			c.beyond++
			continue
		}
		byOrdinal[n] = pod
	}
	for n := range f.Plan.Span.All() {
		pod := byOrdinal[n]
		if pod == nil {
			continue
		}
		if podstate.IsServing(pod, f.Snapshot.Set.Spec.MinReadySeconds, f.Snapshot.Now) {
			c.serving++
		}
		if podstate.Revision(pod) != f.Plan.Revisions.Update {
			c.old = append(c.old, pod.Name)
		}
	}
	return c
}

// isRolling tells if pods are being replaced because of the template, or wait to be.
func (f *Facts) isRolling() bool {
	r := f.Plan.Revisions
	return r.Known && r.Current != r.Update && f.Plan.Rollout.Phase != v1alpha1.RolloutComplete
}

func (f *Facts) headline(stuck bool) (State, string) {
	name := f.Snapshot.Set.Name
	switch {
	case f.Snapshot.Set.DeletionTimestamp != nil:
		return Deleting, fmt.Sprintf("%s is being deleted, and nothing is changed any more: %s left", name, pods(len(f.Plan.Members)))
	case f.Plan.Blind || !f.Plan.Revisions.Known:
		return Stuck, name + " cannot be worked on"
	}
	if state, text, told := f.failedHeadline(); told {
		return state, text
	}
	c := f.count()
	if f.isRolling() && !f.isOnDelete() {
		return f.rollingHeadline(stuck)
	}
	return f.plainHeadline(c, stuck)
}

// failedHeadline is for a rollout that has failed.
func (f *Facts) failedHeadline() (State, string, bool) {
	name, r := f.Snapshot.Set.Name, f.Plan.Rollout
	current := f.Plan.Revisions.Current
	switch r.Phase {
	case v1alpha1.RolloutHeld:
		text := fmt.Sprintf("%s has given up rolling out %s: %s done", name, r.Revision, share(r.Available, r.Wanted))
		return Stuck, text, true
	case v1alpha1.RolloutRollingBack:
		return Stuck, fmt.Sprintf("%s is going back to %s, as rolling out %s failed", name, current, r.Revision), true
	case v1alpha1.RolloutRolledBack:
		return Stuck, fmt.Sprintf("%s is back at %s, as rolling out %s failed", name, current, r.Revision), true
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutPaused, v1alpha1.RolloutComplete:
	}
	return "", "", false
}

func (f *Facts) rollingHeadline(stuck bool) (State, string) {
	r := f.Plan.Rollout
	state, verb := Progressing, "is rolling out"
	switch {
	case r.Phase == v1alpha1.RolloutPaused && !stuck:
		state, verb = Paused, "is paused in rolling out"
	case stuck:
		state, verb = Stuck, "is stuck in rolling out"
	}
	return state, fmt.Sprintf("%s %s %s: %s done", f.Snapshot.Set.Name, verb, r.Revision, share(r.Available, r.Wanted))
}

func (f *Facts) plainHeadline(c count, stuck bool) (State, string) {
	name := f.Snapshot.Set.Name
	state := Up
	var text string
	switch {
	case c.beyond > 0 && c.serving == c.wanted:
		state, text = Progressing, fmt.Sprintf("%s is scaling down to %s: %d too many", name, pods(c.wanted), c.beyond)
	case c.wanted == 0:
		text = name + " is scaled to 0 and has no pods"
	case c.serving < c.wanted:
		state, text = Progressing, fmt.Sprintf("%s is starting: %s available", name, share(c.serving, c.wanted))
	case len(c.old) > 0:
		text = fmt.Sprintf("%s is up: %s available, %d of an earlier template", name, share(c.serving, c.wanted), len(c.old))
	default:
		text = fmt.Sprintf("%s is up: %s available at %s", name, share(c.serving, c.wanted), f.Plan.Revisions.Update)
	}
	if !stuck {
		return state, text
	}
	if state == Up {
		return Stuck, text + ", but something is wrong"
	}
	return Stuck, strings.NewReplacer(" is starting", " is stuck", " is scaling", " is stuck in scaling").Replace(text)
}

func share(n, of int) string {
	verb := "are"
	if of == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %s %s", n, pods(of), verb)
}

func pods(n int) string { return plural(n, "pod") }

func (f *Facts) isOnDelete() bool {
	return f.Snapshot.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
}

func (f *Facts) isOrdered() bool {
	return f.Snapshot.Set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

// next is what the controller does now, apart from what it is known to be refused.
func (f *Facts) next(waits []Wait) []string {
	refused := map[string]bool{}
	for _, w := range waits {
		if w.Reason == reasonRefused || w.Reason == string(plan.WaitDisruption) {
			refused[w.Object] = true
		}
	}
	next := []string{}
	for _, a := range f.Plan.Actions() {
		target := a.Target().String()
		if c, ok := a.(plan.CreateClaim); ok && refused["pod "+c.Pod] {
			continue
		}
		if !refused[target] {
			next = append(next, a.String())
		}
	}
	return next
}

// notes tell who decides, and what the set's status lacks.
func (f *Facts) notes() []string {
	set := f.Snapshot.Set
	notes := append([]string{}, f.Unread...)
	if set.Status.ObservedGeneration < set.Generation {
		notes = append(notes, fmt.Sprintf("The controller has not yet seen the set as it is now (generation %d; it saw %d). "+
			"If that lasts, no controller runs.",
			set.Generation, set.Status.ObservedGeneration))
	}
	switch f.Actor {
	case Ordinal:
		notes = append(notes, "Ordinal decides here.")
	case Incumbent:
		notes = append(notes, "kube-controller-manager decides here, and this tells what it does. It knows no StatefulSetPolicies.")
	case Unknown:
		notes = append(notes, "No trace of a controller was found; this is what Ordinal would do.")
	}
	return notes
}
