// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// latency is how long it took from changes of one kind to the controller's first write, in seconds.
type latency struct {
	Count  int     `json:"count"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"most"`
	// Open is how many of them were never answered.
	Open int `json:"open"`
}

func summarize(times []time.Duration) latency {
	if len(times) == 0 {
		return latency{}
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(percent int) float64 { return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Seconds() }
	return latency{Count: len(sorted), Median: at(50), P99: at(99), Most: at(100)}
}

// report is all that the command finds out. CPU is in percent of one core, times in seconds, memory in bytes.
type report struct {
	Machine    string             `json:"machine"`
	LoadBefore string             `json:"loadBefore"`
	Sets       int                `json:"sets"`
	Replicas   int                `json:"replicas"`
	Rate       float64            `json:"rate"`
	Seed       uint64             `json:"seed"`
	Promises   promises           `json:"promises"`
	ComeUp     float64            `json:"comeUp"`
	Duration   float64            `json:"duration"`
	Changes    map[string]int     `json:"changes"`
	Latencies  map[string]latency `json:"latencies"`
	// API is how long the API server itself took to answer a change.
	API        latency `json:"api"`
	MemoryWarm uint64  `json:"memoryWarm"`
	MemoryEnd  uint64  `json:"memoryEnd"`
	MemoryMost uint64  `json:"memoryMost"`
	MemoryRest uint64  `json:"memoryRest"`
	ChurnCPU   float64 `json:"churnCPU"`
	Settle     float64 `json:"settle"`
	RestCPU    float64 `json:"restCPU"`
}

func (r *report) ratio() float64 { return float64(r.MemoryEnd) / float64(r.MemoryWarm) }

// broken is nil when every promise was kept.
func (r *report) broken() error {
	var errs []error
	breaks := func(broken bool, format string, args ...any) {
		if broken {
			errs = append(errs, fmt.Errorf("promise broken: "+format, args...))
		}
	}
	p := r.Promises
	breaks(r.ratio() > p.MemoryRatio, "memory at the end is %.2f × that after the warm-up, at most %g × was promised", r.ratio(), p.MemoryRatio)
	for _, kind := range slices.Sorted(maps.Keys(r.Changes)) {
		l := r.Latencies[kind]
		breaks(l.Count == 0, "%s: the controller has answered none of %d changes", kind, r.Changes[kind])
		breaks(l.P99 > p.P99.Seconds(), "%s: the p99 is %.2f s, at most %v was promised", kind, l.P99, p.P99)
		breaks(l.Open > 0, "%s: %d changes were not answered before the end", kind, l.Open)
	}
	breaks(r.Settle > p.Settle.Seconds(), "every set was right only %.1f s after the last change, at most %v was promised", r.Settle, p.Settle)
	breaks(r.RestCPU > p.RestCPU, "at rest it uses %.2f %% of a core, at most %g %% was promised", r.RestCPU, p.RestCPU)
	return errors.Join(errs...)
}

func (r *report) writeJSON(name string) error {
	if name == "" {
		return nil
	}
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(content, '\n'), 0o600)
}

// print writes the tables.
func (r *report) print(w io.Writer) error {
	var b strings.Builder
	changes := 0
	for _, n := range r.Changes {
		changes += n
	}
	fmt.Fprintf(&b, "Measured with `make load` on %s; load average before: %s. %d sets of %d pods came up in %.0f s; then %.1f changes per second for %.0f s, seed %d.\n\n",
		r.Machine, r.LoadBefore, r.Sets, r.Replicas, r.ComeUp, float64(changes)/r.Duration, r.Duration, r.Seed)
	b.WriteString("| from a change to the controller's first write | changes | median | p99 | most |\n|---|---:|---:|---:|---:|\n")
	for _, kind := range slices.Sorted(maps.Keys(r.Latencies)) {
		l := r.Latencies[kind]
		fmt.Fprintf(&b, "| %s | %d | %.0f ms | %.0f ms | %.0f ms |\n", kind, l.Count, 1e3*l.Median, 1e3*l.P99, 1e3*l.Most)
	}
	fmt.Fprintf(&b, "| *the API server's answer to a change* | %d | %.0f ms | %.0f ms | %.0f ms |\n", r.API.Count, 1e3*r.API.Median, 1e3*r.API.P99, 1e3*r.API.Most)
	b.WriteString("\n| the controller | measured | promised |\n|---|---:|---:|\n")
	fmt.Fprintf(&b, "| memory after the warm-up | %.1f MB | |\n", mb(r.MemoryWarm))
	fmt.Fprintf(&b, "| memory at the end | %.1f MB, %.2f × | %g × |\n", mb(r.MemoryEnd), r.ratio(), r.Promises.MemoryRatio)
	fmt.Fprintf(&b, "| most memory meanwhile | %.1f MB | |\n| memory at rest | %.1f MB | |\n", mb(r.MemoryMost), mb(r.MemoryRest))
	fmt.Fprintf(&b, "| from the last change until every set was right | %.1f s | %v |\n", r.Settle, r.Promises.Settle)
	fmt.Fprintf(&b, "| CPU during the changes, of one core | %.1f %% | |\n", r.ChurnCPU)
	fmt.Fprintf(&b, "| CPU at rest, of one core | %.2f %% | %g %% |\n", r.RestCPU, r.Promises.RestCPU)
	_, err := io.WriteString(w, b.String())
	return err
}

func mb(bytes uint64) float64 { return float64(bytes) / 1e6 }
