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
