// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

const root = "../.."

func TestPagesAreUpToDate(t *testing.T) {
	t.Setenv("ORDINAL_DATA_DIR", layout.DefaultDataDir)
	made, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range made {
		got, err := os.ReadFile(filepath.Join(root, folder, name))
		if err != nil || string(got) != want {
			t.Errorf("%s/%s is stale (%v): run make generate", folder, name, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(root, folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if _, ok := made[filepath.Base(path)]; !ok {
			t.Errorf("%s/%s is made by nothing: delete it", folder, filepath.Base(path))
		}
	}
}

// A page tells all that the code has, so what the code has gained without a word about it is an error, not a gap.
func TestPagesTellAll(t *testing.T) {
	t.Setenv("ORDINAL_DATA_DIR", layout.DefaultDataDir)
	made, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for page, wants := range map[string][]string{
		"ordinal.md": {
			"## ordinal rollout undo", "`--to-revision int`", "`--data-dir string` | `/var/lib/ordinal`", "[`ordinal why`](#ordinal-why)",
		},
		"ordinal-controller.md": {"| `--workers int32` | `20` |", "`--metrics-bind-address host:port`"},
		"metrics.md":            {"| `ordinal_actions_total` | counter | `action`, `reason`, `result` |", "`workqueue_depth`"},
		"events.md": {
			"| `SuccessfulCreate` | Normal | Create Pod web-1 in StatefulSet web successful |", "| `EvictionBlocked` | Normal |", "| `Outdated` |",
			"| `Draining` |",
		},
		"conditions.md": {"| `Available` | False | `TooFewAvailable` |", "| `Progressing` | True | `Scaling` |", "| `CrashLoop` |", "| `NameTaken` |"},
		"statefulsetpolicy.md": {
			"## spec.rollout.pauseAfter", "| `onDeadline` | `Hold` or `RollBack` | `Hold` |", "| `RolledBack` |", "| `ordinal.dev/retry-at` |",
			"- must not have both ordinals and percent: leave out one",
		},
		"configuration.md": {"| `leaderElection.retryPeriod` | `--leader-elect-retry-period` | `2s` |", "kind: ControllerConfiguration", "| `workers` |"},
	} {
		for _, want := range wants {
			if !strings.Contains(made[page], want) {
				t.Errorf("%s does not tell %q", page, want)
			}
		}
	}
	if strings.Contains(made["ordinal-controller.md"], "ready-socket") {
		t.Error("a hidden flag is told")
	}
}

func TestConstants(t *testing.T) {
	dir := t.TempDir()
	code := `package p

const (
	// ReasonA means that it is so.
	ReasonA Kind = "A"
	ReasonB = "B"
	Other = "C"
	ReasonN = 1
)
`
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := source(dir).constants("p.go", "Reason")
	if want := []constant{{"ReasonA", "A", "It is so."}, {"ReasonB", "B", ""}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("constants are %+v, %v, want %+v", got, err, want)
	}
	if got, err := source(dir).constants("p.go", "None"); err == nil {
		t.Errorf("constants that are not there are %+v", got)
	}
}

func TestRow(t *testing.T) {
	if got, want := row([]string{"a|b", "two\n lines", ""}), "| a\\|b | two lines |  |\n"; got != want {
		t.Errorf("the row is %q, want %q", got, want)
	}
}
