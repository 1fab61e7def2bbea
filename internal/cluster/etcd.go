// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net"
	"net/http"

	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// etcd is the datastore.
func (h *host) etcd() supervise.Process {
	p := h.child("etcd", "--data-dir="+h.data.Path("etcd"), "--socket="+h.etcdSocket())
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", h.etcdSocket())
		},
	}}
	p.Ready = func(ctx context.Context) error { return getOK(ctx, client, "http://etcd/health") }
	return p
}
