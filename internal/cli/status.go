// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ordinal-dev/ordinal/internal/cluster"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// componentStatus is a component with what only the kernel knows of it.
type componentStatus struct {
	supervise.Status

	// MemoryBytes is the proportional set size: shared pages count in parts.
	MemoryBytes int64 `json:"memoryBytes"`
}

// clusterStatus is what `status -o json` prints.
type clusterStatus struct {
	cluster.State

	DataDir    string            `json:"dataDir"`
	Components []componentStatus `json:"components"`
}

func newStatusCommand(shared *globals) *cobra.Command {
	output := ""
	command := &cobra.Command{
		Use:   "status",
		Short: "Tell each component's state, process, restarts, memory and log",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := cluster.ResolveDataDir(shared.dataDir)
			if err != nil {
				return err
			}
			return status(cmd.OutOrStdout(), dir, output)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json for programs; a table by default")
	return command
}

func status(out io.Writer, dataDir, output string) error {
	if output != "" && output != "json" {
		return fmt.Errorf("--output %q is not known; json is", output)
	}
	state, err := cluster.ReadState(dataDir)
	if cluster.IsNeverStarted(err) {
		return fmt.Errorf("no cluster in %s; start one with: ordinal up", dataDir)
	}
	if err != nil {
		return fmt.Errorf("read state (root may): %w", err)
	}
	full := clusterStatus{State: state, DataDir: dataDir, Components: []componentStatus{}}
	for _, component := range state.Components {
		if state.Phase == cluster.PhaseDead {
			component.State, component.PID = supervise.Stopped, 0
		}
		full.Components = append(full.Components, componentStatus{Status: component, MemoryBytes: proportionalMemory(component.PID)})
	}
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(full)
	}
	return printStatus(out, full)
}

func printStatus(out io.Writer, s clusterStatus) error {
	if _, err := fmt.Fprintf(out, "%s: %s (pid %d, ordinal %s, API on https://127.0.0.1:%d)\n", s.DataDir, s.Phase, s.PID, s.Version, s.APIPort); err != nil {
		return err
	}
	if s.Error != "" {
		if _, err := fmt.Fprintf(out, "%s\n", s.Error); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tRESTARTS\tMEMORY\tLOG")
	total := int64(0)
	for _, c := range s.Components {
		total += c.MemoryBytes
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", c.Name, c.State, orDash(c.PID), c.Restarts, mebibytes(c.MemoryBytes), c.Log)
	}
	_, _ = fmt.Fprintf(table, "total\t\t\t\t%s\t\n", mebibytes(total))
	return table.Flush()
}

func orDash(pid int) string {
	if pid == 0 {
		return "-"
	}
	return strconv.Itoa(pid)
}

func mebibytes(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// proportionalMemory is a process's proportional set size in bytes, or 0 where it cannot be read.
func proportionalMemory(pid int) int64 {
	if pid == 0 {
		return 0
	}
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(content) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == "Pss:" {
			kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return kib << 10
		}
	}
	return 0
}
