// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/ordinal-dev/ordinal/internal/cluster/listen"
)

// runAPIServer is kube-apiserver with one flag more, --listen: it serves on several addresses, where the original serves
// either on one or on all. Users reach it on loopback, pods on the bridge, nobody from outside.
func runAPIServer(args []string) int {
	ctx := genericapiserver.SetupSignalContext()
	server := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	named := server.Flags()
	for _, set := range named.FlagSets {
		flags.AddFlagSet(set)
	}
	addresses := flags.StringSlice("listen", nil, "addresses to serve on, all at --secure-port")
	if err := flags.Parse(args); err != nil {
		return exitCode(err)
	}
	logs.InitLogs()
	return exitCode(serveAPI(ctx, server, *addresses))
}

func serveAPI(ctx context.Context, server *options.ServerRunOptions, addresses []string) error {
	registry := server.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	if err := logsapi.ValidateAndApply(server.Logs, registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return err
	}
	listener, err := listen.All(ctx, addresses, server.SecureServing.BindPort)
	if err != nil {
		return err
	}
	server.SecureServing.Listener = listener
	completed, err := server.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	registry.AddMetrics()
	return app.Run(ctx, completed)
}
