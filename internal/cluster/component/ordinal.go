// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"

	"github.com/ordinal-dev/ordinal/internal/cluster/announce"
	"github.com/ordinal-dev/ordinal/internal/nodes"
	"github.com/ordinal-dev/ordinal/internal/storage"
)

// runStorage is the volume provisioner.
func runStorage(args []string) int {
	o := storage.Options{}
	flags := pflag.NewFlagSet("storage", pflag.ContinueOnError)
	flags.StringVar(&o.Dir, "dir", "", "directory with one directory per volume")
	flags.StringVar(&o.NodeName, "node", "", "node that has the volumes")
	flags.BoolVar(&o.Simulated, "simulated", false, "make volumes that hold nothing")
	flags.BoolVar(&o.Strict, "strict", false, "leave claims alone whose class nobody defined")
	socket := flags.String("ready-socket", "", announce.Usage)
	o.Ready = func() { announce.Ready(*socket)() }
	return runClient(flags, args, func(ctx context.Context, config *rest.Config) error {
		return storage.Run(ctx, config, o)
	})
}

// runNodes stands in for the nodes of a simulated cluster.
func runNodes(args []string) int {
	o := nodes.Options{}
	flags := pflag.NewFlagSet("nodes", pflag.ContinueOnError)
	flags.IntVar(&o.Count, "count", 1, "how many nodes there are")
	flags.DurationVar(&o.PodDelay, "pod-delay", 0, "how long a pod takes to become ready")
	capacity := flags.String("capacity", "", "what each node has")
	socket := flags.String("ready-socket", "", announce.Usage)
	o.Ready = func() { announce.Ready(*socket)() }
	return runClient(flags, args, func(ctx context.Context, config *rest.Config) (err error) {
		if o.Capacity, err = nodes.ParseCapacity(*capacity); err != nil {
			return err
		}
		return nodes.Run(ctx, config, o)
	})
}

// runClient runs a component that works through the API server until it is told to stop.
func runClient(flags *pflag.FlagSet, args []string, run func(context.Context, *rest.Config) error) int {
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	if err := flags.Parse(args); err != nil {
		return exitCode(err)
	}
	logs.InitLogs()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return exitCode(fmt.Errorf("read kubeconfig: %w", err))
	}
	return exitCode(run(genericapiserver.SetupSignalContext(), config))
}
