// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ordinal-dev/ordinal/internal/cluster"
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// newControllerCommand makes `ordinal controller`: the StatefulSet controller alone, for any cluster. It is a program of its
// own, a fifth of the size, which is all that a cluster needs. This process becomes it.
func newControllerCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "controller [flags]",
		Short:              "Run the StatefulSet controller for an existing cluster",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := cluster.BinDir()
			if err != nil {
				return err
			}
			program := filepath.Join(dir, layout.Controller)
			if err := unix.Exec(program, append([]string{program}, args...), os.Environ()); err != nil {
				return fmt.Errorf("start %s, which belongs beside ordinal: %w", program, err)
			}
			return nil
		},
	}
}
