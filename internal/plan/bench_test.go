// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// BenchmarkSettled is what a sync of a set costs in which there is nothing to do.
func BenchmarkSettled(b *testing.B) {
	for _, replicas := range []int32{3, 20, 200, 1000} {
		b.Run(fmt.Sprint(replicas), func(b *testing.B) {
			w := sim.New(sim.NewSet("web", replicas, parallel))
			if err := w.Settle(); err != nil {
				b.Fatal(err)
			}
			s := w.Snapshot()
			b.ReportAllocs()
			for b.Loop() {
				p := plan.Make(s)
				if _, changed := status.Settle(s, p, nil); changed || len(p.Steps) > 0 {
					b.Fatal("the set is not settled")
				}
			}
		})
	}
}
