// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// The test binary plays pause, and the processes that pause inherits, when this variable says so.
const role = "ORDINAL_PAUSE_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "pause":
		playPause()
	case "parent":
		playParent()
	case "orphan":
		playOrphan()
	default:
		os.Exit(m.Run())
	}
}

// playPause is pause as PID 1 would be: the orphans below it become its children.
func playPause() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	reapOrphans()
	// The parent's exit status goes to the kernel, so the only way to have waited for it is to hear that it is gone.
	_ = child("parent").Run()
	fmt.Println("ready")
	sleep()
}

// playParent leaves a child behind.
func playParent() {
	orphan := child("orphan")
	if err := orphan.Start(); err != nil {
		panic(err)
	}
	fmt.Println(orphan.Process.Pid)
}

// playOrphan lives until its standard input ends.
func playOrphan() {
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func child(name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role+"="+name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

func TestPause(t *testing.T) {
	pause := child("pause")
	pause.Stdout = nil
	pause.Stdin = nil
	input, err := pause.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := pause.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pause.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pause.Process.Kill() })
	lines := bufio.NewScanner(output)
	lines.Scan()
	orphan, err := strconv.Atoi(lines.Text())
	if err != nil {
		t.Fatalf("the orphan's pid: %v", err)
	}
	if lines.Scan(); lines.Text() != "ready" {
		t.Fatalf("pause says %q, want ready", lines.Text())
	}
	if got := parentOf(t, orphan); got != pause.Process.Pid {
		t.Fatalf("the orphan's parent is %d, want pause, %d", got, pause.Process.Pid)
	}

	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, orphan)
	if err := pause.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := time.AfterFunc(10*time.Second, func() { _ = pause.Process.Kill() })
	if err := pause.Wait(); err == nil || !ended.Stop() {
		t.Fatalf("pause did not end at SIGTERM: %v", err)
	}
}

// parentOf is the parent of a living process.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	parent, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// gone waits until nothing is left of a process, not even a zombie.
func gone(t *testing.T, pid int) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		_, err := os.Stat("/proc/" + strconv.Itoa(pid))
		return errors.Is(err, fs.ErrNotExist), nil
	})
	if err != nil {
		t.Fatalf("the orphan is still there: %v", err)
	}
}
