// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ordinal-dev/ordinal/internal/cluster/announce"
	"github.com/ordinal-dev/ordinal/internal/controller/config"
)

// fieldAnnotation is under which a flag says which field of the configuration it sets.
const fieldAnnotation = "ordinal.dev/field"

// fields gives, for each flag that sets a field of the configuration, the field.
func fields() map[string]string {
	return map[string]string{
		"workers":                         "workers",
		"namespaces":                      "namespaces",
		"selector":                        "selector",
		"recreate-strategy":               "recreateStrategy",
		"strict-upstream":                 "strictUpstream",
		"kubeconfig":                      "clientConnection.kubeconfig",
		"kube-api-qps":                    "clientConnection.qps",
		"kube-api-burst":                  "clientConnection.burst",
		"leader-elect":                    "leaderElection.leaderElect",
		"leader-elect-resource-namespace": "leaderElection.resourceNamespace",
		"leader-elect-resource-name":      "leaderElection.resourceName",
		"leader-elect-lease-duration":     "leaderElection.leaseDuration",
		"leader-elect-renew-deadline":     "leaderElection.renewDeadline",
		"leader-elect-retry-period":       "leaderElection.retryPeriod",
		"metrics-bind-address":            "metrics.bindAddress",
		"metrics-cert-file":               "metrics.certFile",
		"metrics-key-file":                "metrics.keyFile",
		"pprof":                           "metrics.pprof",
		"health-bind-address":             "health.bindAddress",
		"log-format":                      "logging.format",
		"v":                               "logging.verbosity",
		"traces-endpoint":                 "tracing.endpoint",
	}
}

// register defines the flags. What they set is the configuration itself.
func (o *options) register(f *pflag.FlagSet) {
	c := &o.config
	f.StringVar(&o.file, "config", "", "configuration `file`, a ControllerConfiguration; flags that are given win over it")
	f.BoolVar(&o.validateOnly, "validate-config", false, "check the flags and the file of --config, and do nothing else")
	f.StringVar(&o.readySocket, "ready-socket", "", announce.Usage)
	f.Lookup("ready-socket").Hidden = true

	f.Int32Var(&c.Workers, "workers", c.Workers, "how many sets are worked on at once")
	f.StringSliceVar(&c.Namespaces, "namespaces", nil, "`namespaces` whose sets are ours, nothing else being read or written; all without it")
	f.StringVar(&c.Selector, "selector", "", "labels of the sets that are ours, as in kubectl get -l; all without it")
	f.BoolVar(&c.RecreateStrategy, "recreate-strategy", false,
		"work on sets with the update strategy Recreate; needs an API server with the feature gate StatefulSetRecreateStrategy")
	f.BoolVar(&c.StrictUpstream, "strict-upstream", false,
		"do as Kubernetes' own controller does, also where that gets stuck, and set no conditions; StatefulSetPolicies are obeyed all the same")
	f.StringVar(&c.ClientConnection.Kubeconfig, "kubeconfig", "",
		"kubeconfig file of the cluster; without it, the service account of the pod")
	f.Float32Var(&c.ClientConnection.QPS, "kube-api-qps", c.ClientConnection.QPS, "requests per second to the API server")
	f.Int32Var(&c.ClientConnection.Burst, "kube-api-burst", c.ClientConnection.Burst, "requests that may be made at once above --kube-api-qps")
	o.registerElection(f)
	o.registerTelemetry(f)
	for flag, field := range fields() {
		if err := f.SetAnnotation(flag, fieldAnnotation, []string{field}); err != nil {
			panic(err) // A flag is named that does not exist.
		}
	}
}

func (o *options) registerElection(f *pflag.FlagSet) {
	e := &o.config.LeaderElection
	f.BoolVar(&e.LeaderElect, "leader-elect", e.LeaderElect, "work only while holding the lease")
	f.StringVar(&e.ResourceNamespace, "leader-elect-resource-namespace", e.ResourceNamespace, "namespace of the lease")
	f.StringVar(&e.ResourceName, "leader-elect-resource-name", e.ResourceName,
		"name of the lease; two controllers of separate parts of a cluster each need their own")
	f.DurationVar(&e.LeaseDuration.Duration, "leader-elect-lease-duration", e.LeaseDuration.Duration,
		"how long others wait for a leader that is silent")
	f.DurationVar(&e.RenewDeadline.Duration, "leader-elect-renew-deadline", e.RenewDeadline.Duration,
		"how long a leader that cannot renew the lease goes on")
	f.DurationVar(&e.RetryPeriod.Duration, "leader-elect-retry-period", e.RetryPeriod.Duration,
		"pause between two attempts to renew or to acquire the lease")
}

