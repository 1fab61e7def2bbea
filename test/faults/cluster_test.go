// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/test/ports"
)

const (
	// patience is how long anything may take that should come soon on a busy machine with two cores.
	patience = 90 * time.Second
	poll     = 200 * time.Millisecond
	running  = "running"
	// ownController is the name of the controller among the parts of a cluster.
	ownController = "controller"
)

// cluster is a built ordinal on a data directory of its own.
type cluster struct {
	*testing.T
	bin, dir string
	data     layout.Data
	flags    []string
	config   *rest.Config
	client   kubernetes.Interface
}

// newCluster makes a place for a cluster, whose data may be on a disk of its own.
func newCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ordinal", "ordinal-controller"} {
		if _, err := os.Stat(filepath.Join(bin, name)); errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("bin/%s is missing: run make build first", name)
		}
	}
	// The directory of t.TempDir has a name that is too long for sockets.
	dir, err := os.MkdirTemp("", "ordinal-faults-") //nolint:usetesting // For the reason above.
	if err != nil {
		t.Fatal(err)
	}
	port, err := ports.Three(t.Context(), 22000)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		T: t, bin: bin, dir: dir, data: layout.Data(filepath.Join(dir, "data")),
		flags: append([]string{"up", "--detach", "--api-port", strconv.Itoa(port)}, flags...),
	}
	c.atEnd(func(context.Context) error { return os.RemoveAll(dir) })
	return c
}

// command is a command line of a built program, bound to this cluster.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "ORDINAL_DATA_DIR="+string(c.data), "HOME="+c.dir)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (c *cluster) ordinal(ctx context.Context, args ...string) ([]byte, error) {
	cmd := c.command(ctx, "ordinal", args...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("ordinal %s: %w\n%s", strings.Join(args, " "), err, failure.String())
	}
	return out, nil
}

// up starts the cluster, and the first time sees to it that it is gone at the end of the test.
func (c *cluster) up() {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 3*time.Minute)
	defer cancel()
	if c.client == nil {
		c.atEnd(c.purge)
		c.Cleanup(c.keepLogs)
	}
	if _, err := c.ordinal(ctx, c.flags...); err != nil {
		c.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.data.Kubeconfig())
	if err != nil {
		c.Fatal(err)
	}
	config.QPS, config.Timeout = -1, 20*time.Second
	c.config = config
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		c.Fatal(err)
	}
}

// purge stops the cluster and deletes its data.
func (c *cluster) purge(ctx context.Context) error {
	_, err := c.ordinal(ctx, "down", "--purge", "--yes")
	return err
}

// keepLogs keeps those of a test that failed.
func (c *cluster) keepLogs() {
	if !c.Failed() {
		return
	}
	dir := c.ArtifactDir()
	if err := os.CopyFS(filepath.Join(dir, "log"), os.DirFS(c.data.Path("log"))); err != nil {
		c.Log(err)
	}
	c.Logf("the logs are kept in %s (go test -artifacts keeps them after the test)", dir)
}

// parts are the process IDs of the cluster's parts that run, by name. That of the supervisor has the name "".
func (c *cluster) parts() (map[string]int, error) {
	out, err := c.ordinal(c.Context(), "status", "-o", "json")
	if err != nil {
		return nil, err
	}
	var status struct {
		PID        int `json:"pid"`
		Components []struct {
			Name  string `json:"name"`
			State string `json:"state"`
			PID   int    `json:"pid"`
		} `json:"components"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return nil, fmt.Errorf("decode status: %w", err)
	}
	pids := map[string]int{"": status.PID}
	for _, part := range status.Components {
		if part.State == running {
			pids[part.Name] = part.PID
		}
	}
	return pids, nil
}

// mustParts are the process IDs of the named parts, which all run.
func (c *cluster) mustParts(names ...string) map[string]int {
	c.Helper()
	var pids map[string]int
	c.eventually(patience, "all parts run", func() (err error) {
		if pids, err = c.parts(); err != nil {
			return err
		}
		for _, name := range names {
			if pids[name] == 0 {
				return fmt.Errorf("%s does not", name)
			}
		}
		return nil
	})
	return pids
}

func (c *cluster) signal(pid int, sig syscall.Signal) {
	c.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		c.Fatalf("signal %v to process %d: %v", sig, pid, err)
	}
}

// freezeController puts the cluster's own controller out of work, so that the test can run others in its place, and gives what ends
// that: one that has slept through all this must not act on what it knew, so it is killed and starts anew.
func (c *cluster) freezeController() (end func()) {
	c.Helper()
	pid := c.mustParts(ownController)[ownController]
	c.signal(pid, syscall.SIGSTOP)
	return func() { c.signal(pid, syscall.SIGKILL) }
}

// in is the cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	other := *c
	other.T = t
	return &other
}

// eventually ends the test unless the check passes within the time.
func (c *cluster) eventually(within time.Duration, what string, check func() error) {
	c.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.Context(), poll, within, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		c.Fatalf("not within %v: %s: %v", within, what, last)
	}
}

// pause lets things happen for a time.
func (c *cluster) pause(d time.Duration) {
	select {
	case <-c.Context().Done():
	case <-time.After(d):
	}
}
