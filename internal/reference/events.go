// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// Names in examples.
const (
	setName      = "web"
	podName      = "web-1"
	claimName    = "data-web-1"
	revisionName = "web-6b87bbfb7b"
)

func eventsPage(s source) (string, error) {
	events, err := eventRows(s)
	if err != nil {
		return "", err
	}
	actions, err := reasonRows(s, "Reason")
	if err != nil {
		return "", err
	}
	waits, err := reasonRows(s, "Wait")
	if err != nil {
		return "", err
	}
	p := newPage("Events and reasons", "internal/telemetry and internal/plan")
	p.paragraphs("## Events",
		"On the StatefulSet, from `"+telemetry.Component+"`. Beside these, an event with the reason of the condition "+
			"[`Degraded`](conditions.md#reasons-of-degraded) tells when that becomes true or changes, if no other event does. Names are examples.")
	p.table([]string{"reason", "type", "text"}, events)
	p.paragraphs("## Why something is done",
		"The label `reason` of `ordinal_actions_total`, and in the log with every write.")
	p.table([]string{"reason", ""}, actions)
	p.paragraphs("## Why something waits",
		"The label `reason` of `ordinal_statefulset_waits`, in conditions, and what `ordinal why` explains.")
	p.table([]string{"reason", "", "as conditions tell it"}, waits)
	return p.String(), nil
}

// eventRows has a row for each text of each event.
func eventRows(s source) ([][]string, error) {
	reasons, err := s.constants("internal/telemetry/events.go", "Event")
	if err != nil {
		return nil, err
	}
	told, err := events(s)
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, reason := range reasons {
		before := len(rows)
		for _, e := range told {
			if e.Reason == reason.value {
				rows = append(rows, []string{code(e.Reason), e.Type, e.Message})
			}
		}
		if len(rows) == before {
			if reason.doc == "" {
				return nil, fmt.Errorf("%s has no comment, and no action and no wait is told by it", reason.name)
			}
			rows = append(rows, []string{code(reason.value), "", reason.doc})
		}
	}
	return rows, nil
}

// events are those of all actions, done or refused, and of all waits, each text once.
func events(s source) ([]telemetry.Event, error) {
	var all []telemetry.Event
	add := func(e telemetry.Event, ok bool) {
		if ok && !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	for _, a := range actions() {
		add(telemetry.ForOutcome(setName, plan.Outcome{Action: a, Result: plan.ResultDone}))
		add(telemetry.ForOutcome(setName, plan.Outcome{Action: a, Result: plan.ResultFailed, Err: errors.New("…")}))
	}
	reasons, err := s.constants("internal/plan/reason.go", "Wait")
	if err != nil {
		return nil, err
	}
	for _, reason := range reasons {
		w := waitFor(reason.value)
		add(telemetry.ForWait(metav1.NamespaceDefault, setName, w))
		w.For = ""
		if reason.value == string(plan.WaitPolicyConflict) {
			add(telemetry.ForWait(metav1.NamespaceDefault, setName, w))
		}
	}
	return all, nil
}

// actions are one of each kind.
func actions() []plan.Action {
	ref := func(kind plan.Kind, name string) plan.Ref { return plan.Ref{Kind: kind, Name: name} }
	pod, claim, revision := ref(plan.KindPod, podName), ref(plan.KindClaim, claimName), ref(plan.KindRevision, revisionName)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	return []plan.Action{
		plan.CreatePod{Pod: &corev1.Pod{ObjectMeta: named(podName)}},
		plan.CreateClaim{Claim: &corev1.PersistentVolumeClaim{ObjectMeta: named(claimName)}, Pod: podName},
		plan.CreateRevision{Revision: &appsv1.ControllerRevision{ObjectMeta: named(revisionName)}},
		plan.LabelPod{Pod: pod},
		plan.TellPod{Pod: pod},
		plan.OwnClaim{Claim: claim, Pod: podName},
		plan.BumpRevision{Revision: revision},
		plan.DeletePod{Pod: pod},
		plan.DeleteRevision{Revision: revision},
		plan.AdoptPod{Pod: pod},
		plan.AdoptRevision{Revision: revision},
		plan.ReleasePod{Pod: pod},
	}
}

// waitFor is a wait for a reason, on what such waits are on.
func waitFor(reason string) plan.Wait {
	w := plan.Wait{Reason: plan.Reason(reason), For: podName, On: plan.Ref{Kind: plan.KindPod, Name: podName}}
	switch w.Reason {
	case plan.WaitClaimTerminating, plan.WaitClaimStale, plan.WaitClaimConflict, plan.WaitClaimShared:
		w.On = plan.Ref{Kind: plan.KindClaim, Name: claimName}
	case plan.WaitBadRevision:
		w.On = plan.Ref{Kind: plan.KindRevision, Name: revisionName}
	case plan.WaitSetTerminating, plan.WaitBadSelector, plan.WaitBadTemplate, plan.WaitRecreateDisabled, plan.WaitBudget,
		plan.WaitPartition, plan.WaitOnDelete, plan.WaitPaused, plan.WaitBatch, plan.WaitDeadline, plan.WaitRolledBack,
		plan.WaitPolicyConflict:
		w.On, w.For = plan.Ref{Kind: plan.KindSet, Name: setName}, ""
	default:
	}
	switch w.Reason {
	case plan.WaitClaimShared:
		w.Detail = "StatefulSet old"
	case plan.WaitBadName:
		w.Detail = "…"
	default:
	}
	return w
}

// reasonRows has a row for each reason whose constant begins so.
func reasonRows(s source, prefix string) ([][]string, error) {
	reasons, err := s.constants("internal/plan/reason.go", prefix)
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, r := range reasons {
		if r.doc == "" {
			return nil, fmt.Errorf("%s has no comment", r.name)
		}
		cells := []string{code(r.value), r.doc}
		if prefix == "Wait" {
			cells = append(cells, waitFor(r.value).Sentence())
		}
		rows = append(rows, cells)
	}
	return rows, nil
}
