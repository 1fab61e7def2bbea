// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// kubelet runs the pods of the one node.
func (h *host) kubelet() (supervise.Process, error) {
	content, err := yaml.Marshal(h.kubeletConfig())
	if err != nil {
		return supervise.Process{}, fmt.Errorf("encode kubelet configuration: %w", err)
	}
	file, err := h.writeConfig("kubelet.yaml", content)
	if err != nil {
		return supervise.Process{}, err
	}
	p := h.child("kubelet",
		"--config="+file,
		"--kubeconfig="+h.data.ComponentKubeconfig("kubelet"),
		"--root-dir="+h.data.Path("kubelet"),
		"--cert-dir="+h.data.Path("kubelet", "pki"),
		"--hostname-override="+layout.NodeName,
		"--node-ip="+layout.NodeIP,
	)
	p.Ready = h.servesOn(net.JoinHostPort(layout.NodeIP, strconv.Itoa(layout.KubeletPort)), "/healthz", "kubelet-client")
	// The kubelet passes exec, attach and port-forward on to the container runtime, and trusts whom the host trusts.
	p.Env = append(p.Env, "SSL_CERT_FILE="+h.data.PKI("ca.crt"))
	return p, nil
}

func (h *host) kubeletConfig() *kubeletconfig.KubeletConfiguration {
	config := &kubeletconfig.KubeletConfiguration{
		TypeMeta:                     metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		Address:                      layout.NodeIP,
		Port:                         layout.KubeletPort,
		HealthzPort:                  new(int32(0)),
		TLSCertFile:                  h.data.PKI("kubelet.crt"),
		TLSPrivateKeyFile:            h.data.PKI("kubelet.key"),
		ContainerRuntimeEndpoint:     "unix://" + layout.ContainerdSocket,
		ClusterDomain:                layout.Domain,
		ClusterDNS:                   []string{layout.NodeIP},
		ResolverConfig:               new(hostResolverFile()),
		CgroupDriver:                 "cgroupfs",
		FailCgroupV1:                 new(false),
		EnforceNodeAllocatable:       []string{"none"},
		FailSwapOn:                   new(false),
		EnableControllerAttachDetach: new(false),
		VolumePluginDir:              h.data.Path("kubelet", "plugins-exec"),
		PodLogsDir:                   h.data.Path("log", "pods"),
		RotateCertificates:           false,
		EventRecordQPS:               new(int32(50)),
	}
	config.Authentication = kubeletconfig.KubeletAuthentication{
		X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: h.data.PKI("ca.crt")},
		Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: new(false)},
		Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: new(true)},
	}
	config.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	if !h.caps.sysResource {
		config.OOMScoreAdj = new(int32(0))
	}
	// By default pods are evicted from a tenth of the disk free, which a large disk may never have; doctor asks for 1 GiB.
	// Images that were imported could not be pulled again, so they are never collected.
	config.EvictionHard = map[string]string{
		"memory.available": "100Mi", "nodefs.available": "256Mi", "imagefs.available": "256Mi", "nodefs.inodesFree": "1%",
	}
	config.EvictionPressureTransitionPeriod = metav1.Duration{Duration: 20 * time.Second}
	config.ImageGCHighThresholdPercent, config.ImageGCLowThresholdPercent = new(int32(100)), new(int32(99))
	// What costs CPU while nothing happens. One node needs no fast heartbeat: nobody but itself could take over its pods.
	config.NodeStatusUpdateFrequency = metav1.Duration{Duration: 20 * time.Second}
	config.NodeStatusReportFrequency = metav1.Duration{Duration: 10 * time.Minute}
	config.NodeLeaseDurationSeconds = 80
	return config
}

// kubeletKnowsPods waits until the kubelet has heard of every pod that is bound to its node. It answers before that, but
// then knows nothing of pods that have been running all along.
func (h *host) kubeletKnowsPods(ctx context.Context, client kubernetes.Interface) error {
	url := "https://" + net.JoinHostPort(layout.NodeIP, strconv.Itoa(layout.KubeletPort)) + "/pods"
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		bound, err := podsOfNode(ctx, client)
		if err != nil {
			return false, err
		}
		var known corev1.PodList
		body, err := get(ctx, h.client("kubelet-client"), url)
		if err != nil || json.Unmarshal(body, &known) != nil {
			return false, nil //nolint:nilerr // It is asked again.
		}
		return !slices.ContainsFunc(bound.Items, func(pod corev1.Pod) bool {
			return !slices.ContainsFunc(known.Items, func(other corev1.Pod) bool { return other.UID == pod.UID })
		}), nil
	})
}

// hostResolverFile is the host's list of real name servers. Where systemd-resolved listens on loopback, its own upstream
// list is the one that also pods with dnsPolicy Default can use.
func hostResolverFile() string {
	const resolved = "/run/systemd/resolve/resolv.conf"
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err == nil && filepath.Base(target) == "stub-resolv.conf" {
		if _, err := os.Stat(resolved); err == nil {
			return resolved
		}
	}
	return "/etc/resolv.conf"
}
