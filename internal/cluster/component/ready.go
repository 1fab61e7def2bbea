// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"net"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// announce gives a function that opens a Unix socket once, and with it tells the supervisor that this component does its
// work. A socket file that a killed predecessor left behind refuses connections, so it tells nothing.
func announce(socket string) func() {
	return sync.OnceFunc(func() {
		_ = os.Remove(socket)
		listener, err := net.Listen("unix", socket)
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
