// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ordinal-dev/ordinal/internal/cluster"
)

// stopPoll is how often `down` looks how far the stop is.
const stopPoll = 100 * time.Millisecond

type downOptions struct {
	dataDir    string
	purge, yes bool
	in         io.Reader
	out        io.Writer
}

func newDownCommand(shared *globals) *cobra.Command {
	o := downOptions{}
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop this machine's cluster; its data is kept unless --purge is given",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := cluster.ResolveDataDir(shared.dataDir)
			if err != nil {
				return err
			}
			o.dataDir, o.in, o.out = dir, cmd.InOrStdin(), cmd.OutOrStdout()
			return down(cmd.Context(), o)
		},
	}
	command.Flags().BoolVar(&o.purge, "purge", false, "delete the data directory with all volumes, after asking")
	command.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	return command
}

func down(ctx context.Context, o downOptions) error {
	state, err := cluster.ReadState(o.dataDir)
	if !mayStop(state) {
		return errors.New("down needs root, unless for a simulated cluster of your own; run: sudo ordinal down")
	}
	if cluster.IsNeverStarted(err) {
		_, err := fmt.Fprintf(o.out, "no cluster in %s\n", o.dataDir)
		return err
	}
	if err != nil {
		return err
	}
	if o.purge && !o.yes {
		if agreed, err := confirmPurge(o); err != nil || !agreed {
			return err
		}
	}
	if err := stop(ctx, o, state); err != nil {
		return err
	}
	if !o.purge {
		return nil
	}
	if err := cluster.Purge(o.dataDir); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.out, "deleted %s\n", o.dataDir)
	return err
}

// mayStop tells whether this user can end a cluster: what real pods leave on the host, only root can.
func mayStop(state cluster.State) bool { return os.Geteuid() == 0 || state.Simulated }

func confirmPurge(o downOptions) (bool, error) {
	_, err := fmt.Fprintf(o.out, "This deletes every pod, claim and volume in %s for good. Type yes to go on: ", o.dataDir)
	if err != nil {
		return false, err
	}
	answer, _ := bufio.NewReader(o.in).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return true, nil
	}
	return false, errors.New("nothing was stopped or deleted (give --yes where nobody can answer)")
}

// stop ends the cluster's process and shows how far it is. Where that process is gone already, what it left is removed.
func stop(ctx context.Context, o downOptions, state cluster.State) error {
	if state.Phase.Over() {
		if err := cluster.Sweep(ctx, o.dataDir); err != nil {
			return fmt.Errorf("remove what the cluster left running: %w", err)
		}
		_, err := fmt.Fprintf(o.out, "the cluster in %s is not running\n", o.dataDir)
		return err
	}
	began := time.Now()
	if err := unix.Kill(state.PID, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop process %d: %w", state.PID, err)
	}
	if err := watchStop(ctx, o); ctx.Err() != nil {
		// A second signal makes it kill what does not end.
		return errors.Join(unix.Kill(state.PID, unix.SIGTERM), errors.New("interrupted; the cluster goes on stopping, without waiting for pods"))
	} else if err != nil {
		return err
	}
	_, err := fmt.Fprintf(o.out, "stopped after %.1fs\n", time.Since(began).Seconds())
	return err
}

// watchStop shows what is left to stop until nothing is.
func watchStop(ctx context.Context, o downOptions) error {
	lastLine := ""
	return wait.PollUntilContextCancel(ctx, stopPoll, true, func(context.Context) (bool, error) {
		now, err := cluster.ReadState(o.dataDir)
		if err != nil {
			return false, err
		}
		if line := stopProgress(now); line != lastLine && !now.Phase.Over() {
			lastLine = line
			_, _ = fmt.Fprintln(o.out, line)
		}
		return now.Phase.Over(), nil
	})
}

func stopProgress(s cluster.State) string {
	if s.PodsLeft > 0 {
		return fmt.Sprintf("  waiting for %d pods to end", s.PodsLeft)
	}
	running := 0
	for _, component := range s.Components {
		if component.PID != 0 {
			running++
		}
	}
	return fmt.Sprintf("  %d components left", running)
}
