// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// turn is what was measured of one contender with sets of one shape.
type turn struct {
	shape
	Contender string `json:"contender"`
	Round     int    `json:"round"`
	// Seconds is the time from the first request to the last ready pod.
	Seconds float64 `json:"seconds"`
	// Made and Ready are, for each pod but the first of a set, the milliseconds from the moment at which the pod before it was seen
	// ready to the moment at which it was seen, and seen ready.
	Made  []float64 `json:"nextMadeMilliseconds"`
	Ready []float64 `json:"nextReadyMilliseconds"`
}

// turnOf works out the times between the pods of each set.
func turnOf(s shape, seen sightings, name string) turn {
	t := turn{shape: s}
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	for set := range s.Sets {
		for n := 1; n < s.Replicas; n++ {
			before, pod := seen[fmt.Sprintf("%s-%d", setName(name, set), n-1)], seen[fmt.Sprintf("%s-%d", setName(name, set), n)]
			t.Made = append(t.Made, milliseconds(pod.made.Sub(before.ready)))
			t.Ready = append(t.Ready, milliseconds(pod.ready.Sub(before.ready)))
		}
	}
	return t
}

// latencyReport is all that is found out about latency.
type latencyReport struct {
	Machine string `json:"machine"`
	Load    string `json:"loadAverageBefore"`
	Rounds  int    `json:"rounds"`
	Turns   []turn `json:"turns"`
}

// spread is a distribution.
type spread struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// spreadOf takes the nearest number of those there are.
func spreadOf(numbers []float64) spread {
	if len(numbers) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(numbers))
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)] }
	return spread{Count: len(sorted), P50: at(0.5), P99: at(0.99), Max: at(1)}
}

// compared is one figure of both contenders with sets of one shape, over all rounds.
type compared struct {
	shape
	Title     string `json:"figure"`
	Incumbent spread `json:"incumbent"`
	Ours      spread `json:"ours"`
	// Ratio is the median of our median through theirs in the same round; Least and Most are the extremes.
	Ratio float64 `json:"ratio"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// compare pairs the turns of each round, and leaves out what has no pair.
func (r *latencyReport) compare() []compared {
	var all []compared
	for _, s := range shapes() {
		for _, f := range []struct {
			title string
			of    func(turn) []float64
		}{
			{"pod ready → next pod made, ms", func(t turn) []float64 { return t.Made }},
			{"pod ready → next pod ready, ms", func(t turn) []float64 { return t.Ready }},
			{"first request → all pods ready, s", func(t turn) []float64 { return []float64{t.Seconds} }},
		} {
			var theirs, own, ratios []float64
			for round := 1; round <= r.Rounds; round++ {
				a, b := r.find(s, incumbent, round), r.find(s, ours, round)
				if a == nil || b == nil {
					continue
				}
				theirs, own = append(theirs, f.of(*a)...), append(own, f.of(*b)...)
				ratios = append(ratios, spreadOf(f.of(*b)).P50/spreadOf(f.of(*a)).P50)
			}
			if len(ratios) == 0 {
				continue
			}
			all = append(all, compared{
				shape: s, Title: f.title, Incumbent: spreadOf(theirs), Ours: spreadOf(own),
				Ratio: spreadOf(ratios).P50, Least: slices.Min(ratios), Most: slices.Max(ratios),
			})
		}
	}
	return all
}

func (r *latencyReport) find(s shape, who string, round int) *turn {
	i := slices.IndexFunc(r.Turns, func(t turn) bool { return t.shape == s && t.Contender == who && t.Round == round })
	if i < 0 {
		return nil
	}
	return &r.Turns[i]
}

// writeJSON writes all figures to a file, unless it has no name.
func (r *latencyReport) writeJSON(file string) error {
	if file == "" {
		return nil
	}
	content, err := json.MarshalIndent(struct {
		*latencyReport
		Comparisons []compared `json:"comparisons"`
	}{r, r.compare()}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o600)
}

// print writes a table for each shape.
func (r *latencyReport) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured with `make bench-latency` on %s; load average before: %s. Rounds: %d.\n", r.Machine, r.Load, r.Rounds)
	var last shape
	for _, c := range r.compare() {
		if c.shape != last {
			last = c.shape
			fmt.Fprintf(&b, "\n| %d × %d pods in order: p50, p99, most | kube-controller-manager | Ordinal | ratio of p50 | least – most |\n|---|---:|---:|---:|---:|\n",
				c.Sets, c.Replicas)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.2f | %.2f – %.2f |\n", c.Title, c.Incumbent, c.Ours, c.Ratio, c.Least, c.Most)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String is a cell of a table.
func (s spread) String() string { return fmt.Sprintf("%.1f, %.1f, %.1f", s.P50, s.P99, s.Max) }
