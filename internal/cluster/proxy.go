// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbase "k8s.io/component-base/config/v1alpha1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// proxy makes Service addresses work, with nftables.
func (h *host) proxy() (supervise.Process, error) {
	content, err := yaml.Marshal(h.proxyConfig())
	if err != nil {
		return supervise.Process{}, fmt.Errorf("encode kube-proxy configuration: %w", err)
	}
	file, err := h.writeConfig("kube-proxy.yaml", content)
	if err != nil {
		return supervise.Process{}, err
	}
	p := h.child("kube-proxy", "--config="+file)
	p.Ready = func(ctx context.Context) error {
		return getOK(ctx, http.DefaultClient, "http://"+proxyHealthAddress()+"/healthz")
	}
	return tuned(p, 50), nil
}

func proxyHealthAddress() string { return fmt.Sprintf("127.0.0.1:%d", layout.ProxyHealthPort) }

func (h *host) proxyConfig() *proxyconfig.KubeProxyConfiguration {
	return &proxyconfig.KubeProxyConfiguration{
		TypeMeta:           metav1.TypeMeta{APIVersion: proxyconfig.SchemeGroupVersion.String(), Kind: "KubeProxyConfiguration"},
		ClientConnection:   componentbase.ClientConnectionConfiguration{Kubeconfig: h.data.ComponentKubeconfig("kube-proxy")},
		HostnameOverride:   layout.NodeName,
		Mode:               "nftables",
		HealthzBindAddress: proxyHealthAddress(),
		DetectLocalMode:    "BridgeInterface",
		DetectLocal:        proxyconfig.DetectLocalConfiguration{BridgeInterface: layout.Bridge},
		// The host's own limits on connection tracking are the administrator's business.
		Conntrack: proxyconfig.KubeProxyConntrackConfiguration{MaxPerCore: new(int32(0))},
	}
}
