// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/policy"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// slot is the place of one ordinal.
type slot struct {
	ordinal int
	// pod is the set's pod, or one that the set adopts; nil if there is none.
	pod *corev1.Pod
	// taken is a pod of somebody else under the slot's name.
	taken *corev1.Pod
}

// world is a snapshot put in order.
type world struct {
	Snapshot
	rules    policy.Rules
	span     ordinal.Range
	selector labels.Selector
	// live are the set's pods within its range, and those that it adopts, ascending.
	live []slot
	// condemned are the set's pods outside its range, descending.
	condemned []slot
	// foreign are pods of others under names of the set's pods, by ordinal.
	foreign map[int]*corev1.Pod
	claims  map[string]*corev1.PersistentVolumeClaim
	// revisions are the set's own and those that it adopts, oldest first.
	revisions        []*appsv1.ControllerRevision
	adopted          []*corev1.Pod
	released         []*corev1.Pod
	adoptedRevisions []*appsv1.ControllerRevision
}

func newWorld(s Snapshot) (*world, error) {
	selector, err := metav1.LabelSelectorAsSelector(s.Set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read selector: %w", err)
	}
	if s.Set.Spec.Selector == nil {
		// It would match nothing, and all pods would be released.
		return nil, errors.New("no selector")
	}
	rules := policy.Of(s.Policies)
	w := &world{
		Snapshot: s,
		rules:    rules,
		span:     rules.Range(s.Set),
		selector: selector,
		foreign:  map[int]*corev1.Pod{},
		claims:   make(map[string]*corev1.PersistentVolumeClaim, len(s.Claims)),
	}
	for _, c := range s.Claims {
		w.claims[c.Name] = c
	}
	byName := func(a, b *corev1.Pod) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) }
	for _, p := range slices.SortedFunc(slices.Values(s.Pods), byName) {
		w.place(p)
	}
	ascending := func(a, b slot) int { return cmp.Compare(a.ordinal, b.ordinal) }
	slices.SortFunc(w.live, ascending)
	slices.SortFunc(w.condemned, func(a, b slot) int { return ascending(b, a) })
	w.placeRevisions()
	return w, nil
}

// place puts a pod where it belongs.
func (w *world) place(p *corev1.Pod) {
	n, named := ordinal.Of(w.Set.Name, p.Name)
	match := named && w.selector.Matches(labels.Set(p.Labels))
	owner := metav1.GetControllerOfNoCopy(p)
	ours := owner != nil && owner.UID == w.Set.UID
	going := w.Set.DeletionTimestamp != nil
	switch adoptable := owner == nil && !going && p.DeletionTimestamp == nil; {
	case ours && match:
		w.join(n, p)
	case adoptable && match:
		w.adopted = append(w.adopted, p)
		w.join(n, p)
	default:
		w.putAside(n, named, p)
		if ours && !going {
			w.released = append(w.released, p)
		}
	}
}

// putAside remembers a pod of somebody else if it bears the name of an ordinal.
func (w *world) putAside(n int, named bool, p *corev1.Pod) {
	if named {
		w.foreign[n] = p
	}
}

func (w *world) join(n int, p *corev1.Pod) {
	s := slot{ordinal: n, pod: p}
	if w.span.Contains(n) {
		w.live = append(w.live, s)
		return
	}
	w.condemned = append(w.condemned, s)
}

func (w *world) placeRevisions() {
	for _, r := range revision.Sorted(w.Revisions) {
		if metav1.GetControllerOfNoCopy(r) == nil {
			// The selector may match what another set has left, too. Its revisions are kept for the one that bears its name.
			if !revision.Fits(w.Set.Name, r.Name) {
				continue
			}
			w.adoptedRevisions = append(w.adoptedRevisions, r)
		}
		w.revisions = append(w.revisions, r)
	}
}

// slots are all places of the set's range, ascending, the empty ones too.
func (w *world) slots() iter.Seq[slot] {
	return func(yield func(slot) bool) {
		next := 0
		for n := range w.span.All() {
			s := slot{ordinal: n, taken: w.foreign[n]}
			if next < len(w.live) && w.live[next].ordinal == n {
				s = w.live[next]
				next++
			}
			if !yield(s) {
				return
			}
		}
	}
}

// pods are all pods of the set, and those that it adopts.
func (w *world) pods() iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for _, group := range [][]slot{w.live, w.condemned} {
			for _, s := range group {
				if !yield(s.pod) {
					return
				}
			}
		}
	}
}

// holder is the pod of a slot as an owner of claims.
func (w *world) holder(s slot) claim.Holder {
	h := claim.Holder{Name: w.podName(s), Condemned: !w.span.Contains(s.ordinal)}
	if s.pod != nil {
		h.UID = s.pod.UID
	}
	return h
}

func (w *world) podName(s slot) string {
	if s.pod != nil {
		return s.pod.Name
	}
	return ordinal.PodName(w.Set.Name, s.ordinal)
}
