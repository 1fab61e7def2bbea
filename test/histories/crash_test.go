// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package histories

import (
	"testing"

	"github.com/ordinal-dev/ordinal/internal/sim/history"
)

// scenario is a history in which all goes well, but for the crashes of the test.
type scenario struct {
	name   string
	config history.Config
	steps  []history.Step
}

// scenarios are those in which a controller crashes at every write.
func scenarios() []scenario {
	ordered := history.Config{Replicas: 3, Claims: 1}
	parallel := history.Config{Replicas: 4, Claims: 1, Parallel: true}
	patient := history.Config{Replicas: 2, Claims: 1, MinReady: 5}
	return []scenario{
		{"creation in order", ordered, calm(8)},
		{"creation at once", parallel, calm(4)},
		{"creation with minReadySeconds", patient, after(step(history.Pass, 1), 4)},
		{"scaling up and down", ordered, join(calm(8), after(step(history.Scale, 5), 5), after(step(history.Scale, 1), 8))},
		{"scaling down at once", parallel, join(calm(4), after(step(history.Scale, 0), 3))},
		{"update in order", ordered, join(calm(8), after(step(history.Image, 1), 12))},
		{"update at once", parallel, join(calm(4), step2(history.Strategy, 4, 2), after(step(history.Image, 1), 10))},
		{"update and undo", ordered, join(calm(8), after(step(history.Image, 1), 4), after(step(history.Image, 0), 12))},
		{"update that is stuck, and its undo", ordered, join(calm(8), after(step(history.Image, 3), 4), after(step(history.Image, 0), 12))},
		{"update below a partition", ordered, join(calm(8), step2(history.Strategy, 6, 0), after(step(history.Image, 1), 9))},
		{"many revisions", ordered, join(calm(8), step(history.HistoryLimit, 3), after(step(history.Image, 1), 9),
			after(step(history.Image, 2), 9), after(step(history.Image, 0), 9))},
		{"failing pods", ordered, join(calm(8), step(history.PodFails, 1), after(step(history.Pass, 2), 4))},
		{"claims that go with the pods", ordered, join(step2(history.Retention, 1, 1), calm(8), after(step(history.Scale, 1), 8),
			after(step(history.Scale, 3), 6))},
		{"claims that go with the set", ordered, join(step2(history.Retention, 0, 1), calm(8), after(step(history.DeleteSet, 0), 4))},
		{"a set that leaves orphans, and its heir", ordered, join(calm(8), after(step(history.DeleteSet, 1), 2),
			after(step(history.CreateSet, 0), 4))},
		{"a set that is deleted in the foreground, and its heir", ordered, join(calm(8), after(step(history.DeleteSet, 2), 4),
			after(step(history.CreateSet, 0), 8))},
		{"other ordinals", ordered, join(calm(8), after(step(history.Ordinals, 2), 12))},
		{"lost labels", ordered, join(calm(8), after(step(history.StripPod, 1), 1), after(step(history.Relabel, 2), 4))},
	}
}

func step(k history.Kind, a int) []history.Step { return step2(k, a, 0) }

func step2(k history.Kind, a, b int) []history.Step { return []history.Step{{Kind: k, A: a, B: b}} }

// calm lets the nodes work so many times.
func calm(times int) []history.Step {
	var steps []history.Step
	for range times {
		steps = append(steps, history.Step{Kind: history.Work})
	}
	return steps
}

// after does something, and lets the nodes work so many times.
func after(first []history.Step, times int) []history.Step { return join(first, calm(times)) }

func join(parts ...[]history.Step) []history.Step {
	var all []history.Step
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// TestEveryCrash lets a controller crash before and after every write of some scenarios. The next one comes to the same end.
func TestEveryCrash(t *testing.T) {
	crashes := 0
	for _, s := range scenarios() {
		h := history.History{Config: s.config, Steps: s.steps}
		smooth := run(t, h, true)
		if len(smooth.Broken) > 0 {
			t.Errorf("%s: %s\n%s", s.name, smooth.Broken[0], smooth.Story)
			continue
		}
		for at := 1; at <= smooth.Stats.Writes; at++ {
			for _, done := range []bool{false, true} {
				h.Config.CrashAt, h.Config.CrashDone = at, done
				crashes++
				r := run(t, h, false)
				if len(r.Broken) == 0 && r.End == smooth.End && r.Stats.Crashes == 1 {
					continue
				}
				t.Errorf("%s, with a crash at write %d (made: %t): %v, and in the end\n%snot\n%s\n%s",
					s.name, at, done, r.Broken, r.End, smooth.End, run(t, h, true).Story)
			}
		}
	}
	t.Logf("%d crashes in %d scenarios", crashes, len(scenarios()))
}
