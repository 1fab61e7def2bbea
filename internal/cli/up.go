// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/internal/cluster"
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/nodes"
	"github.com/ordinal-dev/ordinal/internal/version"
)

// detachedEnv marks the process that a detached start leaves behind.
const detachedEnv = "ORDINAL_DETACHED"

// readyMark ends the progress lines of a detached start that went well.
const readyMark = "\x00\n"

type upOptions struct {
	cluster.Options

	detach bool
}

func newUpCommand(shared *globals) *cobra.Command {
	o := upOptions{Options: cluster.Options{APIPort: layout.DefaultAPIPort, Nodes: 1, PodDelay: time.Second}}
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a Kubernetes cluster on this machine around Ordinal's controller",
		Long: `Start a Kubernetes cluster on this machine: datastore, API server, controllers, scheduler, kubelet, containers,
Services, DNS, storage, and Ordinal's StatefulSet controller. It runs until Ctrl-C, or with --detach until
"ordinal down". Pods, claims and data come back with the next start.

With --simulate there is no kubelet, no container and no network: nodes exist in the API only, and their pods become
ready after a delay, or fail or wait as their annotation ` + nodes.FateAnnotation + ` says. That needs no root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.DataDir = shared.dataDir
			if err := o.checkMode(cmd.Flags()); err != nil {
				return err
			}
			if err := o.Complete(); err != nil {
				return err
			}
			if o.detach {
				return upDetached(cmd.Context(), cmd.OutOrStdout())
			}
			return up(cmd.Context(), o.Options, cmd.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "where to write a copy of the administrator's kubeconfig (default DATA-DIR/kubeconfig)")
	flags.IntVar(&o.APIPort, "api-port", o.APIPort, "port of the API server on loopback")
	flags.BoolVar(&o.Simulate, "simulate", false, "simulate nodes instead of running pods; needs no root")
	flags.IntVar(&o.Nodes, "nodes", o.Nodes, "how many nodes to simulate")
	flags.StringVar(&o.NodeCapacity, "node-capacity", "", "what each simulated node has; what is not named is as in "+nodes.DefaultCapacity)
	flags.DurationVar(&o.PodDelay, "pod-delay", o.PodDelay, "how long simulated pods take to become ready")
	flags.BoolVar(&o.detach, "detach", false, "return when the cluster is ready and leave it running")
	flags.StringArrayVar(&o.StorageClasses, "storage-class", nil, "a further name for the local storage class (repeatable)")
	flags.BoolVar(&o.StrictStorageClasses, "strict-storage-classes", false, "leave claims pending whose storage class nobody defined")
	return command
}

// checkMode refuses what goes with the other kind of cluster only, and finds a place for one without root.
func (o *upOptions) checkMode(flags *pflag.FlagSet) error {
	if !o.Simulate {
		for _, name := range []string{"nodes", "node-capacity", "pod-delay"} {
			if flags.Changed(name) {
				return fmt.Errorf("--%s is for simulated nodes only; give --simulate too", name)
			}
		}
		if os.Geteuid() != 0 {
			return errors.New("up needs root, for containers and their network; run: sudo ordinal up, or without root: ordinal up --simulate")
		}
		return nil
	}
	if own := ownDataDir(); own != "" && o.DataDir == layout.DefaultDataDir {
		o.DataDir = own
	}
	return nil
}

// up runs a cluster until ctx ends. A second signal during the stop ends the patience with pods that do not end.
func up(ctx context.Context, o cluster.Options, out io.Writer) error {
	detached := isDetached()
	// What libraries log in this process is told by our own lines, or by the error that comes of it.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	report := func(line string) { _, _ = fmt.Fprintln(out, line) }
	report("starting a cluster in " + o.DataDir)
	c, err := cluster.Start(ctx, o, version.Get(), report)
	if errors.Is(err, context.Canceled) {
		report("stopped before it was ready")
		return errSilent
	}
	if err != nil && detached {
		return tellStarter(out, err)
	}
	if err != nil {
		return err
	}
	report(howToGoOn(o))
	if detached {
		if err := leaveStarter(out, layout.Data(o.DataDir)); err != nil {
			report(err.Error())
		}
	}
	<-ctx.Done()
	report("stopping (again Ctrl-C: do not wait for pods)")
	stopping, cancel := signal.NotifyContext(context.WithoutCancel(ctx), unix.SIGINT, unix.SIGTERM)
	defer cancel()
	began := time.Now()
	c.Stop(stopping)
	report(fmt.Sprintf("stopped after %.1fs; data is kept in %s", time.Since(began).Seconds(), o.DataDir))
	return nil
}

func howToGoOn(o cluster.Options) string {
	prefix := "ordinal "
	if o.DataDir != layout.DefaultDataDir && o.DataDir != ownDataDir() {
		prefix += "--data-dir " + o.DataDir + " "
	}
	return fmt.Sprintf(`ready. Go on with:
  %skubectl get pods -A
  export KUBECONFIG=%s   # for any other kubectl
  %sdown`, prefix, o.Kubeconfig, prefix)
}

// errorMark begins the error of a failed detached start.
const errorMark = "\x01"

// isDetached tells whether this is the process that a detached start leaves behind. Until it is ready its output goes to
// the starter; should that be gone, the start goes on without it.
func isDetached() bool {
	detached := os.Getenv(detachedEnv) != ""
	_ = os.Unsetenv(detachedEnv)
	if detached {
		signal.Ignore(unix.SIGPIPE)
	}
	return detached
}

// tellStarter passes the error of a failed start to the starter, which prints it as its own.
func tellStarter(out io.Writer, err error) error {
	_, _ = fmt.Fprintf(out, "%s%v\n", errorMark, err)
	return errSilent
}

// leaveStarter tells the starter that all is ready, and from then on writes to the log.
func leaveStarter(out io.Writer, data layout.Data) error {
	log, err := os.OpenFile(data.Log("up"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	_, _ = io.WriteString(out, readyMark)
	for _, fd := range []int{unix.Stdout, unix.Stderr} {
		if err := unix.Dup2(int(log.Fd()), fd); err != nil {
			return fmt.Errorf("turn output to the log: %w", err)
		}
	}
	return nil
}

// upDetached starts this same command in a session of its own and shows its progress until it is ready or has failed.
func upDetached(ctx context.Context, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own binary: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	child := exec.Command(self, withoutDetach(os.Args[1:])...)
	child.Env = append(os.Environ(), detachedEnv+"=1")
	child.Stdout, child.Stderr = writer, writer
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = child.Start()
	_ = writer.Close()
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	// Ctrl-C while it starts stops it; it stops clean by itself.
	interrupt := context.AfterFunc(ctx, func() { _ = child.Process.Signal(unix.SIGTERM) })
	defer interrupt()
	result := relay(reader, out)
	if result == nil {
		return child.Process.Release()
	}
	if waitErr := child.Wait(); waitErr == nil {
		return nil
	}
	return result
}

// withoutDetach drops the flag that the child must not see.
func withoutDetach(args []string) []string {
	kept := make([]string, 0, len(args))
	for _, arg := range args {
		if arg != "--detach" && arg != "--detach=true" {
			kept = append(kept, arg)
		}
	}
	return kept
}
