// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observability

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// board is what the tests look at of a dashboard.
type board struct {
	UID, Title string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ RefID, Expr, LegendFormat, Format string }
	Transformations          []struct {
		Options struct{ IndexByName map[string]int }
	}
}

func loadBoard(t *testing.T) board {
	t.Helper()
	var b board
	if err := json.Unmarshal([]byte(read(t, dashboard)), &b); err != nil {
		t.Fatal(err)
	}
	if len(b.Panels) < 20 {
		t.Fatalf("the dashboard has %d panels", len(b.Panels))
	}
	return b
}

// query is an expression of a panel or a variable.
type query struct {
	of, expr string
	// labels are those that legends, columns and variables show.
	labels []string
}

var (
	legend   = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)
	variable = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
)

// queries are all of the dashboard, as Grafana sends them.
func (b board) queries(t *testing.T) []query {
	t.Helper()
	var all []query
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			q := query{of: p.Title, expr: target.Expr}
			for _, found := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				q.labels = append(q.labels, found[1])
			}
			if target.Format == "table" {
				q.labels = append(q.labels, namesIn(target.Expr).grouped...)
			}
			all = append(all, q)
		}
	}
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		found := variable.FindStringSubmatch(v.Definition)
		if found == nil {
			t.Fatalf("the variable %s is defined as %s", v.Name, v.Definition)
		}
		all = append(all, query{of: "variable " + v.Name, expr: found[1], labels: []string{found[2]}})
	}
	filled := strings.NewReplacer("$job", "ordinal", "$namespace", ".+", "$name", ".+", "$__rate_interval", "5m")
	for i := range all {
		if all[i].expr = filled.Replace(all[i].expr); strings.Contains(all[i].expr, "$") {
			t.Fatalf("%s asks for %s", all[i].of, all[i].expr)
		}
	}
	return all
}

// Each query names metrics and labels that there are.
func TestDashboardNamesWhatThereIs(t *testing.T) {
	known := scrape(t, telemetry.Example()).labels()
	for _, q := range loadBoard(t).queries(t) {
		for _, fault := range faultsOf(q.expr, known) {
			t.Errorf("%s: %s: %s", q.of, q.expr, fault)
		}
	}
}

// faultsOf are the names in an expression that no controller tells.
func faultsOf(expr string, known map[string][]string) []string {
	var faults []string
	n := namesIn(expr)
	var all []string
	for _, s := range n.selectors {
		labels, ok := known[s.metric]
		if !ok {
			faults = append(faults, "there is no metric "+s.metric)
			continue
		}
		all = append(all, labels...)
		for _, l := range s.labels {
			if !slices.Contains(labels, l) {
				faults = append(faults, s.metric+" has no label "+l)
			}
		}
	}
	for _, l := range n.grouped {
		if !slices.Contains(all, l) {
			faults = append(faults, "nothing has a label "+l)
		}
	}
	return faults
}

// What no metric has is found.
func TestNamesThatThereAreNot(t *testing.T) {
	known := map[string][]string{"a_total": {"job", "code"}, "b": {"job", "name"}}
	for expr, want := range map[string]string{
		`sum by (code) (rate(a_total{job=~"x|y", code!="{5.."}[5m]))`:             "",
		`a_total / on (job) group_left (name) b > bool 0.5 or vector(0)`:          "",
		`histogram_quantile(0.9, sum by (le) (rate(c_bucket[5m] offset 1h)))`:     "there is no metric c_bucket; nothing has a label le",
		`count(b{code="1"}) unless on (namespace) a_total`:                        "b has no label code; nothing has a label namespace",
		`(max without (pod) (max_over_time(b{name="sum by (x)"}[5m]))) == 1e3`:    "nothing has a label pod",
		"max by (name) (a_total\n- b{job=\"bool\"}) and ignoring (code) b > -Inf": "",
	} {
		if got := strings.Join(faultsOf(expr, known), "; "); got != want {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

// No panel is empty when a controller has troubles of each kind, and each legend and column is there.
func TestPanelsShowSomething(t *testing.T) {
	troubled, _ := lived(t)
	var all []expectation
	for _, q := range loadBoard(t).queries(t) {
		all = append(all, isFilled(strings.TrimSuffix(q.expr, " or vector(0)"), q.labels)...)
	}
	expect(t, "", troubled, all)
}

// The dashboard has all rows, each panel tells what it shows, and none hides another.
func TestDashboardIsWhole(t *testing.T) {
	b := loadBoard(t)
	var rows []string
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range b.Panels {
		if ids[p.ID] {
			t.Errorf("%s has the id of another panel", p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
		} else if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s says nothing or asks nothing", p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok || at[0] >= 24 {
					t.Fatalf("%s is where %q is, or beyond the edge", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
	if want := []string{"Overview", "Rollouts", "Sets in trouble", "Controller health", "API requests"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %q", rows)
	}
	page := read(t, root+"/docs/observe.md")
	for _, title := range rows {
		if !strings.Contains(page, "\n| "+title+" | ") {
			t.Errorf("docs/observe.md has no row about %q", title)
		}
	}
	var variables []string
	for _, v := range b.Templating.List {
		variables = append(variables, v.Name)
	}
	if want := []string{"datasource", "job", "namespace", "name"}; !slices.Equal(variables, want) {
		t.Errorf("the variables are %q", variables)
	}
}
