// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package layout names every path, address and port of a one-machine cluster, so that no two parts disagree about one.
package layout

import (
	"net/netip"
	"path/filepath"
)

// Fixed names and addresses. One cluster runs on a host at a time, so none of them depends on the data directory.
const (
	// DefaultDataDir holds everything that outlives a stop.
	DefaultDataDir = "/var/lib/ordinal"
	// RunDir holds what need not outlive a reboot: sockets and container state.
	RunDir = "/run/ordinal"
	// ContainerdSocket is the container runtime's CRI and API socket.
	ContainerdSocket = RunDir + "/containerd.sock"
	// EtcdSocket is the datastore's only client endpoint; access is governed by the mode of RunDir (0700).
	EtcdSocket = RunDir + "/etcd.sock"
	// HostLock is held by the one `ordinal up` of this host.
	HostLock = RunDir + "/lock"

	// NodeName is the one node's name. It is fixed so that volumes stay reachable when the host is renamed.
	NodeName = "ordinal"
	// Bridge is the network interface that pods are attached to.
	Bridge = "ordinal0"
	// NodeIP is the bridge's address: the node's, the pods' gateway, the DNS server's.
	NodeIP = "10.85.0.1"
	// PodCIDR is the network of the pods and the bridge.
	PodCIDR = "10.85.0.0/16"
	// ServiceCIDR is the network of Service addresses.
	ServiceCIDR = "10.86.0.0/16"
	// Domain is the cluster's DNS domain.
	Domain = "cluster.local"

	// PauseImage is the sandbox image, imported from PauseArchive.
	PauseImage = "ordinal.dev/pause:1"
	// PauseArchive is the file beside the binary that holds PauseImage.
	PauseArchive = "pause.tar"
	// StartHook is the program beside the binary that the container runtime runs before each container starts.
	StartHook = "atmostone"
	// Controller is the program of the StatefulSet controller.
	Controller = "ordinal-controller"

	// DefaultAPIPort is the API server's port on loopback and on the bridge.
	DefaultAPIPort = 6443
	// KubeletPort serves the kubelet's authenticated API on NodeIP.
	KubeletPort = 10250
	// ControllerManagerPort serves health and metrics of kube-controller-manager on loopback.
	ControllerManagerPort = 10257
	// SchedulerPort serves health and metrics of kube-scheduler on loopback.
	SchedulerPort = 10259
)

// ServiceIP is the n-th address of the Service network (1 is the API server's).
func ServiceIP(n int) netip.Addr {
	addr := netip.MustParsePrefix(ServiceCIDR).Addr()
	for range n {
		addr = addr.Next()
	}
	return addr
}

// Data is a data directory.
type Data string

// Path joins elements below the data directory.
func (d Data) Path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Kubeconfig is the administrator's kubeconfig file.
func (d Data) Kubeconfig() string { return d.Path("kubeconfig") }

// PKI is a file of the cluster's certificate directory.
func (d Data) PKI(name string) string { return d.Path("pki", name) }

// ComponentKubeconfig is the kubeconfig with which a component speaks to the API server.
func (d Data) ComponentKubeconfig(component string) string {
	return d.Path("pki", component+".kubeconfig")
}

// Config is a generated configuration file; all are rewritten at each start.
func (d Data) Config(name string) string { return d.Path("config", name) }

// Log is a component's current log file.
func (d Data) Log(component string) string { return d.Path("log", component+".log") }

// Volumes is the directory with one directory per persistent volume.
func (d Data) Volumes() string { return d.Path("volumes") }

// State is the file in which `ordinal up` publishes what its components do.
func (d Data) State() string { return d.Path("state.json") }

// Run holds the sockets of a simulated cluster, which has no part in RunDir.
func (d Data) Run() string { return d.Path("run") }

// Lock is held by the `ordinal up` that uses this data directory.
func (d Data) Lock() string { return d.Path("lock") }

// CNIDirs are where distributions put the CNI plugins, in the order of search.
func CNIDirs() []string { return []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} }
