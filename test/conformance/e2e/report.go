// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// verdict is what became of a spec.
type verdict string

const (
	passed verdict = "passed"
	failed verdict = "FAILED"
	notRun verdict = "not run"
)

// result is what became of a spec, and why if it did not pass.
type result struct {
	spec    string
	verdict verdict
	took    time.Duration
	reason  string
}

// reported is what we read of ginkgo's JSON report: one element for each run of the suite.
type reported []struct {
	SpecReports []specReport
}

type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

func (s specReport) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// readReport gives the results of the group's specs, sorted by name. A failure outside of specs, of what is made for the whole suite, is
// a failed result too.
func readReport(report []byte, g group, known exceptions) ([]result, error) {
	var runs reported
	if err := json.Unmarshal(report, &runs); err != nil {
		return nil, err
	}
	var results []result
	specs := 0
	for _, run := range runs {
		for _, s := range run.SpecReports {
			isSpec := s.LeafNodeType == "It" && g.has(s.name())
			if isSpec {
				specs++
			}
			if r := s.result(known); isSpec || s.LeafNodeType != "It" && r.verdict == failed {
				results = append(results, r)
			}
		}
	}
	if specs == 0 {
		return nil, errors.New("the suite has no such spec")
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.spec, b.spec) })
	return results, nil
}

// result says what became of a spec. Whatever is neither a pass nor a skip is a failure: panics, time limits, interruptions.
func (s specReport) result(known exceptions) result {
	r := result{spec: s.name(), took: s.RunTime, reason: strings.TrimSpace(s.Failure.Message)}
	switch s.State {
	case "passed":
		r.verdict = passed
	case "skipped", "pending":
		r.verdict = notRun
		r.reason = cmp.Or(known.reason(r.spec), r.reason, "the suite leaves it out unless asked for")
	default:
		r.verdict = failed
		r.reason = cmp.Or(r.reason, s.State)
	}
	return r
}

// show prints a line for each spec, and below it why it did not pass.
func show(out io.Writer, results []result) {
	for _, r := range results {
		fmt.Fprintf(out, "%-7s %5s  %s\n", r.verdict, r.took.Round(time.Second), r.spec)
		if r.verdict != passed {
			first, _, _ := strings.Cut(r.reason, "\n")
			fmt.Fprintf(out, "%15s%s\n", "", first)
		}
	}
}

// count is the line that all results come down to.
func count(results []result) string {
	n := map[verdict]int{}
	for _, r := range results {
		n[r.verdict]++
	}
	return fmt.Sprintf("%d passed, %d failed, %d not run", n[passed], n[failed], n[notRun])
}

func failures(results []result) int {
	n := 0
	for _, r := range results {
		if r.verdict == failed {
			n++
		}
	}
	return n
}
