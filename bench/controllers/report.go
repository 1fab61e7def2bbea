// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// report is all that the command finds out.
type report struct {
	Machine string    `json:"machine"`
	Load    string    `json:"loadAverageBefore"`
	Scale   float64   `json:"scale"`
	Workers int       `json:"workers"`
	Took    string    `json:"took"`
	Results []*result `json:"results"`
}

// writeJSON writes the results and the comparisons to a file, unless it has no name.
func (r *report) writeJSON(file string) error {
	if file == "" {
		return nil
	}
	content, err := json.MarshalIndent(struct {
		*report
		Comparisons []comparison `json:"comparisons"`
	}{r, compare(r.Results)}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o600)
}

// print writes the tables: the aims, then a table for each scenario.
func (r *report) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured with `make bench` on %s; load average before: %s. Scale %g, %d workers each, in %s.\n",
		r.Machine, r.Load, r.Scale, r.Workers, r.Took)
	all := compare(r.Results)
	printAims(&b, all)
	last := ""
	for _, c := range all {
		if key := string(c.Limits) + c.Scenario; key != last {
			last = key
			fmt.Fprintf(&b, "\n%s:\n\n| %s | kube-controller-manager | Ordinal | ratio | spread |\n|---|---:|---:|---:|---:|\n",
				r.title(c), c.Scenario)
		}
		if isNothing(c) {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.Title, short(c.Incumbent), short(c.Ours), optional(c.Ratio), spread(c))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// isNothing tells if there is nothing to compare.
func isNothing(c comparison) bool { return c.Incumbent == 0 && c.Ours == 0 && c.Figure != figureWrites }

// title says how large a scenario is.
func (r *report) title(c comparison) string {
	for _, q := range r.Results {
		if q.Scenario == c.Scenario && q.Limits == c.Limits {
			rounds := "rounds"
			if c.Rounds == 1 {
				rounds = "round"
			}
			return fmt.Sprintf("%s, %d sets with %d pods, limits of requests: %s, %d %s", c.Scenario, q.Sets, q.Pods, c.Limits, c.Rounds, rounds)
		}
	}
	return c.Scenario
}

func printAims(b *strings.Builder, all []comparison) {
	head := "\n| aim | at most | measured | reached |\n|---|---:|---:|---|\n"
	row := func(title string, most, value float64) {
		reached := "**no**"
		if value <= most+1e-9 {
			reached = "yes"
		}
		fmt.Fprintf(b, "%s| %s | %s | %s | %s |\n", head, title, short(most), short(value), reached)
		head = ""
	}
	for _, a := range aims() {
		c, found := find(all, a.scenario, a.figure)
		if !found {
			continue
		}
		if value := a.of(c); value != nil {
			row(a.title, a.most, *value)
		}
	}
	if times, found := growth(all); found {
		row("CPU of ten times the sets, times", growthAim, times)
	}
}

// short is a number with three digits.
func short(n float64) string {
	switch size := math.Abs(n); {
	case math.IsNaN(n):
		return ""
	case size == 0:
		return "0"
	case size >= 100:
		return fmt.Sprintf("%.0f", n)
	case size >= 10:
		return fmt.Sprintf("%.1f", n)
	case size >= 1:
		return fmt.Sprintf("%.2f", n)
	default:
		return fmt.Sprintf("%.3f", n)
	}
}

func optional(n *float64) string {
	if n == nil {
		return ""
	}
	return short(*n)
}

func spread(c comparison) string {
	if c.Least == nil || c.Rounds < 2 {
		return ""
	}
	return short(*c.Least) + " – " + short(*c.Most)
}
