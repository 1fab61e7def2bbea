// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// proxy makes Service addresses work, with nftables.
func (h *host) proxy() supervise.Process {
	return h.announced(h.child("kube-proxy",
		"--kubeconfig="+h.data.ComponentKubeconfig("kube-proxy"),
		"--node="+layout.NodeName,
		"--node-ip="+layout.NodeIP,
		"--bridge="+layout.Bridge,
	))
}
