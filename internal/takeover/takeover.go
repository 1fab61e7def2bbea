// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeover finds out whether Ordinal can take a cluster over: whether the StatefulSet controller of
// kube-controller-manager is off, which cannot be asked but leaves traces, and what would change for which set.
package takeover

import (
	"context"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

// Question is what to look at, and how.
type Question struct {
	Client   kubernetes.Interface
	Policies observe.PolicyClient
	// Namespace is where sets are looked at; empty for all.
	Namespace string
	// Options are those of the controller that would take over.
	Options plan.Options
	// NoCanary means that nothing is written.
	NoCanary bool
	// Wait is for how long somebody may react to the canary.
	Wait time.Duration
	Now  func() time.Time
}

// State is whether a controller works in the cluster.
type State string

// The states of a controller.
const (
	On      State = "on"
	Off     State = "off"
	Unknown State = "unknown"
)

// Controller is what is known of one of the two controllers.
type Controller struct {
	State State `json:"state"`
	// Evidence is what tells so, in words.
	Evidence []string `json:"evidence"`
}

func (c *Controller) add(text string) { c.Evidence = append(c.Evidence, text) }

// Verdict is the end of a check.
type Verdict string

// The verdicts, from the best to the worst.
const (
	// Ready means that the built-in controller is off, and that nothing would change.
	Ready Verdict = "ready"
	// Changes means that it is off, and that something would change.
	Changes Verdict = "changes"
	// Undecided means that it could not be found out whether it is off, or what would change.
	Undecided Verdict = "undecided"
	// NotYet means that it is on.
	NotYet Verdict = "not yet"
	// Both means that it is on, and Ordinal too.
	Both Verdict = "both"
)

// Report is what a check found.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Text is the verdict in words, with what to do.
	Text    string     `json:"text"`
	BuiltIn Controller `json:"builtIn"`
	Ordinal Controller `json:"ordinal"`
	Sets    Sets       `json:"sets"`
	// Missing are the rights for want of which something was not looked at.
	Missing []Right `json:"missing"`
}

// Check looks. Its error means that it was interrupted, or that the cluster does not answer.
func Check(ctx context.Context, q Question) (*Report, error) {
	c := &check{Question: q, report: &Report{Missing: []Right{}, Sets: noSets()}}
	if err := c.learnRights(ctx); err != nil {
		return nil, err
	}
	past, err := c.past(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := c.canary(ctx)
	if err != nil {
		return nil, err
	}
	if c.may(forSets) {
		if err := c.compare(ctx); err != nil {
			return nil, err
		}
	}
	c.report.BuiltIn, c.report.Ordinal = past.builtIn(seen), past.ordinal(seen)
	c.report.judge(c.may(forSets))
	return c.report, nil
}

// check is a check that goes on.
type check struct {
	Question

	report *Report
	lacks  map[purpose]bool
}

// judge gives the verdict.
func (r *Report) judge(setsKnown bool) {
	switch {
	case r.BuiltIn.State == On && r.Ordinal.State == On:
		r.Verdict, r.Text = Both, "two controllers work on the same sets. Ordinal stops when it notices; switch the built-in controller off, or Ordinal"
	case r.BuiltIn.State == On:
		r.Verdict, r.Text = NotYet, "the built-in controller is on. Switch it off on the day: kube-controller-manager "+offFlag
	case r.BuiltIn.State == Unknown:
		r.Verdict, r.Text = Undecided, "whether the built-in controller is off could not be found out. Make sure of it before Ordinal is started"
	case !setsKnown:
		r.Verdict, r.Text = Undecided, "the built-in controller is off, but what would change could not be found out"
	case len(r.Sets.Changes) > 0:
		r.Verdict, r.Text = Changes, "the built-in controller is off, and Ordinal would change what is told above"
	default:
		r.Verdict, r.Text = Ready, "the built-in controller is off, and Ordinal would change nothing"
	}
}

// offFlag switches the built-in controller off.
const offFlag = "--controllers=*,-statefulset-controller"

// isOurs tells if a field manager is a part of Ordinal.
func isOurs(manager string) bool {
	return strings.HasPrefix(manager, "ordinal-")
}
