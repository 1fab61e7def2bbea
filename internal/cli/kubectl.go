// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// kubeconfigEnv is what kubectl takes the kubeconfig from.
const kubeconfigEnv = "KUBECONFIG"

func newKubectlCommand(shared *globals) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ...",
		Short:              "Run kubectl against this machine's cluster",
		Long:               `This is kubectl itself, with the kubeconfig of this machine's cluster unless --kubeconfig names another.`,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return runKubectl(layout.Data(shared.dataDir), args)
		},
	}
}

func runKubectl(data layout.Data, args []string) error {
	if !namesKubeconfig(args) {
		if _, err := os.Stat(data.Kubeconfig()); err != nil {
			return noCluster(data, err)
		}
		if err := os.Setenv(kubeconfigEnv, data.Kubeconfig()); err != nil {
			return err
		}
	}
	// kubectl ends by the signals themselves, and reads the program's arguments to find plugins and to name itself.
	signal.Reset()
	os.Args = append([]string{"kubectl"}, args...)
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		return err
	}
	command := cmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		// It prints the error as kubectl does, and exits.
		cmdutil.CheckErr(err)
	}
	return nil
}

func namesKubeconfig(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=")
	})
}

func noCluster(data layout.Data, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s may be read by root only; run this with sudo, or let up write a copy of yours: ordinal up --kubeconfig FILE", data.Kubeconfig())
	}
	return fmt.Errorf("no cluster in %s; start one with: ordinal up", data)
}
