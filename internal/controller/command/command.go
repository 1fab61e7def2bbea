// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of the controller: flags and a file to a configuration, checked, then run.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/cluster/announce"
	"github.com/ordinal-dev/ordinal/internal/cluster/frugal"
	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/controller/config"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
	"github.com/ordinal-dev/ordinal/internal/telemetry/otlp"
	"github.com/ordinal-dev/ordinal/internal/version"
)

// options are the command's flags.
type options struct {
	// config is what the flags that have a field set.
	config v1alpha1.ControllerConfiguration
	// file is the configuration file.
	file         string
	validateOnly bool
	readySocket  string
}

// errLogged is an error that the log tells already.
var errLogged = errors.New("see the log")

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
	err := cmd.ExecuteContext(ctx)
	klog.Flush()
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, errLogged):
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
	}
	return 1
}

// New makes the command.
func New() *cobra.Command {
	o := options{config: config.Default()}
	cmd := &cobra.Command{
		Use:   "ordinal-controller",
		Short: "Run the StatefulSet controller for an existing cluster",
		Long: "Run Ordinal's StatefulSet controller. It takes the place of the one in kube-controller-manager, which has to be\n" +
			"started with --controllers=*,-statefulset-controller.",
		Version:       version.Get(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd.Flags()); err != nil {
				return err
			}
			if o.validateOnly {
				fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
				return nil
			}
			if err := setLog(cmd.ErrOrStderr(), o.config.Logging); err != nil {
				return err
			}
			err := o.start(cmd.Context())
			if err != nil && o.config.Logging.Format == config.FormatJSON {
				klog.FromContext(cmd.Context()).Error(err, "Ended")
				return errLogged
			}
			return err
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func (o *options) start(ctx context.Context) error {
	cfg, err := restConfig(o.config.ClientConnection.Kubeconfig)
	if err != nil {
		return err
	}
	return o.run(ctx, cfg)
}

// run runs the controller, and serves its metrics and its health while it runs.
func (o *options) run(ctx context.Context, cfg *rest.Config) error {
	run, err := controllerOptions(&o.config)
	if err != nil {
		return err
	}
	run.Ready = announce.Ready(o.readySocket)
	traces, err := otlp.Start(ctx, o.config.Tracing.Endpoint)
	if err != nil {
		return fmt.Errorf("--traces-endpoint: %w", err)
	}
	defer traces.Stop(ctx)
	run.Tracer = traces.Tracer()
	work := func(ctx context.Context) error { return controller.Run(ctx, cfg, run) }
	if o.config.Metrics.BindAddress != "" {
		work = o.withMetrics(&run, work)
	}
	if address := o.config.Health.BindAddress; address != "" {
		work = withHealth(address, run.Health, work)
	}
	return work(ctx)
}

// controllerOptions are what a configuration means for the controller.
func controllerOptions(c *v1alpha1.ControllerConfiguration) (controller.Options, error) {
	scope := observe.Scope{Namespaces: c.Namespaces}
	if c.Selector != "" {
		var err error
		if scope.Selector, err = labels.Parse(c.Selector); err != nil {
			return controller.Options{}, fmt.Errorf("--selector: %w", err)
		}
	}
	e := c.LeaderElection
	return controller.Options{
		Workers:        int(c.Workers),
		Scope:          scope,
		Recreate:       c.RecreateStrategy,
		Strict:         c.StrictUpstream,
		QPS:            c.ClientConnection.QPS,
		Burst:          int(c.ClientConnection.Burst),
		LeaderElect:    e.LeaderElect,
		LeaseNamespace: e.ResourceNamespace,
		LeaseName:      e.ResourceName,
		LeaseDuration:  e.LeaseDuration.Duration,
		RenewDeadline:  e.RenewDeadline.Duration,
		RetryPeriod:    e.RetryPeriod.Duration,
		Defaulter:      appsdefaults.SetObjectDefaults_StatefulSet,
		Health:         &telemetry.Health{},
	}, nil
}

// job is what runs while something is served.
type job func(context.Context) error

// withMetrics serves metrics, and health beside them, while a job runs.
func (o *options) withMetrics(run *controller.Options, work job) job {
	m := o.config.Metrics
	run.Metrics = telemetry.New()
	handler := telemetry.Handler(run.Metrics, run.Health)
	if m.PProf {
		handler = telemetry.WithProfiles(handler)
	}
	return func(ctx context.Context) error {
		listener, err := telemetry.Endpoint{Address: m.BindAddress, CertFile: m.CertFile, KeyFile: m.KeyFile}.Listen(ctx)
		if err != nil {
			return fmt.Errorf("--metrics-bind-address, --metrics-cert-file, --metrics-key-file: %w", err)
		}
		klog.FromContext(ctx).Info("Serving metrics", "address", listener.Addr().String())
		return telemetry.ServeWhile(ctx, listener, handler, work)
	}
}

// withHealth serves health alone while a job runs.
func withHealth(address string, health *telemetry.Health, work job) job {
	return func(ctx context.Context) error {
		listener, err := telemetry.ListenPlain(ctx, address)
		if err != nil {
			return fmt.Errorf("--health-bind-address: %w", err)
		}
		klog.FromContext(ctx).Info("Serving health", "address", listener.Addr().String())
		return telemetry.ServeWhile(ctx, listener, telemetry.HealthHandler(health), work)
	}
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the cluster (outside of one, use --kubeconfig): %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return cfg, nil
}
