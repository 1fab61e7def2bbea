// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// containerd runs the containers. It and its shim lie beside our binary; runc and the CNI plugins are the host's.
func (h *host) containerd() (supervise.Process, error) {
	if _, err := h.writeConfig("cni/10-ordinal.conflist", []byte(cniConfig())); err != nil {
		return supervise.Process{}, err
	}
	spec, err := containerSpec(filepath.Join(h.binDir, layout.StartHook))
	if err != nil {
		return supervise.Process{}, err
	}
	if _, err := h.writeConfig(specFile, spec); err != nil {
		return supervise.Process{}, err
	}
	file, err := h.writeConfig("containerd.toml", []byte(h.containerdConfig()))
	if err != nil {
		return supervise.Process{}, err
	}
	p := h.process("containerd", filepath.Join(h.binDir, "containerd"), "--config="+file, "--log-level=warn")
	p.Ready = func(ctx context.Context) error {
		if err := accepts(ctx, layout.ContainerdSocket); err != nil {
			return err
		}
		conn, err := dialRuntime()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
		return err
	}
	// It is not our program, so it cannot mind its memory by itself as our own components do.
	p.Env = append(p.Env, "GOGC=50")
	return p, nil
}

func dialRuntime() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+layout.ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// unusedPlugins are parts of containerd that nothing here needs and that cost start time or memory.
func unusedPlugins() []string {
	return []string{
		"io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.native",
		"io.containerd.differ.v1.erofs", "io.containerd.mount-handler.v1.erofs", "io.containerd.image-verifier.v1.bindir",
		"io.containerd.internal.v1.restart", "io.containerd.monitor.container.v1.restart", "io.containerd.nri.v1.nri",
		"io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
	}
}

func (h *host) containerdConfig() string {
	quoted := make([]string, 0, len(unusedPlugins()))
	for _, plugin := range unusedPlugins() {
		quoted = append(quoted, fmt.Sprintf("%q", plugin))
	}
	binDirs := make([]string, 0, len(layout.CNIDirs()))
	for _, dir := range layout.CNIDirs() {
		binDirs = append(binDirs, fmt.Sprintf("%q", dir))
	}
	return fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = [%s]

[grpc]
  address = %q

[ttrpc]
  address = %q

[plugins."io.containerd.grpc.v1.cri"]
  enable_tls_streaming = true
  [plugins."io.containerd.grpc.v1.cri".x509_key_pair_streaming]
    tls_cert_file = %q
    tls_key_file = %q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q

[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE nobody may lower a score, and asking for it would fail every sandbox.
  restrict_oom_score_adj = %t
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = %q
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%s]
    conf_dir = %q
    use_internal_loopback = true
`, h.data.Path("containerd"), layout.RunDir+"/containerd", strings.Join(quoted, ", "),
		layout.ContainerdSocket, layout.ContainerdSocket+".ttrpc",
		h.data.PKI("loopback.crt"), h.data.PKI("loopback.key"), layout.PauseImage, !h.caps.sysResource,
		h.data.Config(specFile), strings.Join(binDirs, ", "), h.data.Config("cni"))
}

// cniConfig attaches pods to the bridge that package network makes, with addresses out of the pod network.
func cniConfig() string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "ordinal",
  "plugins": [
    {
      "type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": %q,
        "ranges": [[{"subnet": %q, "gateway": %q}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, layout.Bridge, layout.RunDir+"/cni", layout.PodCIDR, layout.NodeIP)
}
