// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	proxyconfigv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
	proxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
	proxyscheme "k8s.io/kubernetes/pkg/proxy/apis/config/scheme"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	"k8s.io/kubernetes/pkg/proxy/nftables"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"

	"github.com/ordinal-dev/ordinal/internal/cluster/announce"
)

// proxyHealthPoll is how often kube-proxy is asked whether it has written its first rules.
const proxyHealthPoll = 50 * time.Millisecond

// runProxy is kube-proxy's nftables proxier without the two HTTP servers that the command always opens, and without IPv6.
func runProxy(args []string) int {
	flags := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	node := flags.String("node", "", "name of this node")
	nodeIP := flags.IP("node-ip", nil, "address of this node")
	bridge := flags.String("bridge", "", "interface behind which the pods are")
	socket := flags.String("ready-socket", "", announce.Usage)
	return runClient(flags, args, func(ctx context.Context, config *rest.Config) error {
		return serveProxy(ctx, config, proxyNode{name: *node, ip: *nodeIP, bridge: *bridge}, announce.Ready(*socket))
	})
}

type proxyNode struct {
	name   string
	ip     net.IP
	bridge string
}

func serveProxy(ctx context.Context, clientConfig *rest.Config, node proxyNode, ready func()) error {
	config, err := proxyConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(clientConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	recorder := broadcaster.NewRecorder(proxyscheme.Scheme, "kube-proxy")
	health := healthcheck.NewProxyHealthServer("", 2*config.SyncPeriod.Duration, nil)
	proxier, err := nftables.NewProxier(ctx, config, corev1.IPv4Protocol, proxyutil.NewDetectLocalByBridgeInterface(node.bridge),
		node.name, node.ip, recorder, health, false)
	if err != nil {
		return fmt.Errorf("make proxier: %w", err)
	}
	go func() {
		err := wait.PollUntilContextCancel(ctx, proxyHealthPoll, true, func(context.Context) (bool, error) {
			return !health.Health().LastUpdated.IsZero(), nil
		})
		if err == nil {
			ready()
		}
	}()
	server := &app.ProxyServer{
		Config: config, Client: client, Broadcaster: broadcaster, Recorder: recorder,
		NodeRef:  &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.name},
		NodeName: node.name, PrimaryIPFamily: corev1.IPv4Protocol,
		NodeIPs: map[corev1.IPFamily]net.IP{corev1.IPv4Protocol: node.ip},
		Proxier: proxier,
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return nil
	}
}

// proxyConfig is kube-proxy's default configuration for nftables.
func proxyConfig() (*proxyconfig.KubeProxyConfiguration, error) {
	versioned := &proxyconfigv1alpha1.KubeProxyConfiguration{Mode: "nftables"}
	proxyscheme.Scheme.Default(versioned)
	config := &proxyconfig.KubeProxyConfiguration{}
	if err := proxyscheme.Scheme.Convert(versioned, config, nil); err != nil {
		return nil, fmt.Errorf("default kube-proxy configuration: %w", err)
	}
	config.MetricsBindAddress, config.HealthzBindAddress = "", ""
	return config, nil
}
