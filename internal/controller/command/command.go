// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of the controller: flags to options, checked, then run.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/announce"
	"github.com/ordinal-dev/ordinal/internal/cluster/frugal"
	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// options are the command's flags.
type options struct {
	kubeconfig  string
	readySocket string
	metrics     telemetry.Endpoint
	// pprof serves profiles beside the metrics.
	pprof bool
	controller.Options
}

// Run runs the command line and gives the exit code.
func Run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	// Who sets the collector knows better.
	if os.Getenv("GOGC") == "" {
		go frugal.Run()
	}
	cmd := New()
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		return 1
	}
	return 0
}

// New makes the command.
func New() *cobra.Command {
	o := options{Options: controller.Options{
		Workers:     5,
		QPS:         200,
		Burst:       400,
		LeaderElect: true,
		Defaulter:   appsdefaults.SetObjectDefaults_StatefulSet,
	}}
	cmd := &cobra.Command{
		Use:   "ordinal-controller",
		Short: "Run the StatefulSet controller for an existing cluster",
		Long: "Run Ordinal's StatefulSet controller. It takes the place of the one in kube-controller-manager, which has to be\n" +
			"started with --controllers=*,-statefulset-controller.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
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
	f.StringVar(&o.readySocket, "ready-socket", "", announce.Usage)
	f.Lookup("ready-socket").Hidden = true
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
	f.BoolVar(&o.pprof, "pprof", false, "serve Go profiles on --metrics-bind-address too, below /debug/pprof/, to everybody who may reach it")
	return cmd
}

// run runs the controller, and serves its metrics while it runs.
func (o *options) run(ctx context.Context, cfg *rest.Config) error {
	announced := announce.Ready(o.readySocket)
	run := o.Options
	run.Ready = announced
	if o.metrics.Address == "" {
		return controller.Run(ctx, cfg, run)
	}
	listener, err := o.metrics.Listen(ctx)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address, --metrics-cert-file, --metrics-key-file: %w", err)
	}
	klog.FromContext(ctx).Info("Serving metrics", "address", listener.Addr().String())
	health := &telemetry.Health{}
	run.Metrics, run.Standby = telemetry.New(), health.Standby
	run.Ready = func() {
		health.Working()
		announced()
	}
	handler := telemetry.Handler(run.Metrics, health)
	if o.pprof {
		handler = telemetry.WithProfiles(handler)
	}
	return telemetry.ServeWhile(ctx, listener, handler, func(ctx context.Context) error {
		return controller.Run(ctx, cfg, run)
	})
}

func (o *options) validate() error {
	switch {
	case o.Workers < 1:
		return fmt.Errorf("--workers must be at least 1, not %d", o.Workers)
	case o.QPS <= 0:
		return fmt.Errorf("--kube-api-qps must be more than 0, not %g", o.QPS)
	case o.Burst < 1:
		return fmt.Errorf("--kube-api-burst must be at least 1, not %d", o.Burst)
	case o.metrics.Address == "" && o.metrics != (telemetry.Endpoint{}):
		return errors.New("--metrics-cert-file and --metrics-key-file need --metrics-bind-address")
	case o.metrics.Address == "" && o.pprof:
		return errors.New("--pprof needs --metrics-bind-address")
	}
	return nil
}

func (o *options) restConfig() (*rest.Config, error) {
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
