// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"strconv"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// apiServerName is the name of the API server among the parts.
const apiServerName = "kube-apiserver"

const serviceAccountIssuer = "https://kubernetes.default.svc." + layout.Domain

// apiServer serves the Kubernetes API to the host on loopback and to pods, where they are real, on the bridge. Nobody is anonymous to it.
func (h *host) apiServer() supervise.Process {
	pki := h.data.PKI
	reach := []string{"--listen=127.0.0.1," + layout.NodeIP, "--advertise-address=" + layout.NodeIP}
	if h.Simulate {
		// No pod will ever ask for the Service of the API server, so it has no endpoint.
		reach = []string{"--listen=127.0.0.1", "--endpoint-reconciler-type=none"}
	}
	p := h.child(apiServerName, append(reach,
		fmt.Sprintf("--secure-port=%d", h.APIPort),
		"--etcd-servers=unix://"+h.etcdSocket(),
		"--encryption-provider-config="+h.data.Config(encryptionConfig),
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--tls-cert-file="+pki("apiserver.crt"),
		"--tls-private-key-file="+pki("apiserver.key"),
		"--client-ca-file="+pki("ca.crt"),
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-certificate-authority="+pki("ca.crt"),
		"--kubelet-client-certificate="+pki("kubelet-client.crt"),
		"--kubelet-client-key="+pki("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer="+serviceAccountIssuer,
		"--service-account-key-file="+pki("service-account.key"),
		"--service-account-signing-key-file="+pki("service-account.key"),
		"--requestheader-client-ca-file="+pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+pki("front-proxy-client.crt"),
		"--proxy-client-key-file="+pki("front-proxy-client.key"),
		"--profiling=false",
	)...)
	p.Ready = h.servesOn(net.JoinHostPort("127.0.0.1", strconv.Itoa(h.APIPort)), "/readyz", "kubelet-client")
	return p
}
