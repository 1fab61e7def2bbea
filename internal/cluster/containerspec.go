// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// specFile is what every container of a pod is made from.
const specFile = "container.json"

// containerSpec is what containerd makes containers of pods from by default, with a hook that runs before each starts (see
// package atmostone).
func containerSpec(hook string) ([]byte, error) {
	ctx := namespaces.WithNamespace(context.Background(), "k8s.io")
	spec, err := oci.GenerateSpec(ctx, nil, &containers.Container{})
	if err != nil {
		return nil, fmt.Errorf("describe containers: %w", err)
	}
	// containerd drops these by itself only where no base is configured. A pod gets what its security context says.
	spec.Process.ApparmorProfile = ""
	spec.Process.Rlimits = nil
	spec.Linux.Seccomp = nil
	spec.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: hook}}}
	content, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode description of containers: %w", err)
	}
	return content, nil
}
