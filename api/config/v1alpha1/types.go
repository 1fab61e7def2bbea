// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a file has to say that it is.
const (
	// APIVersion is the group and version of this package.
	APIVersion = "config.ordinal.dev/v1alpha1"
	// Kind is the kind of a configuration.
	Kind = "ControllerConfiguration"
)

// ControllerConfiguration is what ordinal-controller --config reads. Each field is a flag too, and a flag that is given on the
// command line wins. A field that is left out has its default.
type ControllerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// workers is how many sets are worked on at once, at least 1. One that takes longer than a second, as with a webhook that
	// hangs, does not count. The default is 20.
	Workers int32 `json:"workers,omitempty"`
	// namespaces are those whose sets are ours. Nothing outside of them is read or written. Without any, those of the whole
	// cluster are.
	Namespaces []string `json:"namespaces,omitempty"`
	// selector says which sets are ours by their labels, in the words of kubectl get -l. Others, their pods and their policies
	// are left alone. Without one, all sets are ours.
	Selector string `json:"selector,omitempty"`
	// recreateStrategy allows sets with the update strategy Recreate, which needs an API server with the feature gate
	// StatefulSetRecreateStrategy. The default is false.
	RecreateStrategy bool `json:"recreateStrategy,omitempty"`
	// strictUpstream does as Kubernetes' own controller does, also where that gets stuck, and sets no conditions.
	// StatefulSetPolicies are obeyed all the same. The default is false.
	StrictUpstream bool `json:"strictUpstream,omitempty"`

	// clientConnection is how the API server is reached.
	ClientConnection ClientConnection `json:"clientConnection,omitzero"`
	// leaderElection lets only one of several controllers work at a time.
	LeaderElection LeaderElection `json:"leaderElection,omitzero"`
	// metrics is where metrics are served, and health beside them.
	Metrics Metrics `json:"metrics,omitzero"`
	// health is where health alone is served.
	Health Health `json:"health,omitzero"`
	// logging is how the log is written.
	Logging Logging `json:"logging,omitzero"`
	// tracing is where traces are sent.
	Tracing Tracing `json:"tracing,omitzero"`
}

// ClientConnection is how the API server is reached.
type ClientConnection struct {
	// kubeconfig is the kubeconfig file of the cluster. Without it, the service account of the pod is used.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// qps is how many requests are made per second, more than 0. Events have a budget of their own of the same size. The
	// default is 200.
	QPS float32 `json:"qps,omitempty"`
	// burst is how many requests may be made at once above qps, at least 1. The default is 400.
	Burst int32 `json:"burst,omitempty"`
}

// LeaderElection lets only one of several controllers work at a time. Two that keep separate parts of a cluster each need a
// lease of their own.
type LeaderElection struct {
	// leaderElect says whether to work only while holding the lease. The default is true.
	LeaderElect bool `json:"leaderElect"`
	// resourceNamespace is the namespace of the lease. The default is kube-system.
	ResourceNamespace string `json:"resourceNamespace,omitempty"`
	// resourceName is the name of the lease. The default is ordinal-controller.
	ResourceName string `json:"resourceName,omitempty"`
	// leaseDuration is how long others wait for a leader that is silent, longer than renewDeadline. The default is 15s.
	LeaseDuration metav1.Duration `json:"leaseDuration,omitzero"`
	// renewDeadline is how long a leader that cannot renew the lease goes on, longer than retryPeriod. The default is 10s.
	RenewDeadline metav1.Duration `json:"renewDeadline,omitzero"`
	// retryPeriod is the pause between two attempts to renew or to acquire the lease. The default is 2s.
	RetryPeriod metav1.Duration `json:"retryPeriod,omitzero"`
}

// Metrics is where metrics are served, below /metrics, with /healthz and /readyz beside them.
type Metrics struct {
	// bindAddress is a host and a port, such as 127.0.0.1:9090. Without it, no metrics are served. Unless it is a loopback address,
	// they are served over TLS.
	BindAddress string `json:"bindAddress,omitempty"`
	// certFile holds the certificate, which is read anew when it is renewed. Without it, one is made at each start for addresses that
	// are not loopback, which nobody can verify.
	CertFile string `json:"certFile,omitempty"`
	// keyFile holds the certificate's key.
	KeyFile string `json:"keyFile,omitempty"`
	// pprof serves Go profiles too, below /debug/pprof/, to everybody who may reach the address. The default is false.
	PProf bool `json:"pprof,omitempty"`
}

// Health is where health alone is served, /healthz and /readyz, in plain text and to everybody: there the kubelet can ask.
type Health struct {
	// bindAddress is a host and a port, such as :8081. Without it, health is served beside the metrics alone.
	BindAddress string `json:"bindAddress,omitempty"`
}

// Logging is how the log is written, to standard error.
type Logging struct {
	// format is text, or json for one JSON object in each line. The default is text.
	Format string `json:"format,omitempty"`
	// verbosity is how much is told: 0 what is rare and important, 2 each write, 4 and more what only those want who look for a
	// fault. The default is 0.
	Verbosity int32 `json:"verbosity,omitempty"`
}

// Tracing is where traces are sent. All else is told by the variables of OpenTelemetry, such as OTEL_TRACES_SAMPLER,
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES.
type Tracing struct {
	// endpoint is the URL of a collector that takes OTLP over HTTP, such as http://collector:4318. Traces go to /v1/traces below
	// it, unless it names a path. Without it, OTEL_EXPORTER_OTLP_ENDPOINT counts, and without that, nothing is traced.
	Endpoint string `json:"endpoint,omitempty"`
}