func (o *options) registerTelemetry(f *pflag.FlagSet) {
	c := &o.config
	f.StringVar(&c.Metrics.BindAddress, "metrics-bind-address", "",
		"`host:port` on which /metrics, /healthz and /readyz are served; off without it, and over TLS unless it is loopback")
	f.StringVar(&c.Metrics.CertFile, "metrics-cert-file", "", "certificate for --metrics-bind-address, read anew when it is renewed; one is made at the start without it")
	f.StringVar(&c.Metrics.KeyFile, "metrics-key-file", "", "key of --metrics-cert-file")
	f.BoolVar(&c.Metrics.PProf, "pprof", false, "serve Go profiles on --metrics-bind-address too, below /debug/pprof/, to everybody who may reach it")
	f.StringVar(&c.Health.BindAddress, "health-bind-address", "",
		"`host:port` on which /healthz and /readyz alone are served, in plain text, so that the kubelet can ask; off without it")
	f.StringVar(&c.Logging.Format, "log-format", c.Logging.Format, "text, or json for one JSON object in each line")
	f.Int32VarP(&c.Logging.Verbosity, "v", "v", 0, "how much is logged: 2 for each write, 4 and more to look for a fault")
	f.StringVar(&c.Tracing.Endpoint, "traces-endpoint", "",
		"`URL` of a collector to which traces of syncs are sent by OTLP over HTTP; without it, OTEL_EXPORTER_OTLP_ENDPOINT counts, and without that nothing is traced")
}

// complete reads the configuration file, puts over it the flags that were given, and checks the result.
func (o *options) complete(f *pflag.FlagSet) error {
	var file *config.File
	if o.file != "" {
		var err error
		if file, err = config.Read(o.file); err != nil {
			return err
		}
		restore := given(f)
		o.config = file.ControllerConfiguration
		if err := restore(); err != nil {
			return err
		}
	}
	return refuse(f, file, config.Validate(&o.config))
}

// refuse words problems where they were made: in the file, or on the command line.
func refuse(f *pflag.FlagSet, file *config.File, problems []config.Problem) error {
	var inFile []config.Problem
	var errs []error
	for _, p := range problems {
		flag := flagOf(f, p.Field)
		if file.Names(p.Field) && !flag.Changed {
			inFile = append(inFile, p)
		} else {
			errs = append(errs, fmt.Errorf("--%s %s", flag.Name, inFlags(p.Text)))
		}
	}
	if file == nil {
		return errors.Join(errs...)
	}
	return errors.Join(append([]error{file.Refuse(inFile)}, errs...)...)
}

// given takes down the values of the flags that were given. The function that it returns sets them again.
func given(f *pflag.FlagSet) (restore func() error) {
	texts, lists := map[*pflag.Flag]string{}, map[pflag.SliceValue][]string{}
	f.Visit(func(flag *pflag.Flag) {
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			lists[list] = list.GetSlice()
		} else {
			texts[flag] = flag.Value.String()
		}
	})
	return func() error {
		var errs []error
		for flag, text := range texts {
			errs = append(errs, flag.Value.Set(text))
		}
		for list, items := range lists {
			errs = append(errs, list.Replace(items))
		}
		return errors.Join(errs...)
	}
}

// flagOf is the flag that sets a field, or the list of which it is an item.
func flagOf(f *pflag.FlagSet, field string) *pflag.Flag {
	field, _, _ = strings.Cut(field, "[")
	var found *pflag.Flag
	f.VisitAll(func(flag *pflag.Flag) {
		if slices.Contains(flag.Annotations[fieldAnnotation], field) {
			found = flag
		}
	})
	return found
}

// inFlags names flags where a text names fields.
func inFlags(text string) string {
	var pairs []string
	for flag, field := range fields() {
		if strings.Contains(field, ".") {
			pairs = append(pairs, field, "--"+flag)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
