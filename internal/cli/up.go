// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ordinal-dev/ordinal/internal/cluster"
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// readyFD is the descriptor on which a detached start is told that all is ready; it carries the progress lines until then.
const readyFD = 3

// detachedEnv marks the process that a detached start leaves behind.
const detachedEnv = "ORDINAL_DETACHED"

// readyMark ends the progress lines of a detached start that went well.
const readyMark = "\x00\n"

type upOptions struct {
	cluster.Options

	detach bool
}

func newUpCommand(shared *globals) *cobra.Command {
	o := upOptions{Options: cluster.Options{APIPort: layout.DefaultAPIPort}}
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a Kubernetes cluster on this machine around Ordinal's controller",
		Long: `Start a Kubernetes cluster on this machine: datastore, API server, controllers, scheduler, kubelet, containers,
Services, DNS, storage, and Ordinal's StatefulSet controller. It runs until Ctrl-C, or with --detach until
"ordinal down". Pods, claims and data come back with the next start.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.DataDir = shared.dataDir
			if err := o.Complete(); err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return errors.New("up needs root, for containers and their network; run: sudo ordinal up")
			}
			if o.detach {
				return upDetached(cmd.Context(), layout.Data(o.DataDir), cmd.OutOrStdout())
			}
			return up(cmd.Context(), o.Options, cmd.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "where to write a copy of the administrator's kubeconfig (default DATA-DIR/kubeconfig)")
	flags.IntVar(&o.APIPort, "api-port", o.APIPort, "port of the API server on loopback")
	flags.BoolVar(&o.detach, "detach", false, "return when the cluster is ready and leave it running")
	flags.StringArrayVar(&o.StorageClasses, "storage-class", nil, "a further name for the local storage class (repeatable)")
	flags.BoolVar(&o.StrictStorageClasses, "strict-storage-classes", false, "leave claims pending whose storage class nobody defined")
	return command
}

// up runs a cluster until ctx ends. A second signal during the stop ends the patience with pods that do not end.
func up(ctx context.Context, o cluster.Options, out io.Writer) error {
	progress := progressWriter(out)
	report := func(line string) { _, _ = fmt.Fprintln(progress, line) }
	report("starting a cluster in " + o.DataDir)
	c, err := cluster.Start(ctx, o, version, report)
	if errors.Is(err, context.Canceled) {
		report("stopped before it was ready")
		return errSilent
	}
	if err != nil {
		return tellStarter(progress, err)
	}
	report(howToGoOn(o))
	tellReady(progress)
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
	if o.DataDir != layout.DefaultDataDir {
		prefix += "--data-dir " + o.DataDir + " "
	}
	return fmt.Sprintf(`ready. Go on with:
  %skubectl get pods -A
  export KUBECONFIG=%s   # for any other kubectl
  %sdown`, prefix, o.Kubeconfig, prefix)
}

// progressWriter is where progress goes: to the terminal, and in a detached cluster to whoever waits for its start.
func progressWriter(out io.Writer) io.Writer {
	if os.Getenv(detachedEnv) == "" {
		return out
	}
	_ = os.Unsetenv(detachedEnv)
	// The components must not inherit it: the starter waits until everybody has closed it.
	unix.CloseOnExec(readyFD)
	return &starterPipe{pipe: os.NewFile(readyFD, "starter"), log: out}
}

// starterPipe writes to the starter as long as it listens, and always to the log.
type starterPipe struct {
	pipe *os.File
	log  io.Writer
}

func (s *starterPipe) Write(p []byte) (int, error) {
	if s.pipe != nil {
		_, _ = s.pipe.Write(p)
	}
	return s.log.Write(p)
}

func tellReady(progress io.Writer) {
	if s, ok := progress.(*starterPipe); ok {
		_, _ = s.pipe.WriteString(readyMark)
		_ = s.pipe.Close()
		s.pipe = nil
	}
}

// tellStarter passes the error of a failed start to the starter, which prints it as its own.
func tellStarter(progress io.Writer, err error) error {
	s, ok := progress.(*starterPipe)
	if !ok {
		return err
	}
	_, _ = fmt.Fprintf(s.pipe, "%s%v\n", errorMark, err)
	return errors.Join(s.pipe.Close(), err)
}

// errorMark begins the error of a failed detached start.
const errorMark = "\x01"

// upDetached starts this same command in a session of its own and shows its progress until it is ready or has failed.
func upDetached(ctx context.Context, data layout.Data, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own binary: %w", err)
	}
	log, err := openLog(data.Log("up"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	child := exec.Command(self, withoutDetach(os.Args[1:])...)
	child.Env = append(os.Environ(), detachedEnv+"=1")
	child.Stdout, child.Stderr = log, log
	child.ExtraFiles = []*os.File{writer}
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

// openLog opens the file that takes what the cluster's own process prints. Nothing is printed after the start but how it ends.
func openLog(file string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("make directory for logs: %w", err)
	}
	return os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
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
