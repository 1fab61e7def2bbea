// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// median takes the median of each stage by itself.
func median(runs []stages) stages {
	pick := func(stage func(stages) time.Duration) time.Duration {
		var times []time.Duration
		for _, r := range runs {
			times = append(times, stage(r))
		}
		slices.Sort(times)
		if len(times) == 0 {
			return 0
		}
		return times[len(times)/2]
	}
	return stages{
		api:   pick(func(s stages) time.Duration { return s.api }),
		node:  pick(func(s stages) time.Duration { return s.node }),
		ready: pick(func(s stages) time.Duration { return s.ready }),
		pods:  pick(func(s stages) time.Duration { return s.pods }),
		name:  pick(func(s stages) time.Duration { return s.name }),
	}
}

// print writes the tables.
func (m *measurement) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured with `make bench-up` on %s; load average before: %s.\n\n", m.machine, m.load)
	b.WriteString("| time since `ordinal up` | first start | later start | later start, set applied anew |\n|---|---:|---:|---:|\n")
	for _, row := range []struct {
		name  string
		stage func(stages) time.Duration
	}{
		{"the API answers", func(s stages) time.Duration { return s.api }},
		{"the node is ready", func(s stages) time.Duration { return s.node }},
		{"`ordinal up` says ready", func(s stages) time.Duration { return s.ready }},
		{"three pods with claims are ready", func(s stages) time.Duration { return s.pods }},
		{"a peer's name answers from inside a pod", func(s stages) time.Duration { return s.name }},
	} {
		fmt.Fprintf(&b, "| %s | %.1f s | %.1f s | %.1f s |\n", row.name,
			row.stage(m.first).Seconds(), row.stage(m.again).Seconds(), row.stage(m.fresh).Seconds())
	}
	fmt.Fprintf(&b, "\n| idle for %s with that set | processes | memory (PSS) | CPU, of one core |\n|---|---:|---:|---:|\n", m.idle.Round(time.Second))
	total := part{name: "**in all**"}
	for _, p := range m.parts {
		m.row(&b, p)
		total.count += p.count
		total.memory += p.memory
		total.cpu += p.cpu
	}
	m.row(&b, total)
	_, err := io.WriteString(w, b.String())
	return err
}

func (m *measurement) row(w io.Writer, p part) {
	fmt.Fprintf(w, "| %s | %d | %.0f MB | %.2f %% |\n", p.name, p.count, float64(p.memory)/1e6, 100*p.cpu.Seconds()/m.idle.Seconds())
}
