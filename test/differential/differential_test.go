// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"
	"k8s.io/kubernetes/pkg/features"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

var (
	seed   = flag.Uint64("seed", 1, "seed of the random worlds")
	worlds = flag.Int("worlds", 20_000, "how many random worlds to compare")
)

// comparison is a world and what either controller made of it.
type comparison struct {
	before       plan.Snapshot
	plan         plan.Plan
	ours, theirs *sim.World
	deleted      []string
	refusals     []string
	err          error
}

// compare lets both controllers do one sync from the same snapshot.
func compare(t *testing.T, s plan.Snapshot) comparison {
	t.Helper()
	for _, p := range s.Pods {
		if p.Labels[appsv1.PodIndexLabel] == "" {
			p.Annotations = map[string]string{unindexed: "yes"}
		}
	}
	c := comparison{before: s, plan: plan.Make(s), ours: sim.From(s), theirs: sim.From(s)}
	c.ours.Sync()
	i := newIncumbent(c.theirs)
	c.err = i.sync(t.Context())
	c.deleted, c.refusals = i.deleted, i.refusals
	return c
}

// differences tells in what the worlds differ after the sync.
func (c comparison) differences() []string {
	var diff []string
	ours, theirs := describe(c.ours), describe(c.theirs)
	for _, line := range ours {
		if !slices.Contains(theirs, line) {
			diff = append(diff, "ours:   "+line)
		}
	}
	for _, line := range theirs {
		if !slices.Contains(ours, line) {
			diff = append(diff, "theirs: "+line)
		}
	}
	if got, want := deletions(c.plan), c.deleted; c.isOrdered() && !slices.Equal(got, want) {
		diff = append(diff, fmt.Sprintf("ours deletes %v, theirs %v", got, want))
	}
	a, b := *c.ours.Set.Status.DeepCopy(), *c.theirs.Set.Status.DeepCopy()
	if !c.before.Options.Strict {
		// Kubernetes sets none of them.
		a.Conditions, b.Conditions = nil, nil
	}
	// No count and a count of none are the same.
	a.CollisionCount, b.CollisionCount = new(collisions(a)), new(collisions(b))
	if c.writesPods() {
		b.Replicas, b.ReadyReplicas, b.AvailableReplicas = a.Replicas, a.ReadyReplicas, a.AvailableReplicas
		b.CurrentReplicas, b.UpdatedReplicas = a.CurrentReplicas, a.UpdatedReplicas
	}
	if !equality.Semantic.DeepEqual(a, b) {
		diff = append(diff, fmt.Sprintf("ours:   status %s\ntheirs: status %s", describeStatus(a), describeStatus(b)))
	}
	return diff
}

// writesPods tells if pods are created or deleted. Ours then counts what it did; theirs counts what was there before, less
// the pods that it deleted for the update.
func (c comparison) writesPods() bool {
	return slices.ContainsFunc(c.plan.Actions(), func(a plan.Action) bool {
		switch a.(type) {
		case plan.CreatePod, plan.DeletePod:
			return true
		default:
			return false
		}
	})
}

func (c comparison) isOrdered() bool {
	return c.before.Set.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement
}

func deletions(p plan.Plan) []string {
	var names []string
	for _, a := range p.Actions() {
		if d, ok := a.(plan.DeletePod); ok {
			names = append(names, d.Pod.Name)
		}
	}
	return names
}

func describeStatus(s appsv1.StatefulSetStatus) string {
	return fmt.Sprintf("generation %d, %d pods, %d ready, %d available, %d at %s, %d at %s, %d collisions", s.ObservedGeneration,
		s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.CurrentRevision, s.UpdatedReplicas, s.UpdateRevision,
		collisions(s))
}

func collisions(s appsv1.StatefulSetStatus) int32 {
	if s.CollisionCount == nil {
		return 0
	}
	return *s.CollisionCount
}

// TestOneSync compares single syncs from random worlds. In half of them, ours is told to do as Kubernetes does
// (--strict-upstream), and what ours does better by default is no excuse for a difference.
func TestOneSync(t *testing.T) {
	silence()
	counts := map[string]int{}
	for n := range *worlds {
		rng := rand.New(rand.NewPCG(*seed, uint64(n)))
		s := sim.Draw(rng.IntN, sim.Limits{})
		s.Options.Defaulter = appsdefaults.SetObjectDefaults_StatefulSet
		s.Options.IgnoreMaxUnavailable, s.Options.Strict = n%2 == 1, n/2%2 == 1
		setGate(t, !s.Options.IgnoreMaxUnavailable)
		c := compare(t, s)
		compared.worlds++
		diff := c.differences()
		if len(diff) == 0 && describeStatus(c.ours.Set.Status) == describeStatus(c.theirs.Set.Status) {
			counts["the same"]++
			continue
		}
		if len(diff) == 0 {
			counts["the same but for counters"]++
			continue
		}
		if name := c.exception(); name != "" {
			counts[name]++
			continue
		}
		counts["different"]++
		if counts["different"] <= 3 {
			t.Errorf("seed %d world %d, strict %t: %s\n%s\nincumbent: %v, refused %v\nplan:\n%s", *seed, n, s.Options.Strict, describeSet(s.Set),
				strings.Join(diff, "\n"), c.err, c.refusals, c.plan.String(s.Now))
		}
	}
	t.Log(summary("worlds", counts))
}

// silence hides the log of the incumbent, which tells of each refusal.
func silence() {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
}

func setGate(t *testing.T, on bool) {
	t.Helper()
	gate := map[string]bool{string(features.MaxUnavailableStatefulSet): on}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gate); err != nil {
		t.Fatal(err)
	}
}

func describeSet(s *appsv1.StatefulSet) string {
	return fmt.Sprintf("%s replicas %d ordinals %v strategy %s minReady %d limit %d claims %d %v status %s", s.Spec.PodManagementPolicy,
		*s.Spec.Replicas, s.Spec.Ordinals, s.Spec.UpdateStrategy.String(), s.Spec.MinReadySeconds, *s.Spec.RevisionHistoryLimit,
		len(s.Spec.VolumeClaimTemplates), s.Spec.PersistentVolumeClaimRetentionPolicy, describeStatus(s.Status))
}

func summary(what string, counts map[string]int) string {
	var b strings.Builder
	total := 0
	for _, n := range counts {
		total += n
	}
	fmt.Fprintf(&b, "seed %d: %d %s", *seed, total, what)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "; %d %s", counts[name], name)
	}
	return b.String()
}
