// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "github.com/ordinal-dev/ordinal/internal/cluster/supervise"

// scheduler is kube-scheduler.
func (h *host) scheduler() supervise.Process {
	flags := h.loopbackServer("kube-scheduler", h.schedulerPort())
	if h.Simulate {
		// Simulated nodes take pods as fast as they are bound, and the default is 50 a second.
		flags = append(flags, "--kube-api-qps=1000", "--kube-api-burst=1000")
	}
	p := h.child("kube-scheduler", flags...)
	p.Ready = h.loopbackHealthy(h.schedulerPort())
	p.Follows = apiServerName
	return p
}
