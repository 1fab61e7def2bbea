// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/doctor"
)

// doctorDeps is what `ordinal doctor` asks the rest of the command line for, when it runs.
type doctorDeps struct {
	// dataDir is the data directory that the flags name.
	dataDir func() string
	// binDir is where our binary and what it starts are.
	binDir func() (string, error)
	// running says whether a cluster of ours runs on this host.
	running func(context.Context) bool
}

func newDoctorCommand(deps doctorDeps) *cobra.Command {
	port := layout.DefaultAPIPort
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this host can run a cluster, and say how to mend what is missing",
		Long: "Check whether this host can run a cluster. For each need that is not met, a line tells what was found and the command\n" +
			"that mends it. Nothing is changed. The exit code is 1 if a cluster could not work.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			binDir, err := deps.binDir()
			if err != nil {
				return err
			}
			dataDir, err := filepath.Abs(deps.dataDir())
			if err != nil {
				return err
			}
			results := doctor.Run(cmd.Context(), doctor.Options{
				DataDir: dataDir, BinDir: binDir, APIPort: port, Running: deps.running(cmd.Context()),
			})
			if err := printResults(cmd.OutOrStdout(), results); err != nil {
				return err
			}
			if n := len(doctor.Failures(results)); n > 0 {
				return fmt.Errorf("this host cannot run a cluster yet: %s failed", count(n, "check"))
			}
			return nil
		},
	}
	command.Flags().IntVar(&port, "api-port", port, "the port that the API server is to have")
	return command
}

// printResults prints a table, with the remedy of a miss on a line of its own so that it can be copied.
func printResults(w io.Writer, results []doctor.Result) error {
	marks := map[doctor.State]string{doctor.OK: "ok", doctor.Warn: "warn", doctor.Fail: "FAIL"}
	if isTerminal(w) {
		marks = map[doctor.State]string{doctor.OK: "✔", doctor.Warn: "!", doctor.Fail: "✘"}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range results {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", marks[r.State], r.Name, r.Detail)
		if r.Remedy != "" {
			_, _ = fmt.Fprintf(table, "\t\t  mend it with: %s\n", r.Remedy)
		}
	}
	return table.Flush()
}

// isTerminal says whether somebody looks at what is written.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// count puts a number before a noun that has a regular plural.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
