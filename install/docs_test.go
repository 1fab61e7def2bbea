// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// widest is the longest default that is written out in docs/install.md; what is longer is told there in words.
const widest = 40

// defaults gives what chart/ordinal/values.yaml sets, as JSON by path. What the schema does not take apart is one value.
func defaults(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("chart/ordinal/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set map[string]any
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	var collect func(value any, schema map[string]any, at string)
	collect = func(value any, schema map[string]any, at string) {
		below, _ := value.(map[string]any)
		known, isApart := schema["properties"].(map[string]any)
		if len(below) == 0 || !isApart {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			all[at] = string(text)
			return
		}
		for name, one := range below {
			collect(one, known[name].(map[string]any), strings.TrimPrefix(at+"."+name, "."))
		}
	}
	collect(set, schemaOf(t), "")
	return all
}

// docs/install.md has a row for each value, with its default.
func TestPageTellsEachValue(t *testing.T) {
	page, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| value | default | |")
	table, _, _ = strings.Cut(table, "\n\n")
	told := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(table, -1) {
		told[row[1]] = row[2]
	}
	want := defaults(t)
	if got, all := slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
		t.Errorf("the page tells of\n%v\nthe chart has\n%v", got, all)
	}
	for name, value := range want {
		if got := told[name]; len(value) <= widest && got != "`"+value+"`" {
			t.Errorf("the page says that %s is %s by default, and it is %s", name, got, value)
		}
	}
}

// What the schema takes apart is what the chart sets; so each value is told of, and each has a default.
func TestSchemaAndValuesAgree(t *testing.T) {
	want := slices.Sorted(maps.Keys(defaults(t)))
	var got []string
	for _, path := range properties(t, schemaOf(t), "") {
		first, _, _ := strings.Cut(path, ".")
		switch {
		case first == "enabled", first == "global":
		case first == "config", first == "affinity":
			if !slices.Contains(got, first) {
				got = append(got, first)
			}
		default:
			got = append(got, path)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the schema has\n%v\nthe chart sets\n%v", got, want)
	}
}
