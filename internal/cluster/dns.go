// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// dns is CoreDNS on the bridge's address.
func (h *host) dns() (supervise.Process, error) {
	file, err := h.writeConfig("Corefile", []byte(h.corefile(hostNameServers())))
	if err != nil {
		return supervise.Process{}, err
	}
	p := h.child("coredns", "-conf="+file)
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(layout.NodeIP, "53"))
	}}
	p.Ready = func(ctx context.Context) error {
		_, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+layout.Domain+".")
		return err
	}
	return p, nil
}

// corefile serves the cluster's names straight from the API server's events. Nothing caches them, neither we nor (with a
// TTL of 0) those who ask: a peer that was asked for too early must answer as soon as it is there. All other names
// are the host's name servers' to answer, if it has any.
func (h *host) corefile(upstreams []string) string {
	forward := ""
	if len(upstreams) > 0 {
		forward = fmt.Sprintf(`    forward . %s
    cache 30 {
        disable success %s in-addr.arpa ip6.arpa
        disable denial %s in-addr.arpa ip6.arpa
    }
`, strings.Join(upstreams, " "), layout.Domain, layout.Domain)
	}
	return fmt.Sprintf(`.:53 {
    bind %s
    errors
    kubernetes %s in-addr.arpa ip6.arpa {
        kubeconfig %s
        ttl 0
        fallthrough in-addr.arpa ip6.arpa
    }
%s}
`, layout.NodeIP, layout.Domain, h.data.ComponentKubeconfig("coredns"), forward)
}

// hostNameServers are the name servers of the host, without ourselves.
func hostNameServers() []string {
	content, err := os.ReadFile(hostResolverFile())
	if err != nil {
		return nil
	}
	var servers []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" || fields[1] == layout.NodeIP {
			continue
		}
		if net.ParseIP(fields[1]) != nil {
			servers = append(servers, fields[1])
		}
	}
	return servers
}
