// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/test/ports"
)

// rig is where the commands of one page run: a directory with the examples and what was built, and a data directory.
type rig struct {
	dir string
	env []string
}

// newRig makes the directory. Its name is short, for the sockets in it.
func newRig(root string) (*rig, error) {
	dir, err := os.MkdirTemp("", "ordinal-docs-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir}
	r.env = append(os.Environ(), "PATH="+filepath.Join(dir, "shims")+":"+filepath.Join(root, "bin")+":"+os.Getenv("PATH"),
		"ORDINAL_DATA_DIR="+r.data(), "HOME="+dir, "KUBECONFIG=", "TERM=dumb")
	return r, errors.Join(
		os.MkdirAll(r.work(), 0o755),
		os.MkdirAll(filepath.Join(dir, "shims"), 0o755),
		os.Symlink(filepath.Join(root, "bin"), filepath.Join(r.work(), "bin")),
		os.Symlink(filepath.Join(root, "examples"), filepath.Join(r.work(), "examples")),
		r.shim("kubectl", `exec ordinal kubectl "$@"`),
		r.shim("sudo", sudo()),
	)
}

// sudo is what sudo does here.
func sudo() string {
	if path, err := exec.LookPath("sudo"); err == nil && os.Geteuid() != 0 {
		return "exec " + path + ` --preserve-env "$@"`
	}
	return `exec "$@"`
}

// shim is a program of the page's readers that is ours here.
func (r *rig) shim(name, script string) error {
	return os.WriteFile(filepath.Join(r.dir, "shims", name), []byte("#!/bin/sh\n"+script+"\n"), 0o755)
}

func (r *rig) data() string { return filepath.Join(r.dir, "data") }

func (r *rig) work() string { return filepath.Join(r.dir, "work") }

// start starts the cluster that a page wants.
func (r *rig) start(ctx context.Context, where string) error {
	switch where {
	case "simulate":
		port, err := ports.Three(ctx, 23000)
		if err != nil {
			return err
		}
		return r.ordinal(ctx, "up", "--simulate", "--nodes=3", "--detach", "--api-port="+strconv.Itoa(port))
	case "real":
		if err := r.ordinal(ctx, "up", "--detach"); err != nil {
			return err
		}
		return r.ordinal(ctx, "image", "import", "bin/visits.tar")
	}
	return nil
}

// stop stops the cluster that is there, whoever started it, and deletes all.
func (r *rig) stop(ctx context.Context) error {
	_, err := os.Stat(layout.Data(r.data()).State())
	switch {
	case err == nil:
		err = r.ordinal(ctx, "down", "--purge", "--yes")
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(r.dir)
}

func (r *rig) ordinal(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "bash", "-c", `exec ordinal "$@"`, "ordinal")
	command.Args = append(command.Args, args...)
	command.Dir, command.Env = r.work(), r.env
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("ordinal %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
