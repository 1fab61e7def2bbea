// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/image/store"
)

const (
	// realNode is the node on which containers run.
	realNode   = "metal"
	runtimeAPI = "/run/containerd/containerd.sock"
)

// startNode gives the control plane a node on which containers run, with the images of some archives.
func (p *plane) startNode(t *testing.T, archives ...string) {
	t.Helper()
	if err := os.MkdirAll(p.file("cni"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"containerd.toml": p.runtimeConfig(), "cni/10-pods.conflist": podNetwork()} {
		if err := os.WriteFile(p.file(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", runtimeAPI)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	containerd := p.process("containerd", filepath.Join(home.bin, "containerd"), ready, "--config="+p.file("containerd.toml"))
	// Its shim lies beside it.
	containerd.Env = []string{"PATH=" + home.bin + ":" + os.Getenv("PATH")}
	p.start(t, containerd)
	for _, archive := range append(archives, filepath.Join(home.bin, layout.PauseArchive)) {
		if err := store.EnsureImported(t.Context(), runtimeAPI, archive); err != nil {
			t.Fatalf("import image: %v", err)
		}
	}
	p.writeConfig(t, "kubelet.yaml", p.kubeletConfig())
	p.start(t, p.process("kubelet", p.program("kubelet"), p.nodeReady,
		"--config="+p.file("kubelet.yaml"), "--kubeconfig="+p.kubeconfig("kubelet"), "--root-dir="+p.file("kubelet"),
		"--hostname-override="+realNode, "--node-ip="+layout.NodeIP))
	p.writeConfig(t, "kube-proxy.yaml", p.proxyConfig())
	ready = func(ctx context.Context) error { return p.answers(ctx, "http://"+loopback+":10256/healthz", "") }
	p.start(t, p.process("kube-proxy", p.program("kube-proxy"), ready, "--config="+p.file("kube-proxy.yaml")))
}

// writeConfig writes a configuration file for one of Kubernetes' programs.
func (p *plane) writeConfig(t *testing.T, name string, config any) {
	t.Helper()
	content, err := yaml.Marshal(config)
	if err == nil {
		err = os.WriteFile(p.file(name), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// nodeReady tells whether the real node takes pods.
func (p *plane) nodeReady(ctx context.Context) error {
	node, err := p.client.CoreV1().Nodes().Get(ctx, realNode, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("the node is not ready")
}

func (p *plane) runtimeConfig() string {
	return fmt.Sprintf(`version = 3
root = %q
state = "/run/containerd"
[grpc]
  address = %q
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
  # Not everybody may lower a score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["%s"]
    conf_dir = %q
    use_internal_loopback = true
`, p.file("containerd"), runtimeAPI, layout.PauseImage, strings.Join(layout.CNIDirs(), `", "`), p.file("cni"))
}

// podNetwork has pods on the bridge that the machine has from the start.
func podNetwork() string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": %q, "isGateway": true, "hairpinMode": true,
    "ipam": {
      "type": "host-local", "dataDir": "/run/cni",
      "ranges": [[{"subnet": %q, "gateway": %q}]], "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`, layout.Bridge, layout.PodCIDR, layout.NodeIP)
}

func (p *plane) kubeletConfig() *kubeletconfig.KubeletConfiguration {
	return &kubeletconfig.KubeletConfiguration{
		TypeMeta:          metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		Address:           layout.NodeIP,
		TLSCertFile:       p.file("server.crt"),
		TLSPrivateKeyFile: p.file("server.key"),
		Authentication: kubeletconfig.KubeletAuthentication{
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: p.file("ca.crt")},
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: new(false)},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: new(true)},
		},
		Authorization:            kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		ContainerRuntimeEndpoint: "unix://" + runtimeAPI,
		ClusterDomain:            layout.Domain,
		ResolverConfig:           new(""),
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               "/" + cgroup,
		CgroupsPerQOS:            new(false),
		EnforceNodeAllocatable:   []string{"none"},
		FailCgroupV1:             new(false),
		FailSwapOn:               new(false),
		OOMScoreAdj:              new(int32(0)),
		VolumePluginDir:          p.file("volume-plugins"),
		// What was imported cannot be pulled again, and a disk may be nearly full by other things.
		ImageGCHighThresholdPercent: new(int32(100)),
		ImageGCLowThresholdPercent:  new(int32(99)),
		EvictionHard:                map[string]string{"memory.available": "100Mi", "nodefs.available": "256Mi", "imagefs.available": "256Mi"},
	}
}

func (p *plane) proxyConfig() *proxyconfig.KubeProxyConfiguration {
	config := &proxyconfig.KubeProxyConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: proxyconfig.SchemeGroupVersion.String(), Kind: "KubeProxyConfiguration"},
		Mode:             "nftables",
		HostnameOverride: realNode,
		DetectLocalMode:  "BridgeInterface",
		// The kernel's limits are the host's.
		Conntrack: proxyconfig.KubeProxyConntrackConfiguration{
			MaxPerCore: new(int32(0)), Min: new(int32(0)),
			TCPEstablishedTimeout: &metav1.Duration{}, TCPCloseWaitTimeout: &metav1.Duration{},
		},
	}
	config.ClientConnection.Kubeconfig = p.kubeconfig("kube-proxy")
	config.DetectLocal.BridgeInterface = layout.Bridge
	return config
}
