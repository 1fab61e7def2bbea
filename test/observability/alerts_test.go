// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observability

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/status"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

type ruleFile struct {
	Groups []struct {
		Name  string  `json:"name"`
		Rules []alert `json:"rules"`
	} `json:"groups"`
}

type alert struct {
	Name        string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func loadAlerts(t *testing.T) []alert {
	t.Helper()
	var file ruleFile
	parse(t, alerts, &file)
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 8 {
		t.Fatalf("there are %d alerts", len(all))
	}
	return all
}

// promtool accepts the alerts, and they fire and are silent as alerts_test.yaml says.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", alerts)
	promtool(t, "test", "rules", tests)
}

// For each alert there is a test in which it fires, and one in which nothing does.
func TestEachAlertIsTested(t *testing.T) {
	var suite struct {
		RuleFiles []string `json:"rule_files"`
		Interval  string   `json:"evaluation_interval"`
		Tests     []struct {
			Name     string              `json:"name"`
			Interval string              `json:"interval"`
			Input    []map[string]string `json:"input_series"`
			Expr     []expectation       `json:"promql_expr_test"`
			Alerts   []any               `json:"alert_rule_test"`
		} `json:"tests"`
	}
	parse(t, tests, &suite)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, tt := range suite.Tests {
		name, _, _ := strings.Cut(tt.Name, " ")
		var samples []expectedSample
		for _, e := range tt.Expr {
			if !strings.Contains(e.Expr, `ALERTS{alertstate="firing"}`) {
				t.Errorf("%q looks at %s, and not at all alerts", tt.Name, e.Expr)
			}
			samples = append(samples, e.Samples...)
		}
		isAbout := func(s expectedSample) bool { return strings.Contains(s.Labels, fmt.Sprintf("alertname=%q", name)) }
		switch {
		case len(tt.Expr) > 0 && strings.HasPrefix(tt.Name, name+" is silent ") && len(samples) == 0:
			silent[name] = true
		case strings.HasPrefix(tt.Name, name+" fires ") && slices.ContainsFunc(samples, isAbout):
			fires[name] = true
		default:
			t.Errorf("%q tests something else", tt.Name)
		}
	}
	for _, a := range loadAlerts(t) {
		if !fires[a.Name] || !silent[a.Name] {
			t.Errorf("%s has a test in which it fires: %v, in which it is silent: %v", a.Name, fires[a.Name], silent[a.Name])
		}
	}
}

// Each alert says what it is about and what to do, by labels that it has, and names its section of the runbook.
func TestAlertsTellWhatToDo(t *testing.T) {
	severities := []string{"critical", "warning"}
	used := regexp.MustCompile(`\$labels\.(\w+)`)
	kept := regexp.MustCompile(`^(?:\(time\(\) - )?max by \(([\w, ]+)\)`)
	for _, a := range loadAlerts(t) {
		if !slices.Contains(severities, a.Labels["severity"]) || len(a.Labels) != 1 {
			t.Errorf("%s has the labels %v", a.Name, a.Labels)
		}
		var labels []string
		if found := kept.FindStringSubmatch(a.Expr); found != nil {
			labels = strings.Split(found[1], ", ")
		}
		for _, found := range used.FindAllStringSubmatch(a.Annotations["summary"]+a.Annotations["description"], -1) {
			if !slices.Contains(labels, found[1]) {
				t.Errorf("%s tells its label %s, and has only %q", a.Name, found[1], labels)
			}
		}
		if a.Annotations["summary"] == "" || len(a.Annotations["description"]) < 80 {
			t.Errorf("%s says too little", a.Name)
		}
		if want := "docs/alerts.md#" + strings.ToLower(a.Name); a.Annotations["runbook"] != want {
			t.Errorf("the runbook of %s is %s, want %s", a.Name, a.Annotations["runbook"], want)
		}
	}
}

// The runbook has a section for each alert and none for others, and docs/observe.md a row with its severity.
func TestEachAlertHasARunbook(t *testing.T) {
	var want []string
	page := read(t, root+"/docs/observe.md")
	for _, a := range loadAlerts(t) {
		want = append(want, a.Name)
		row := fmt.Sprintf("\n| [%#q](alerts.md#%s) | %s | ", a.Name, strings.ToLower(a.Name), a.Labels["severity"])
		if !strings.Contains(page, row) {
			t.Errorf("docs/observe.md has no row %q", strings.TrimSpace(row))
		}
	}
	var sections []string
	for _, found := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(read(t, root+"/docs/alerts.md"), -1) {
		sections = append(sections, found[1])
	}
	if !slices.Equal(sections, want) {
		t.Errorf("docs/alerts.md has the sections %q, want %q", sections, want)
	}
	if n := strings.Count(page, "](alerts.md#"); n != len(want) {
		t.Errorf("docs/observe.md names %d alerts, and there are %d", n, len(want))
	}
}

