// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ports finds ports of loopback that nobody listens on now, for the clusters of tests and benchmarks.
package ports

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

const loopback = "127.0.0.1"

// Any is a port that the system gives.
func Any(ctx context.Context) (int, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", loopback+":0")
	if err != nil {
		return 0, err
	}
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("address %v has no port", listener.Addr())
	}
	return addr.Port, listener.Close()
}

// Three is the first of three ports in a row, as a simulated cluster has them, from a port on. Who looks at the same time begins
// elsewhere.
func Three(ctx context.Context, from int) (int, error) {
	for first := from; first < 32000; first += 10 {
		if isFree(ctx, first) && isFree(ctx, first+1) && isFree(ctx, first+2) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no three free ports from %d on", from)
}

func isFree(ctx context.Context, port int) bool {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	return err == nil && listener.Close() == nil
}
