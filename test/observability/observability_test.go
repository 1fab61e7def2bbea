// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observability checks the alerts, the dashboard and what is written about them against the metrics, with promtool.
package observability

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	root      = "../.."
	alerts    = root + "/install/observability/alerts.yaml"
	tests     = root + "/install/observability/alerts_test.yaml"
	dashboard = root + "/install/observability/dashboard.json"
)

// promtool runs promtool, which has to be content.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	binary, err := filepath.Abs(root + "/bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("bin/promtool is missing: run scripts/promtool first (%v)", err)
	}
	if said, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, bytes.TrimSpace(said))
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// parse reads YAML or JSON without any field that into does not have.
func parse(t *testing.T, file string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(read(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// expectation is what an expression has to give at a time.
type expectation struct {
	Expr    string           `json:"expr"`
	At      string           `json:"eval_time"`
	Samples []expectedSample `json:"exp_samples"`
}

type expectedSample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// expect lets promtool look at the expectations, half an hour and more after a controller began to tell of itself. Rules may be empty.
func expect(t *testing.T, rules string, told exposition, all []expectation) {
	t.Helper()
	suite := map[string]any{
		"evaluation_interval": "1m",
		"tests":               []any{map[string]any{"interval": "1m", "input_series": told.input(), "promql_expr_test": all}},
	}
	if rules != "" {
		path, err := filepath.Abs(rules)
		if err != nil {
			t.Fatal(err)
		}
		suite["rule_files"] = []string{path}
	}
	content, err := yaml.Marshal(suite)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// isFilled expects an expression to give at least one series that has a number, and that all of them have the labels.
func isFilled(expr string, labels []string) []expectation {
	all := []expectation{{
		Expr: fmt.Sprintf("count((%s) > -Inf) > bool 0", expr), At: "60m", Samples: []expectedSample{{"{}", 1}},
	}}
	for _, l := range labels {
		all = append(all, expectation{
			Expr: fmt.Sprintf(`group by (has) (label_replace((%s), "has", "yes", %q, ".+"))`, expr, l), At: "60m",
			Samples: []expectedSample{{`{has="yes"}`, 1}},
		})
	}
	return all
}
