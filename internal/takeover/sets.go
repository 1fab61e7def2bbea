// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/preview"
)

// Sets are what would become of the sets.
type Sets struct {
	// Total is how many sets there are, in so many namespaces, and Same how many of them stay as they are.
	Total      int `json:"total"`
	Namespaces int `json:"namespaces"`
	Same       int `json:"same"`
	// Changes are what only Ordinal would do, UnderWay what any controller would go on with, and Notes what Ordinal does otherwise
	// with a set when it comes to that.
	Changes  []Set `json:"changes"`
	UnderWay []Set `json:"underWay"`
	Notes    []Set `json:"notes"`
}

// Set is a set with what is to be told of it, in words.
type Set struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Told      []string `json:"told"`
}

func noSets() Sets { return Sets{Changes: []Set{}, UnderWay: []Set{}, Notes: []Set{}} }

// settleTime is how long sets that would change have until they are looked at again: what was listed is not of one moment.
const settleTime = 2 * time.Second

// compare runs the planner ahead for each set.
func (c *check) compare(ctx context.Context) error {
	sets, err := c.outlook(ctx)
	if err == nil && len(sets.Changes) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(settleTime):
		}
		sets, err = c.outlook(ctx)
	}
	c.report.Sets = sets
	return err
}

// outlook looks at all sets as they are now.
func (c *check) outlook(ctx context.Context) (Sets, error) {
	all := noSets()
	policies := c.Policies
	if !c.may(forPolicies) {
		policies = nil
	}
	list, err := c.Client.AppsV1().StatefulSets(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return all, fmt.Errorf("list sets: %w", err)
	}
	observer, err := observe.Load(ctx, c.Client, policies, c.Namespace, c.Options)
	if err != nil {
		return all, err
	}
	namespaces := map[string]bool{}
	for i := range list.Items {
		key := observe.Key{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}
		s, view, err := observer.Look(key, c.Now())
		if err != nil {
			return all, err
		}
		if view != observe.Fresh {
			continue
		}
		namespaces[key.Namespace] = true
		all.add(s)
	}
	all.Namespaces = len(namespaces)
	return all, nil
}

// add adds what is to be told of a set.
func (s *Sets) add(now plan.Snapshot) {
	tell := func(to *[]Set, told []string) {
		if len(told) > 0 {
			*to = append(*to, Set{now.Set.Namespace, now.Set.Name, told})
		}
	}
	changes, underWay := outlookOf(now)
	s.Total++
	if len(changes)+len(underWay) == 0 {
		s.Same++
	}
	tell(&s.Changes, changes)
	tell(&s.UnderWay, underWay)
	tell(&s.Notes, notes(now))
}

// outlookOf tells what Ordinal would do to a set that the built-in controller would not, and what both would.
func outlookOf(s plan.Snapshot) (changes, underWay []string) {
	ours := previewOf(s)
	upstream := s
	upstream.Options.Strict, upstream.Rivals = true, nil
	theirs := previewOf(upstream)
	for _, h := range ours.Happenings {
		switch {
		case h.Verb == preview.Wait || h.Verb == preview.Keep || comesBack(h, ours):
		case disagrees(s, ours) || isOnlyOurs(h, theirs):
			changes = append(changes, h.String())
		default:
			underWay = append(underWay, h.String())
		}
	}
	for _, stop := range ours.Stops {
		same := func(other preview.Stop) bool { return other.Reason == stop.Reason && other.Name == stop.Name }
		if !slices.ContainsFunc(theirs.Stops, same) && isHeldUpHere(stop.Reason) {
			changes = append(changes, stop.Text)
		}
	}
	return changes, underWay
}

// comesBack tells if a pod is made whose end tells of that already.
func comesBack(h preview.Happening, in preview.Preview) bool {
	return h.Verb == preview.Create && slices.ContainsFunc(in.Happenings, func(other preview.Happening) bool {
		return other.Kind == h.Kind && other.Name == h.Name && other.Next == h.Revision && other.Next != ""
	})
}

// previewOf is what would happen to a set that nobody edits.
func previewOf(s plan.Snapshot) preview.Preview {
	return preview.Of(preview.Edit{Live: s, After: s.Set, Policies: s.Policies})
}

// disagrees tells if the set's template would be recorded anew although the controller before has recorded it: all pods would be
// replaced.
func disagrees(s plan.Snapshot, ours preview.Preview) bool {
	st := s.Set.Status
	isSeen := st.UpdateRevision != "" && st.ObservedGeneration >= s.Set.Generation
	return isSeen && s.Set.DeletionTimestamp == nil && ours.End.UpdateRevision != st.UpdateRevision
}

// isOnlyOurs tells if the built-in controller would not do it. It gives old pods no new labels.
func isOnlyOurs(h preview.Happening, theirs preview.Preview) bool {
	return h.Verb == preview.Label || !slices.ContainsFunc(theirs.Happenings, func(other preview.Happening) bool {
		return other.Verb == h.Verb && other.Kind == h.Kind && other.Name == h.Name && other.Revision == h.Revision
	})
}

// isHeldUpHere tells if a reason holds up only Ordinal. For the others, the built-in controller waits by another name.
func isHeldUpHere(r plan.Reason) bool {
	return r == plan.WaitClaimShared || r == plan.WaitBadName || r == plan.WaitPolicyConflict
}

// notes tell what is done otherwise with sets of that kind.
func notes(s plan.Snapshot) []string {
	var told []string
	spec := &s.Set.Spec
	if spec.PodManagementPolicy == appsv1.ParallelPodManagement && spec.UpdateStrategy.RollingUpdate == nil &&
		spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		told = append(told, "Parallel, without a rollingUpdate block: a pod that comes back in the midst of an update has the new template")
	}
	if spec.UpdateStrategy.Type == appsv1.RecreateStatefulSetStrategyType && !s.Options.Recreate {
		told = append(told, "strategy Recreate: Ordinal leaves its pods alone unless it is started with --recreate-strategy")
	}
	if len(s.Policies) > 0 {
		told = append(told, "a StatefulSetPolicy names it, which only Ordinal obeys")
	}
	var rivals []string
	for _, r := range s.Rivals {
		rivals = append(rivals, r.Set.Name)
	}
	if len(rivals) > 0 {
		told = append(told, "its claims have the same names as those of "+strings.Join(slices.Compact(rivals), " and ")+
			": Ordinal gives each claim to one set, and the other waits")
	}
	return told
}
