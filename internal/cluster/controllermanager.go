// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// controllerManager runs every controller of Kubernetes but the one for StatefulSets, which is ours.
func (h *host) controllerManager() supervise.Process {
	p := h.child("kube-controller-manager", append(h.loopbackServer("kube-controller-manager", h.controllerManagerPort()),
		"--controllers=*,-statefulset-controller",
		"--use-service-account-credentials=true",
		"--root-ca-file="+h.data.PKI("ca.crt"),
		"--service-account-private-key-file="+h.data.PKI("service-account.key"),
		"--cluster-signing-cert-file="+h.data.PKI("ca.crt"),
		"--cluster-signing-key-file="+h.data.PKI("ca.key"),
		"--allocate-node-cidrs=false",
		// Five writes bind one claim, and the default of 20 a second would make a set of some pods wait for its volumes.
		"--kube-api-qps=1000", "--kube-api-burst=1000",
		// Changes that follow each other closely are taken together. Otherwise the second finds the controller's own write
		// not yet seen, and waits for a second: too long for a name that has to answer.
		"--endpointslice-updates-batch-period=100ms",
	)...)
	p.Ready = h.loopbackHealthy(h.controllerManagerPort())
	p.Follows = apiServerName
	return p
}

// loopbackServer are the flags of a component that serves health and metrics on loopback to authenticated clients.
func (h *host) loopbackServer(name string, port int) []string {
	kubeconfig := h.data.ComponentKubeconfig(name)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--client-ca-file=" + h.data.PKI("ca.crt"),
		"--requestheader-client-ca-file=" + h.data.PKI("front-proxy-ca.crt"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + h.data.PKI("loopback.crt"),
		"--tls-private-key-file=" + h.data.PKI("loopback.key"),
		"--leader-elect=false",
		"--profiling=false",
	}
}

func (h *host) loopbackHealthy(port int) func(context.Context) error {
	return h.servesOn(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "/healthz", "")
}
