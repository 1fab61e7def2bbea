// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// scheduler is kube-scheduler.
func (h *host) scheduler() supervise.Process {
	p := h.child("kube-scheduler", h.loopbackServer("kube-scheduler", layout.SchedulerPort)...)
	p.Ready = h.loopbackHealthy(layout.SchedulerPort)
	return p
}
