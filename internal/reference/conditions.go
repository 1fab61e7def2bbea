// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/status"
)

const conditionsFile = "internal/status/conditions.go"

// state is a condition that is true or false, and the reasons that it then has.
type state struct {
	condition appsv1.StatefulSetConditionType
	is        string
	reasons   []string
}

// states are those of all conditions. Degraded, when it is true, has others too.
func states() []state {
	return []state{
		{status.Available, "True", []string{status.ReasonAllAvailable, status.ReasonEnoughAvailable}},
		{status.Available, "False", []string{status.ReasonTooFewAvailable}},
		{appsv1.StatefulSetProgressing, "True", []string{status.ReasonScaling, status.ReasonUpdating, status.ReasonRollingBack}},
		{appsv1.StatefulSetProgressing, "False", []string{
			status.ReasonComplete, status.ReasonPaused, status.ReasonDeadlineExceeded, status.ReasonRolledBack, status.ReasonOnDelete,
			string(plan.WaitRecreateDisabled),
		}},
		{status.Degraded, "True", []string{status.ReasonFailedCreate}},
		{status.Degraded, "False", []string{status.ReasonAsExpected}},
	}
}

func conditionsPage(s source) (string, error) {
	told, err := s.constants(conditionsFile, "Reason")
	if err != nil {
		return "", err
	}
	waits, err := s.constants("internal/plan/reason.go", "Wait")
	if err != nil {
		return "", err
	}
	rows, err := conditionRows(told, waits)
	if err != nil {
		return "", err
	}
	degraded, err := degradedRows(s, waits)
	if err != nil {
		return "", err
	}
	p := newPage("Conditions", "internal/status")
	p.paragraphs("In the status of every StatefulSet, unless the controller runs with `--strict-upstream`. A message ends with since when it holds. " +
		"What they mean for `kubectl wait` is in [docs/controller.md](../controller.md#conditions); those of policies are " +
		"[with their type](statefulsetpolicy.md#status).")
	p.table([]string{"condition", "status", "reason", ""}, rows)
	p.paragraphs("## Reasons of Degraded", "These are there when it is true, beside `"+status.ReasonFailedCreate+"`. "+
		"The message names the object, and tells what is known.")
	p.table([]string{"reason", ""}, degraded)
	return p.String(), nil
}

// conditionRows has a row for each reason of each state. A reason that no state has is an error.
func conditionRows(told, waits []constant) ([][]string, error) {
	var rows [][]string
	var named []string
	for _, st := range states() {
		for _, reason := range st.reasons {
			doc, err := docOf(reason, slices.Concat(told, waits))
			if err != nil {
				return nil, err
			}
			named = append(named, reason)
			rows = append(rows, []string{code(string(st.condition)), st.is, code(reason), doc})
		}
	}
	for _, c := range told {
		if !slices.Contains(named, c.value) {
			return nil, fmt.Errorf("the states name no condition with %s", c.name)
		}
	}
	return rows, nil
}

func docOf(value string, all []constant) (string, error) {
	for _, c := range all {
		if c.value == value && c.doc != "" {
			return c.doc, nil
		}
	}
	return "", fmt.Errorf("no constant with a comment has the value %q", value)
}

// degradedRows has a row for each trouble of a pod, and for each wait by which a set is degraded.
func degradedRows(s source, waits []constant) ([][]string, error) {
	troubles, err := s.constants("internal/podstate/trouble.go", "Trouble")
	if err != nil {
		return nil, err
	}
	named, err := s.waitsIn(conditionsFile, "obstacle", "failedRollout")
	if err != nil {
		return nil, err
	}
	reasons := troubles
	for _, w := range waits {
		if slices.Contains(named, w.name) {
			reasons = append(reasons, w)
		}
	}
	var rows [][]string
	for _, r := range reasons {
		if r.doc == "" {
			return nil, fmt.Errorf("%s has no comment", r.name)
		}
		rows = append(rows, []string{code(r.value), r.doc})
	}
	return rows, nil
}

// waitsIn are the reasons for waits that functions of a file name.
func (s source) waitsIn(file string, functions ...string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(string(s), file), nil, 0)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !slices.Contains(functions, f.Name.Name) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(selector.Sel.Name, "Wait") {
				names = append(names, selector.Sel.Name)
			}
			return true
		})
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no wait is named in %v of %s", functions, file)
	}
	return names, nil
}
