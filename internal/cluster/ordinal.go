// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// storage provisions volumes in the data directory.
func (h *host) storage() supervise.Process {
	p := h.child("storage",
		"--kubeconfig="+h.data.ComponentKubeconfig("storage"),
		"--dir="+h.data.Volumes(),
		"--node="+layout.NodeName,
		fmt.Sprintf("--strict=%t", h.StrictStorageClasses),
		fmt.Sprintf("--simulated=%t", h.Simulate),
	)
	return h.announced(p)
}

// controller is Ordinal's StatefulSet controller, alone in its cluster and so without leader election.
func (h *host) controller() supervise.Process {
	p := h.process("controller", filepath.Join(h.binDir, layout.Controller),
		"--kubeconfig="+h.data.ComponentKubeconfig("controller"), "--leader-elect=false")
	return h.announced(p)
}

// announced makes a component ready as soon as it opens the socket that is named to it.
func (h *host) announced(p supervise.Process) supervise.Process {
	socket := filepath.Join(h.runDir(), p.Name+".sock")
	p.Args = append(p.Args, "--ready-socket="+socket)
	p.Ready = func(ctx context.Context) error { return accepts(ctx, socket) }
	return p
}

// accepts tells whether somebody listens on a Unix socket.
func accepts(ctx context.Context, socket string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}
