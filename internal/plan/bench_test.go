// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// sizes are the numbers of pods for which the planner is measured. Its cost per pod must not grow with them.
var sizes = []int32{3, 30, 300, 3000, 10_000}

// BenchmarkSettled is what a sync of a set costs in which there is nothing to do.
func BenchmarkSettled(b *testing.B) {
	measure(b, func(b *testing.B, w *sim.World) {
		s := w.Snapshot()
		s.Found = plan.Make(s).Found
		for b.Loop() {
			p := plan.Make(s)
			if _, changed := status.Settle(s, p, nil); changed || len(p.Steps) > 0 {
				b.Fatal("the set is not settled")
			}
		}
	})
}

// BenchmarkRolloutStep is what a sync costs in which a pod is taken for an update, after others have been updated.
func BenchmarkRolloutStep(b *testing.B) {
	measure(b, func(b *testing.B, w *sim.World) {
		w.Edit(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = "two" })
		w.Sync()
		for len(of[plan.DeletePod](plan.Make(w.Snapshot()))) == 0 {
			if !w.Sync() && !w.Advance() {
				b.Fatal("only one pod is updated")
			}
		}
		s := w.Snapshot()
		s.Found = plan.Make(s).Found
		for b.Loop() {
			p := plan.Make(s)
			outcomes := []plan.Outcome{{Action: p.Actions()[0], Result: plan.ResultDone}}
			if _, changed := status.Settle(s, p, outcomes); !changed || len(p.Actions()) != 1 {
				b.Fatalf("the plan is\n%s", p.String(s.Now))
			}
		}
	})
}

// measure runs a benchmark for settled sets of all sizes and both policies.
func measure(b *testing.B, run func(*testing.B, *sim.World)) {
	b.Helper()
	for _, policy := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		for _, replicas := range sizes {
			b.Run(fmt.Sprintf("%s/%d", policy, replicas), func(b *testing.B) {
				// All pods come at once, which an ordered set would take too long for.
				w := sim.New(sim.NewSet("web", replicas, parallel))
				if err := w.Settle(); err != nil {
					b.Fatal(err)
				}
				w.Edit(func(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = policy })
				if err := w.Settle(); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				run(b, w)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(replicas), "ns/pod")
			})
		}
	}
}
