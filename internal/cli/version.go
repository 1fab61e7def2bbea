// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	componentversion "k8s.io/component-base/version"

	"github.com/ordinal-dev/ordinal/internal/version"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Ordinal and of the Kubernetes in it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "ordinal %s, Kubernetes %s, %s %s/%s\n",
				version.Get(), componentversion.Get().GitVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
