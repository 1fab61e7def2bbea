// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/internal/preview/dryrun"
)

func TestPlanRefusesUnclearCommands(t *testing.T) {
	for words, args := range map[string][]string{
		"what is to be looked at":    nil,
		"not both":                   {"sts/web", "-f", "web.yaml"},
		"go with sets":               {"-f", "web.yaml", "--replicas", "0"},
		"must not be negative":       {"sts/web", "--replicas", "-1"},
		`--output "xml"`:             {"sts/web", "-o", "xml"},
		"unknown flag":               {"sts/web", "--nothing"},
		"invalid argument \"many\"":  {"sts/web", "--partition", "many"},
		"invalid argument \"maybe\"": {"sts/web", "--delete=maybe"},
	} {
		cmd := newPlanCommand(&globals{dataDir: t.TempDir()})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v gives %v, which lacks %q", args, err, words)
		}
	}
}

// 0 means that nothing would change, 2 that something would, 1 that something is refused, whatever else would change.
func TestPlanEndsWithACode(t *testing.T) {
	of := func(outcomes ...dryrun.Outcome) dryrun.Report {
		var r dryrun.Report
		for _, o := range outcomes {
			r.Others = append(r.Others, dryrun.Object{Outcome: o})
		}
		return r
	}
	if err := verdict(of(dryrun.Unchanged)); err != nil {
		t.Errorf("no change ends with %v", err)
	}
	for _, o := range []dryrun.Outcome{dryrun.Created, dryrun.Changed, dryrun.Deleted} {
		if code, ok := errors.AsType[exitError](verdict(of(dryrun.Unchanged, o))); !ok || code != 2 {
			t.Errorf("%s ends with code %d", o, code)
		}
	}
	if err := verdict(of(dryrun.Changed, dryrun.Refused)); !errors.Is(err, errSilent) {
		t.Errorf("a refusal ends with %v", err)
	}
	if err := verdict(dryrun.Report{Errors: []string{"no"}}); !errors.Is(err, errSilent) {
		t.Errorf("an error ends with %v", err)
	}
}

func TestPlanPrints(t *testing.T) {
	r := dryrun.Report{Sets: []dryrun.Set{{Object: dryrun.Object{Kind: "StatefulSet", Name: "web", Outcome: dryrun.Created}}}}
	for output, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(b []byte, o any) error { return yaml.UnmarshalStrict(b, o) },
	} {
		var b bytes.Buffer
		if err := (&planOptions{output: output}).print(&b, r); err != nil {
			t.Fatal(err)
		}
		var got dryrun.Report
		if err := read(b.Bytes(), &got); err != nil || len(got.Sets) != 1 || got.Sets[0].Name != "web" {
			t.Errorf("as %s it is printed as %s: %v", output, b.String(), err)
		}
		if output == "yaml" && strings.HasPrefix(b.String(), "{") {
			t.Errorf("yaml is %s", b.String())
		}
	}
	var b bytes.Buffer
	if err := (&planOptions{}).print(&b, r); err != nil || !strings.Contains(b.String(), "StatefulSet web: created") {
		t.Errorf("in words it is %q: %v", b.String(), err)
	}
}
