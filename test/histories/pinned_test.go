// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package histories

import (
	"testing"

	"github.com/ordinal-dev/ordinal/internal/sim/history"
)

// pinned are histories, shortened, in which the controller once broke a rule.
func pinned() []scenario {
	const sets, pods = 0, 1
	return []scenario{
		// Where the adoption of one pod failed, those whose adoption was not even tried were counted in the status.
		{"orphans that are not adopted do not count", history.Config{Replicas: 3}, join(calm(3),
			step(history.Stall, sets), step(history.DeleteSet, 1), calm(1))},
		// A pod that was to be labelled was gone, and the pod after it was created all the same.
		{"a pod that is gone holds up those after it", history.Config{Replicas: 2, MinReady: 5}, join(calm(3),
			step(history.StripPod, 0), step(history.Stall, pods), step(history.ForcePod, 0), step(history.Pass, 2))},
		// A set was gone, and with it what the caches did not show yet of the writes for it. The next of its name took a pod for an orphan
		// that had been adopted meanwhile, and counted it.
		{"what was written for a set holds for the next of its name", history.Config{Replicas: 2, EventsFirst: true}, join(
			step(history.DeleteSet, 1), calm(1), step(history.Stall, pods),
			step(history.CreateSet, 0), step(history.DeleteSet, 0), step(history.CreateSet, 0))},
		// A pod was found to be gone, and was counted by the next sync, to which the cache showed it on its way out.
		{"a pod that is gone does not come back", history.Config{Replicas: 3, Claims: 1, Parallel: true, EventsFirst: true}, join(calm(1),
			step(history.Ordinals, 10), step(history.Stall, pods), step(history.DeletePod, 11), step(history.DeletePod, 10),
			step(history.Ordinals, 3), step2(history.Scale, 1, 8))},
		// A pod was to be adopted and then scaled away. Meanwhile somebody took the label from it that made it one of the set's.
		{"a pod that is relabelled is not taken", history.Config{Replicas: 2, Claims: 1, Parallel: true}, join(step2(history.SlowWrite, 9, 7),
			step2(history.BarePod, 8, 11), calm(1), step2(history.Relabel, 11, 4))},
		// The model's own mistake: a controller that was asked to stop, and was held up by a slow write, was the one that was left in the end.
		{"one that is asked to stop is not the last", history.Config{Replicas: 3, Claims: 1, Parallel: true, EventsFirst: true}, join(
			step2(history.SlowWrite, 4, 2), step2(history.Image, 5, 2), step2(history.Retire, 1, 11))},
	}
}

// TestPinned holds the controller against the rules in histories that once broke them.
func TestPinned(t *testing.T) {
	for _, s := range pinned() {
		if r := run(t, history.History{Config: s.config, Steps: s.steps}, true); len(r.Broken) > 0 {
			t.Errorf("%s: %v\n%s", s.name, r.Broken, r.Story)
		}
	}
}
