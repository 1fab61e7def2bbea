// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package announce tells the supervisor of a cluster that a component does its work.
package announce

import (
	"context"
	"net"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// Usage describes the flag that names the socket.
const Usage = "Unix socket to open once the component does its work"

// Ready gives a function that opens a Unix socket once, and does nothing without one. A socket file that a killed
// predecessor left behind refuses connections, so it tells nothing.
func Ready(socket string) func() {
	if socket == "" {
		return func() {}
	}
	return sync.OnceFunc(func() {
		_ = os.Remove(socket)
		listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
		if err != nil {
			klog.ErrorS(err, "Cannot announce readiness")
			return
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_ = conn.Close()
			}
		}()
	})
}
