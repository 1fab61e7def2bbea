// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ordinal-dev/ordinal/test/ports"
)

// cluster is one data directory and what runs on it.
type cluster struct {
	dir        string // holds everything below; deleted at the end
	data       string
	kubeconfig string
	port       int
	path       string // PATH of the programs started
	mounted    string // the disk of its own that the data is on, if it is
}

// newCluster makes the place for a cluster of the named test; nothing runs yet.
func newCluster(test string) (*cluster, error) {
	dir, err := os.MkdirTemp("", "ordinal-e2e-")
	if err != nil {
		return nil, err
	}
	port, err := ports.Any(context.Background())
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	c := &cluster{dir: dir, data: data, kubeconfig: filepath.Join(data, "kubeconfig"), port: port, path: os.Getenv("PATH")}
	suite.mu.Lock()
	suite.alive[c] = test
	suite.mu.Unlock()
	return c, nil
}

// output is what a finished command has said.
type output struct {
	args           []string
	stdout, stderr string
	code           int
}

// err is nil for a command that succeeded, else tells all it said.
func (o output) err() error {
	if o.code == 0 {
		return nil
	}
	return fmt.Errorf("%s: exit code %d\n%s%s", strings.Join(o.args, " "), o.code, o.stdout, o.stderr)
}

// command is `ordinal ARGS…` bound to this cluster, by nothing but the environment that a user would set.
func (c *cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(suite.bin, "ordinal"), args...)
	cmd.Dir = c.dir
	cmd.Env = []string{
		"PATH=" + c.path, "HOME=" + c.dir, "LANG=C.UTF-8", "TERM=xterm", "SHELL=/bin/sh", "KUBECTL_KUBERC=false",
		"ORDINAL_DATA_DIR=" + c.data, "KUBECONFIG=" + c.kubeconfig, mark,
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// onChangedHost is `ordinal ARGS…` with other files in place of some of the host's, for this command and what it starts.
func (c *cluster) onChangedHost(ctx context.Context, other map[string]string, args ...string) *exec.Cmd {
	cmd := c.command(ctx, args...)
	script := ""
	for _, file := range names(other) {
		script += fmt.Sprintf("mount --bind %s %s && ", other[file], file)
	}
	changed := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", script + `exec "$@"`, "sh", cmd.Path}, args...)...)
	changed.Env, changed.Dir, changed.WaitDelay = cmd.Env, cmd.Dir, cmd.WaitDelay
	return changed
}

// run runs `ordinal ARGS…` to its end.
func (c *cluster) run(ctx context.Context, args ...string) output {
	return finish(c.command(ctx, args...))
}

// finish runs a command to its end. One that could not be run, or whose output something else keeps open, has code -1.
func finish(cmd *exec.Cmd) output {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := output{args: cmd.Args, stdout: stdout.String(), stderr: stderr.String()}
	out.args[0] = filepath.Base(out.args[0])
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		out.code = exit.ExitCode()
	} else if err != nil {
		out.code = -1
		out.stderr += err.Error()
	}
	return out
}

// start starts the cluster and returns when `ordinal up` calls it ready.
func (c *cluster) start(ctx context.Context, flags ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return c.run(ctx, c.upArgs(flags...)...).err()
}

func (c *cluster) upArgs(flags ...string) []string {
	return append([]string{"up", "--detach", "--api-port", strconv.Itoa(c.port)}, flags...)
}

// mustStart starts the cluster or ends the test.
func (c *cluster) mustStart(t *testing.T, flags ...string) {
	t.Helper()
	if err := c.start(t.Context(), flags...); err != nil {
		t.Fatal(err)
	}
}

// mustStop stops the cluster and keeps its data, or ends the test.
func (c *cluster) mustStop(t *testing.T) {
	t.Helper()
	if err := c.run(t.Context(), "down").err(); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) importImages(ctx context.Context) error {
	return c.run(ctx, append([]string{"image", "import"}, suite.images...)...).err()
}

// dispose stops the cluster if it runs, deletes its data, and checks that the host is as it was before the tests.
func (c *cluster) dispose(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	suite.mu.Lock()
	delete(suite.alive, c)
	suite.mu.Unlock()
	var errs []error
	if exists(c.data) {
		errs = append(errs, c.run(ctx, "down", "--purge", "--yes").err())
		if exists(c.data) {
			errs = append(errs, fmt.Errorf("down --purge left the data directory %s", c.data))
		}
	}
	errs = append(errs, c.unmount(ctx), residue(ctx))
	if err := os.RemoveAll(c.dir); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// component is one line of `ordinal status`.
type component struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	PID         int    `json:"pid"`
	Restarts    int    `json:"restarts"`
	MemoryBytes int64  `json:"memoryBytes"`
	Log         string `json:"log"`
}

// readState is the state of a component that does its work.
const running = "running"

// status is what `ordinal status` tells, by component.
func (c *cluster) status(ctx context.Context) (map[string]component, error) {
	out := c.run(ctx, "status", "-o", "json")
	if err := out.err(); err != nil {
		return nil, err
	}
	var report struct {
		PID        int         `json:"pid"`
		Components []component `json:"components"`
	}
	if err := json.Unmarshal([]byte(out.stdout), &report); err != nil {
		return nil, fmt.Errorf("decode status: %w\n%s", err, out.stdout)
	}
	byName := map[string]component{}
	for _, part := range report.Components {
		byName[part.Name] = part
	}
	return byName, nil
}

func (c *cluster) mustStatus(t *testing.T) map[string]component {
	t.Helper()
	status, err := c.status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// dump tells a failed test's log what a person would look at first, and keeps the whole of it with the test's artifacts.
func (c *cluster) dump(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir := t.ArtifactDir()
	t.Logf("ordinal status:\n%s", said(c.run(ctx, "status")))
	keep(t, filepath.Join(dir, "get.txt"), said(c.run(ctx, "kubectl", "get", "all,pvc,pv,events", "-A", "-o", "wide")))
	keep(t, filepath.Join(dir, "describe.txt"), said(c.run(ctx, "kubectl", "describe", "sts,pods,pvc", "-A")))
	logs, err := filepath.Glob(filepath.Join(c.data, "log", "*.log"))
	if err != nil {
		t.Log(err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Log(err)
			continue
		}
		keep(t, filepath.Join(dir, filepath.Base(path)), string(text))
		t.Logf("end of %s:\n%s", filepath.Base(path), tail(string(text), 12))
	}
	t.Logf("kept in %s (go test -artifacts keeps them after the test)", dir)
}

func said(o output) string { return o.stdout + o.stderr }

func keep(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Log(err)
	}
}

// tail is the last n lines of a text, each cut to a readable length.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), 400)]
	}
	return strings.Join(lines, "\n")
}

// names are the keys of a map in order.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
