// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package component runs one part of the cluster as this process. Each part is a process of its own because
// Kubernetes components share process-wide state (feature gates, flags, signal handlers, metric registries).
package component

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/ordinal-dev/ordinal/internal/cluster/frugal"
)

// Command is the first argument by which the binary runs a part of itself.
const Command = "component"

// parts are the components and how each is run; the arguments are its own.
func parts() map[string]func(args []string) int {
	return map[string]func([]string) int{
		"etcd":           runEtcd,
		"kube-apiserver": runAPIServer,
		"kube-controller-manager": func(args []string) int {
			return runCobra(controllermanager.NewControllerManagerCommand(), args)
		},
		"kube-scheduler": func(args []string) int { return runCobra(scheduler.NewSchedulerCommand(), args) },
		"kube-proxy":     runProxy,
		"kubelet": func(args []string) int {
			return runCobra(kubelet.NewKubeletCommand(context.Background()), args)
		},
		"coredns": runDNS,
		"storage": runStorage,
		"nodes":   runNodes,
	}
}

// Run runs the named component with its arguments until it ends, and gives its exit code.
func Run(name string, args []string) int {
	all := parts()
	run, ok := all[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "ordinal: no component %q; there are %s\n", name,
			strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		return 2
	}
	go frugal.Run()
	return run(args)
}

func runCobra(command *cobra.Command, args []string) int {
	command.SetArgs(args)
	return cli.Run(command)
}

// exitCode reports how a component of ours ended.
func exitCode(err error) int {
	logs.FlushLogs()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		return 1
	}
	return 0
}
