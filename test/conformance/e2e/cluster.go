// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ordinal-dev/ordinal/test/ports"
)

// cluster is a one-machine cluster in a temporary directory.
type cluster struct {
	o     options
	dir   string
	data  string
	known exceptions
}

func newCluster(o options) (*cluster, error) {
	dir, err := os.MkdirTemp("", "ordinal-conformance-")
	return &cluster{o: o, dir: dir, data: filepath.Join(dir, "data"), known: knownExceptions("/proc")}, err
}

// start starts the cluster, with the images that the suite asks for as far as there is something for them.
func (c *cluster) start(ctx context.Context) error {
	names, err := wantedImages(ctx, c.o.program("e2e.test"))
	if err != nil {
		return err
	}
	archives, err := writeArchives(c.dir, names, c.o)
	if err != nil {
		return err
	}
	port, err := ports.Any(ctx)
	if err != nil {
		return err
	}
	if err := c.ordinal(ctx, "up", "--detach", "--api-port", strconv.Itoa(port)); err != nil {
		return err
	}
	return c.ordinal(ctx, append([]string{"image", "import"}, archives...)...)
}

// remove stops the cluster and deletes all of it.
func (c *cluster) remove(ctx context.Context) error {
	err := c.ordinal(ctx, "down", "--purge", "--yes")
	return errors.Join(err, os.RemoveAll(c.dir))
}

// ordinal runs a command on the cluster. What it says is told if it fails.
func (c *cluster) ordinal(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.o.bin, "ordinal"), append([]string{"--data-dir", c.data}, args...)...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ordinal %s: %w\n%s", args[0], err, said)
	}
	return nil
}

// runGroup runs the specs of a group and gives what became of each.
func (c *cluster) runGroup(ctx context.Context, g group) ([]result, error) {
	log, err := os.Create(filepath.Join(c.o.built, g.file()+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd, err := c.suite(ctx, g)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	ended := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// The suite ends with an error also when specs failed: the report tells.
	report, err := os.ReadFile(c.report(g))
	if err != nil {
		return nil, errors.Join(ended, err)
	}
	results, err := readReport(report, g, c.known)
	if err == nil && ended != nil && failures(results) == 0 {
		err = fmt.Errorf("no spec failed, yet the suite says: %w (see %s)", ended, log.Name())
	}
	return results, err
}

func (c *cluster) report(g group) string { return filepath.Join(c.o.built, g.file()+".json") }

// suite is the command that runs a group. When ctx ends, it and all its processes are told to clean up and end.
func (c *cluster) suite(ctx context.Context, g group) (*exec.Cmd, error) {
	if err := os.Remove(c.report(g)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	kubectl, err := c.kubectl()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, c.o.program("ginkgo"), "run", "--no-color", "--timeout=2h",
		"--procs="+strconv.Itoa(c.o.procs), "--focus="+g.focus, "--skip="+g.skipped(c.known),
		"--json-report="+filepath.Base(c.report(g)), "--output-dir="+c.o.built,
		c.o.program("e2e.test"), "--",
		"--provider=skeleton", "--num-nodes=1", "--kubeconfig="+filepath.Join(c.data, "kubeconfig"), "--kubectl-path="+kubectl,
		"--kubelet-root-dir="+filepath.Join(c.data, "kubelet"), "--e2e-output-dir="+c.dir)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "HOME="+c.dir, "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd, nil
}

// kubectl is a program of that name for the suite: ours, under its own name.
func (c *cluster) kubectl() (string, error) {
	file := filepath.Join(c.dir, "path", "kubectl")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' kubectl \"$@\"\n", filepath.Join(c.o.bin, "ordinal"))
	return file, os.WriteFile(file, []byte(script), 0o755)
}
