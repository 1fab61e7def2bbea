// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestFlagsOfSimulatedNodesNeedSimulate(t *testing.T) {
	for _, flag := range []string{"--nodes=3", "--node-capacity=cpu=2", "--pod-delay=2s"} {
		root := newRootCommand(false)
		root.SetArgs([]string{"--data-dir", t.TempDir(), "up", flag})
		name, _, _ := strings.Cut(flag, "=")
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), name+" is for simulated nodes only") {
			t.Errorf("%s alone: %v", flag, err)
		}
	}
}

func TestUpCommandChecksSimulation(t *testing.T) {
	root := newRootCommand(false)
	root.SetArgs([]string{"--data-dir", t.TempDir(), "up", "--simulate", "--node-capacity", "cpu=much"})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), `"cpu=much" is no capacity`) {
		t.Errorf("error is %v", err)
	}
}
