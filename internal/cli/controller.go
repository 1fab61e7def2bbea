// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// controllerOptions are the flags of `ordinal controller`.
type controllerOptions struct {
	kubeconfig string
	metrics    telemetry.Endpoint
	controller.Options
}

// newControllerCommand makes `ordinal controller`: the StatefulSet controller alone, for any cluster.
func newControllerCommand() *cobra.Command {
	o := controllerOptions{Options: controller.Options{
		Workers:     5,
		QPS:         200,
		Burst:       400,
		LeaderElect: true,
		Defaulter:   appsdefaults.SetObjectDefaults_StatefulSet,
	}}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the StatefulSet controller for an existing cluster",
		Long: "Run Ordinal's StatefulSet controller. It takes the place of the one in kube-controller-manager, which has to be\n" +
			"started with --controllers=*,-statefulset-controller.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			cfg, err := o.restConfig()
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster; without it, the service account of the pod")
	f.IntVar(&o.Workers, "workers", o.Workers, "how many sets are worked on at once")
	f.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "requests per second to the API server")
	f.IntVar(&o.Burst, "kube-api-burst", o.Burst, "requests that may be made at once above --kube-api-qps")
	f.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "work only while holding the lease kube-system/ordinal-controller")
	f.BoolVar(&o.Recreate, "recreate-strategy", o.Recreate,
		"work on sets with the update strategy Recreate; needs an API server with the feature gate StatefulSetRecreateStrategy")
	f.BoolVar(&o.Strict, "strict-upstream", o.Strict,
		"do as Kubernetes' own controller does, also where that gets stuck, and set no conditions; StatefulSetPolicies are obeyed all the same")
	f.StringVar(&o.metrics.Address, "metrics-bind-address", "",
		"`host:port` on which /metrics, /healthz and /readyz are served; off without it, and with TLS only unless it is loopback")
	f.StringVar(&o.metrics.CertFile, "metrics-cert-file", "", "certificate for --metrics-bind-address, read anew when it is renewed")
	f.StringVar(&o.metrics.KeyFile, "metrics-key-file", "", "key of --metrics-cert-file")
	return cmd
}

// run runs the controller, and serves its metrics while it runs.
func (o *controllerOptions) run(ctx context.Context, cfg *rest.Config) error {
	if o.metrics.Address == "" {
		return controller.Run(ctx, cfg, o.Options)
	}
	listener, err := o.metrics.Listen(ctx)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address, --metrics-cert-file, --metrics-key-file: %w", err)
	}
	klog.FromContext(ctx).Info("Serving metrics", "address", listener.Addr().String())
	health := &telemetry.Health{}
	options := o.Options
	options.Metrics, options.Ready, options.Standby = telemetry.New(), health.Working, health.Standby
	return telemetry.ServeWhile(ctx, listener, telemetry.Handler(options.Metrics, health), func(ctx context.Context) error {
		return controller.Run(ctx, cfg, options)
	})
}

func (o *controllerOptions) validate() error {
	switch {
	case o.Workers < 1:
		return fmt.Errorf("--workers must be at least 1, not %d", o.Workers)
	case o.QPS <= 0:
		return fmt.Errorf("--kube-api-qps must be more than 0, not %g", o.QPS)
	case o.Burst < 1:
		return fmt.Errorf("--kube-api-burst must be at least 1, not %d", o.Burst)
	case o.metrics.Address == "" && o.metrics != (telemetry.Endpoint{}):
		return errors.New("--metrics-cert-file and --metrics-key-file need --metrics-bind-address")
	}
	return nil
}

func (o *controllerOptions) restConfig() (*rest.Config, error) {
	if o.kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the cluster (outside of one, use --kubeconfig): %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return cfg, nil
}
