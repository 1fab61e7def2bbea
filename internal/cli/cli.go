// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: each command turns flags into options, checks them, and runs until its context ends.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ordinal-dev/ordinal/internal/cluster"
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// dataDirEnv names the data directory for all commands.
const dataDirEnv = "ORDINAL_DATA_DIR"

// globals are what all commands share.
type globals struct {
	dataDir string
	// isPlugin means that kubectl runs us as its command "ordinal".
	isPlugin bool
}

// errSilent ends a command with a failure that has been told already.
var errSilent = errors.New("already told")

// Run runs the command line and gives the exit code.
func Run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	root := newRootCommand(isPlugin(os.Args[0]))
	// Kubernetes' programs, which are in this one, share a flag of that name, which cobra would take for ours.
	if slices.Equal(args, []string{"--version"}) {
		args = []string{"version"}
	}
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	if !errors.Is(err, errSilent) {
		fmt.Fprintf(os.Stderr, "ordinal: %v\n", err)
	}
	return 1
}

// New makes the command with all that are below it, as the reference describes them.
func New() *cobra.Command { return newRootCommand(false) }

func newRootCommand(isPlugin bool) *cobra.Command {
	shared := &globals{isPlugin: isPlugin}
	root := &cobra.Command{
		Use:   "ordinal",
		Short: "StatefulSets that finish what they start, on one machine or any cluster",
		Long: `Ordinal runs StatefulSets. "ordinal up" starts a whole Kubernetes on this machine around Ordinal's
controller; "ordinal controller" runs the controller alone against any cluster.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		// What follows "kubectl" is kubectl's; our own flags come before it.
		TraverseChildren: true,
		Args:             unknownCommand,
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&shared.dataDir, "data-dir", defaultDataDir(), "directory of the cluster's data (env "+dataDirEnv+")")
	if isPlugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: shared.program()}
	}
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(
		newUpCommand(shared),
		newDownCommand(shared),
		newStatusCommand(shared),
		newDoctorCommand(doctorDeps{
			dataDir: func() string { return shared.dataDir },
			binDir:  cluster.BinDir,
			running: cluster.Running,
		}),
		newKubectlCommand(shared),
		newPlanCommand(shared),
		newImageCommand(),
		newWhyCommand(shared),
		newRolloutCommand(shared),
		newTakeoverCommand(shared),
		newControllerCommand(),
		newVersionCommand(),
	)
	return root
}

// defaultDataDir is what the environment names. Else a user without root has a directory of their own once there is a simulated
// cluster in it, and everybody the machine's.
func defaultDataDir() string {
	if dir := os.Getenv(dataDirEnv); dir != "" {
		return dir
	}
	own := ownDataDir()
	if _, err := os.Stat(layout.Data(own).State()); own != "" && err == nil {
		return own
	}
	return layout.DefaultDataDir
}

// ownDataDir is where the simulated cluster of a user without root is; empty for root, and for who has no home.
func ownDataDir() string {
	home, err := os.UserHomeDir()
	if err != nil || os.Geteuid() == 0 {
		return ""
	}
	return filepath.Join(home, ".local", "share", "ordinal")
}

// unknownCommand refuses words that no command has taken.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %s", strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q%s (%s --help lists them)", args[0], hint, cmd.CommandPath())
}
