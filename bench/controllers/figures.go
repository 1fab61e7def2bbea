// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
)

// figure is one number of a result. It is not a number where it means nothing.
type figure struct {
	key, title string
	of         func(*result) float64
}

// Keys of the figures that the aims name.
const (
	figureWall     = "wall"
	figureCPU      = "cpu"
	figureSettled  = "settled"
	figureWrites   = "writes"
	figurePods     = "pod-writes"
	figureSyncs    = "syncs"
	figureStepLast = "step-p99"
	figureShare    = "cpu-share"
)

// figures are those of the tables, in their order.
func figures() []figure {
	perPod := func(n func(*result) float64) func(*result) float64 {
		return unless(isRest, func(r *result) float64 { return n(r) / float64(r.Pods) })
	}
	megabytes := func(bytes int64) float64 { return float64(bytes) / 1e6 }
	return []figure{
		{figureWall, "time, s", unless(isRest, func(r *result) float64 { return r.Seconds })},
		{"acted", "changed set acted upon, s", only(restart, func(r *result) float64 { return r.ActedSeconds })},
		{figureCPU, "CPU, s", func(r *result) float64 { return r.CPUSeconds }},
		{"cpu-net", "CPU without that of an empty start, s", only(restart, func(r *result) float64 { return r.CPUSeconds - r.StartCPUSeconds })},
		{figureShare, "CPU, % of a core", only(atRest, func(r *result) float64 { return 100 * r.CPUSeconds / r.Seconds })},
		{"server-cpu", "CPU of the API server, s", func(r *result) float64 { return r.ServerCPUSeconds }},
		{"server-cores", "cores that the API server used", unless(isRest, func(r *result) float64 { return r.ServerCPUSeconds / r.Seconds })},
		{"in-flight", "requests of the contender in flight", unless(isRest, func(r *result) float64 { return r.InFlight })},
		{"peak", "peak memory, MB", func(r *result) float64 { return megabytes(r.PeakBytes) }},
		{figureSettled, "settled memory, MB", func(r *result) float64 { return megabytes(r.SettledBytes) }},
		{"own", "of it not backed by files, MB", func(r *result) float64 { return megabytes(r.OwnBytes) }},
		{figurePods, "writes of pods and sets per pod", perPod(func(r *result) float64 { return float64(r.PodWrites) })},
		{"all-writes", "writes but events per pod", perPod(func(r *result) float64 { return float64(r.Writes) })},
		{figureWrites, "writes but events", func(r *result) float64 { return float64(r.Writes) }},
		{"refused", "of them refused", func(r *result) float64 { return float64(r.Refused) }},
		{"events", "event writes per pod", perPod(func(r *result) float64 { return float64(r.EventWrites) })},
		{"reads", "reads", func(r *result) float64 { return float64(r.Reads) }},
		{"bytes-read", "kB read per pod", perPod(func(r *result) float64 { return float64(r.BytesRead) / 1000 })},
		{"bytes-written", "kB written per pod", perPod(func(r *result) float64 { return float64(r.BytesWritten) / 1000 })},
		{figureSyncs, "syncs per pod", perPod(func(r *result) float64 { return r.Syncs })},
		{"sync-time", "time per sync, ms", unless(isIdle, func(r *result) float64 { return 1000 * r.SyncSeconds / r.Syncs })},
		{"sync-cpu", "CPU per sync, ms", unless(isIdle, func(r *result) float64 { return 1000 * r.CPUSeconds / r.Syncs })},
		{"write-p50", "ready → next write, p50, ms", counted(func(r *result) latency { return r.NextWrite }, latency.median)},
		{"write-p99", "ready → next write, p99, ms", counted(func(r *result) latency { return r.NextWrite }, latency.last)},
		{"step-p50", "ready → next pod's turn, p50, ms", counted(func(r *result) latency { return r.NextStep }, latency.median)},
		{figureStepLast, "ready → next pod's turn, p99, ms", counted(func(r *result) latency { return r.NextStep }, latency.last)},
	}
}

func isRest(r *result) bool { return r.Scenario == atRest }

func isIdle(r *result) bool { return r.Syncs == 0 }

// unless gives a figure that means nothing for some results.
func unless(is func(*result) bool, of func(*result) float64) func(*result) float64 {
	return func(r *result) float64 {
		if is(r) {
			return math.NaN()
		}
		return of(r)
	}
}

// only gives a figure of one scenario.
func only(scenario string, of func(*result) float64) func(*result) float64 {
	return unless(func(r *result) bool { return r.Scenario != scenario }, of)
}

func (l latency) median() float64 { return l.P50 }

func (l latency) last() float64 { return l.P99 }

// counted gives a figure of a distribution, unless it is empty.
func counted(of func(*result) latency, value func(latency) float64) func(*result) float64 {
	return func(r *result) float64 {
		if l := of(r); l.Count > 0 {
			return value(l)
		}
		return math.NaN()
	}
}

