// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Containers of pods are what they are without a configured base, but for the hook.
func TestContainerSpec(t *testing.T) {
	h := testHost(t)
	if _, err := h.containerd(); err != nil {
		t.Fatal(err)
	}
	file := h.data.Config(specFile)
	if config := h.containerdConfig(); !strings.Contains(config, `base_runtime_spec = "`+file+`"`) {
		t.Errorf("containerd is not told of %s:\n%s", file, config)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(content, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Hooks.CreateRuntime) != 1 || spec.Hooks.CreateRuntime[0].Path != "/opt/ordinal/atmostone" {
		t.Errorf("hooks are %+v", spec.Hooks)
	}
	if spec.Process.Rlimits != nil || spec.Process.ApparmorProfile != "" || spec.Linux.Seccomp != nil {
		t.Errorf("limits and profiles that no pod asked for: %+v, %+v", spec.Process, spec.Linux.Seccomp)
	}
}
