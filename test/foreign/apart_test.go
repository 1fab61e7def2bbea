// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/ordinal-dev/ordinal/internal/cluster/network"
	"github.com/ordinal-dev/ordinal/test/servers"
)

// The tests run in namespaces of their own. Whatever they start, mount, or listen on is seen by nobody else on the host, and goes when
// they go, however that is.

const (
	// homeEnv tells the inner process where its files are.
	homeEnv = "ORDINAL_FOREIGN_HOME"
	// keepLogs, in the environment, is a directory in which a run that fails leaves its logs.
	keepLogs = "ORDINAL_TEST_LOGS"
	// cgroup holds what the kubelet starts. The kernel's control groups are all that is shared with the host.
	cgroup = "ordinal-foreign"
)

// home is what all tests share.
var home struct {
	dir string // their files; its log directory is kept if they fail
	bin string // the built programs
	// told is what the summary says of each test that passed.
	told []string
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(homeEnv); dir != "" {
		os.Exit(inside(m, dir))
	}
	code, err := outside()
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/foreign cannot run:", err)
		code = 1
	}
	os.Exit(code)
}

// outside runs the tests in a process with namespaces of its own, and removes what they leave.
func outside() (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("it needs root; run: make test-foreign (it asks sudo)")
	}
	dir, err := os.MkdirTemp("", "ordinal-foreign-")
	if err != nil {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The kernel ends the inner process when the thread that made it ends.
	runtime.LockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), homeEnv+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code, err = max(1, exit.ExitCode()), nil
	}
	if logs := os.Getenv(keepLogs); logs != "" && (code != 0 || err != nil) {
		err = errors.Join(err, os.CopyFS(logs, os.DirFS(filepath.Join(dir, "log"))))
	}
	return code, errors.Join(err, removeCgroups(), os.RemoveAll(dir))
}

// removeCgroups removes the control groups that the containers were in. All processes are gone by now.
func removeCgroups() error {
	tops, err := filepath.Glob("/sys/fs/cgroup/*/" + cgroup)
	if err != nil {
		return err
	}
	var errs []error
	for _, top := range append(tops, "/sys/fs/cgroup/"+cgroup) {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			errs = append(errs, unix.Rmdir(dir))
		}
	}
	return errors.Join(errs...)
}

// inside runs the tests, as the first process of its namespaces.
func inside(m *testing.M, dir string) int {
	began := time.Now()
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		home.dir, home.bin = dir, bin
		err = errors.Join(os.Mkdir(filepath.Join(dir, "log"), 0o700), moveIn())
		klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(servers.NewLogFile(filepath.Join(dir, "log", "test.log"))))))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/foreign cannot run:", err)
		return 1
	}
	code := m.Run()
	word := "passed"
	if code != 0 {
		word = "FAILED"
	}
	fmt.Printf("foreign clusters: %s in %s: %s\n", word, time.Since(began).Round(time.Second), strings.Join(home.told, "; "))
	return code
}

// moveIn makes the new namespaces fit to live in.
func moveIn() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	// Where programs keep what is theirs on this machine, whatever their flags say.
	for _, dir := range []string{"/run", "/var/log"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := unix.Sethostname([]byte(realNode)); err != nil {
		return fmt.Errorf("name the machine: %w", err)
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	return network.Up(context.Background())
}

// tell adds to the summary what a test has shown, unless it failed.
func tell(t *testing.T, format string, args ...any) {
	t.Helper()
	if !t.Failed() {
		home.told = append(home.told, fmt.Sprintf(format, args...))
	}
}