// comparison is a figure of both contenders in a scenario, over all rounds.
type comparison struct {
	Limits   limits `json:"limits"`
	Scenario string `json:"scenario"`
	Figure   string `json:"figure"`
	Title    string `json:"title"`
	// Incumbent and Ours are medians.
	Incumbent float64 `json:"incumbent"`
	Ours      float64 `json:"ours"`
	// Ratio is the median of ours through the incumbent's in the same round, Least and Most are the extremes. There is none
	// where the incumbent has 0.
	Rounds int      `json:"rounds"`
	Ratio  *float64 `json:"ratio,omitempty"`
	Least  *float64 `json:"least,omitempty"`
	Most   *float64 `json:"most,omitempty"`
}

// compare pairs the results of each round.
func compare(results []*result) []comparison {
	var all []comparison
	for _, l := range []limits{unlimited, defaults} {
		for _, scenario := range []string{ordered, tenth, parallel, single, rolling, zero, slow, slowRoll, update, restart, atRest} {
			pairs := pairsOf(results, l, scenario)
			for _, f := range figures() {
				if c, ok := compareFigure(pairs, f); ok {
					c.Limits, c.Scenario = l, scenario
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// pair are the results of both in a round.
type pair struct{ incumbent, ours *result }

func pairsOf(results []*result, l limits, scenario string) []pair {
	rounds := map[int]pair{}
	last := 0
	for _, r := range results {
		if r.Limits != l || r.Scenario != scenario {
			continue
		}
		p := rounds[r.Round]
		if r.Contender == incumbent {
			p.incumbent = r
		} else {
			p.ours = r
		}
		rounds[r.Round], last = p, max(last, r.Round)
	}
	var pairs []pair
	for n := 1; n <= last; n++ {
		if p := rounds[n]; p.incumbent != nil && p.ours != nil {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// compareFigure is false when the figure means nothing for the pairs.
func compareFigure(pairs []pair, f figure) (comparison, bool) {
	var theirs, own, ratios []float64
	for _, p := range pairs {
		a, b := f.of(p.incumbent), f.of(p.ours)
		if math.IsNaN(a) || math.IsNaN(b) {
			continue
		}
		theirs, own = append(theirs, a), append(own, b)
		if a > 0 {
			ratios = append(ratios, b/a)
		}
	}
	if len(own) == 0 {
		return comparison{}, false
	}
	c := comparison{Figure: f.key, Title: f.title, Incumbent: median(theirs), Ours: median(own), Rounds: len(own)}
	if len(ratios) > 0 {
		c.Ratio, c.Least, c.Most = new(median(ratios)), new(slices.Min(ratios)), new(slices.Max(ratios))
	}
	return c, true
}

// median is that of at least one number.
func median(numbers []float64) float64 {
	sorted := slices.Sorted(slices.Values(numbers))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// aim is what a figure should come to.
type aim struct {
	title            string
	scenario, figure string
	most             float64
	// of takes the value out of the comparison; nil where there is none.
	of func(comparison) *float64
}

func ratioOf(c comparison) *float64 { return c.Ratio }

func oursOf(c comparison) *float64 { return &c.Ours }

// aims are those without limits of requests, but for growth, which compares two scenarios.
func aims() []aim {
	return []aim{
		{"writes of pods and sets per pod, ordered bring-up of pods that take a second", slow, figurePods, 0.7, ratioOf},
		{"writes of pods and sets per pod, rolling update of pods that take a second", slowRoll, figurePods, 0.65, ratioOf},
		{"syncs per pod, rolling update of a Parallel set", update, figureSyncs, 4, oursOf},
		{"CPU, ordered bring-up", ordered, figureCPU, 0.4, ratioOf},
		{"CPU, rolling update", rolling, figureCPU, 0.4, ratioOf},
		{"CPU, restart until caught up", restart, figureCPU, 0.1, ratioOf},
		{"settled memory, large Parallel sets", parallel, figureSettled, 0.5, ratioOf},
		{"time, large Parallel sets", parallel, figureWall, 0.8, ratioOf},
		{"ready → next pod's turn, p99, ordered bring-up, ms", ordered, figureStepLast, 10, oursOf},
		{"ready → next pod's turn, p99, ordered bring-up", ordered, figureStepLast, 0.5, ratioOf},
		{"writes at rest", atRest, figureWrites, 0, oursOf},
		{"CPU at rest, % of a core", atRest, figureShare, 0.5, oursOf},
	}
}

// growthAim is how much more CPU ten times the sets may cost.
const growthAim = 11

// growth is how much more CPU the ordered bring-up costs with all sets than with a tenth of them; false if one was not measured.
func growth(all []comparison) (float64, bool) {
	whole, found := find(all, ordered, figureCPU)
	part, foundPart := find(all, tenth, figureCPU)
	if !found || !foundPart || part.Ours == 0 {
		return 0, false
	}
	return whole.Ours / part.Ours, true
}

func find(all []comparison, scenario, figure string) (comparison, bool) {
	i := slices.IndexFunc(all, func(c comparison) bool {
		return c.Limits == unlimited && c.Scenario == scenario && c.Figure == figure
	})
	if i < 0 {
		return comparison{}, false
	}
	return all[i], true
}