// Each alert names metrics, labels and reasons that there are.
func TestAlertsNameWhatThereIs(t *testing.T) {
	known := scrape(t, telemetry.Example()).labels()
	reasons := []string{
		status.ReasonFailedCreate, string(plan.WaitBackoff), string(plan.WaitDeadline), string(plan.WaitRolledBack),
		string(plan.WaitNotAvailable), string(plan.WaitDraining),
	}
	named := regexp.MustCompile(`reason(?:=|!=|=~|!~)"([^"]*)"`)
	for _, a := range loadAlerts(t) {
		for _, fault := range faultsOf(a.Expr, known) {
			t.Errorf("%s: %s", a.Name, fault)
		}
		for _, found := range named.FindAllStringSubmatch(a.Expr, -1) {
			for reason := range strings.SplitSeq(found[1], "|") {
				if !slices.Contains(reasons, reason) {
					t.Errorf("%s names the reason %q", a.Name, reason)
				}
			}
		}
	}
}

// A controller at rest lets no alert fire, and one in trouble those that tell of it.
func TestAlertsOnARealController(t *testing.T) {
	troubled, rested := lived(t)
	t.Run("at rest", func(t *testing.T) {
		expect(t, alerts, rested, []expectation{{Expr: `count_over_time(ALERTS[2h])`, At: "120m"}})
	})
	t.Run("in trouble", func(t *testing.T) {
		var want []expectedSample
		for _, name := range []string{"OrdinalRolloutStuck", "OrdinalSetDegraded"} {
			want = append(want, expectedSample{fmt.Sprintf("{alertname=%q, namespace=%q, name=%q}", name, "default", "web"), 1})
		}
		expect(t, alerts, troubled, []expectation{{
			Expr: `group by (alertname, namespace, name) (ALERTS{alertstate="firing"})`, At: "60m", Samples: want,
		}})
	})
}

// Expressions in the documents name metrics and labels that there are.
func TestDocumentsNameWhatThereIs(t *testing.T) {
	known := scrape(t, telemetry.Example()).labels()
	span := regexp.MustCompile("`([^`\n]+)`")
	ours := regexp.MustCompile(`\b(ordinal|workqueue|rest_client|leader_election)_\w*[a-z]`)
	seen := 0
	for _, page := range []string{"metrics", "observe", "alerts"} {
		for _, found := range span.FindAllStringSubmatch(read(t, root+"/docs/"+page+".md"), -1) {
			expr := found[1]
			if !ours.MatchString(expr) {
				continue
			}
			seen++
			base := regexp.MustCompile(`^\w+$`).MatchString(expr) && known[expr+"_bucket"] != nil
			for _, fault := range faultsOf(expr, known) {
				if !base {
					t.Errorf("docs/%s.md: %s: %s", page, expr, fault)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d expressions are found", seen)
	}
}

// The configuration in docs/observe.md is one, and keeps the label namespace of sets.
func TestScrapeConfiguration(t *testing.T) {
	found := regexp.MustCompile("(?s)```yaml\n(scrape_configs:.*?)```").FindStringSubmatch(read(t, root+"/docs/observe.md"))
	if len(found) < 2 || !strings.Contains(found[1], "\n    honor_labels: true\n") {
		t.Fatalf("the page has the configuration %q", found)
	}
	// Debian's Prometheus does not know Kubernetes.
	discovery := regexp.MustCompile(`kubernetes_sd_configs:\n( {6}.*\n)+`)
	config := discovery.ReplaceAllString(found[1], "static_configs: [{targets: [pod]}]\n")
	dir := t.TempDir()
	for name, content := range map[string]string{"prometheus.yaml": config, "alerts.yaml": read(t, alerts)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, "check", "config", filepath.Join(dir, "prometheus.yaml"))
}

// The chart has the same files.
func TestChartHasTheSame(t *testing.T) {
	for name, original := range map[string]string{"alerts.yaml": alerts, "dashboard.json": dashboard} {
		copied := "install/chart/ordinal/files/" + name
		if read(t, root+"/"+copied) != read(t, original) {
			t.Errorf("%s is stale: run make generate", copied)
		}
	}
}
