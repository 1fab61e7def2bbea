// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// parentEnv makes the test binary a supervisor of one child, to be killed.
const parentEnv = "SUPERVISE_TEST_PARENT"

func TestMain(m *testing.M) {
	if file := os.Getenv(parentEnv); file != "" {
		s := New(nil)
		p := script("child", fmt.Sprintf("echo $$ > %s.next && mv %s.next %s; exec sleep 600", file, file, file))
		if err := s.Start(context.Background(), p); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		select {}
	}
	os.Exit(m.Run())
}

// script is a child that runs a shell script and is ready at once.
func script(name, text string) Process {
	return Process{
		Name: name, Path: "/bin/sh", Args: []string{"-c", text}, Log: new(bytes.Buffer),
		Ready: func(context.Context) error { return nil }, Grace: 5 * time.Second,
	}
}

func exists(file string) func(context.Context) error {
	return func(context.Context) error {
		_, err := os.Stat(file)
		return err
	}
}

func TestStartWaitsUntilReady(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ready")
	p := script("a", fmt.Sprintf("sleep 0.2; touch %s; exec sleep 600", file))
	p.Ready = exists(file)
	s := New(nil)
	if err := s.Start(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	defer s.Stop("a")
	if _, err := os.Stat(file); err != nil {
		t.Error("Start returned before the child was ready")
	}
	status := s.Statuses()[0]
	if status.State != Running || status.Restarts != 0 || !alive(status.PID) || status.ReadyAfter <= 0 {
		t.Errorf("status is %+v", status)
	}
}

func TestKilledChildIsRestartedAndOthersAreNot(t *testing.T) {
	s := New(nil)
	for _, name := range []string{"a", "b"} {
		if err := s.Start(t.Context(), script(name, "exec sleep 600")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Stop(name) })
	}
	before := s.Statuses()
	if err := syscall.Kill(before[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		now := s.Statuses()
		return now[0].Restarts == 1 && now[0].State == Running && now[0].PID != before[0].PID && alive(now[0].PID)
	})
	after := s.Statuses()
	if after[1].PID != before[1].PID || after[1].Restarts != 0 {
		t.Errorf("the other child went from %+v to %+v", before[1], after[1])
	}
	if !strings.Contains(after[0].LastExit, "killed") {
		t.Errorf("last exit is %q", after[0].LastExit)
	}
}

// Who follows another is started anew when that one is back, and at no other time.
func TestFollowerStartsAnew(t *testing.T) {
	s := New(nil)
	for _, name := range []string{"leader", "follower"} {
		p := script(name, "exec sleep 600")
		if name == "follower" {
			p.Follows = "leader"
		}
		if err := s.Start(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Stop(name) })
	}
	before := s.Statuses()
	if err := syscall.Kill(before[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { now := s.Statuses()[1]; return now.Restarts == 1 && now.State == Running })
	if now := s.Statuses(); now[0].PID != before[0].PID || now[0].Restarts != 0 {
		t.Errorf("who is followed went from %+v to %+v", before[0], now[0])
	}
	before = s.Statuses()
	if err := syscall.Kill(before[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		now := s.Statuses()[1]
		return now.Restarts == 2 && now.State == Running && now.PID != before[1].PID && alive(now.PID)
	})
	if now := s.Statuses(); now[0].Restarts != 1 || !strings.Contains(now[1].LastExit, "to start anew with leader") {
		t.Errorf("they are %+v", now)
	}
}

func TestChildThatNeverGetsReadyFailsTheStart(t *testing.T) {
	p := script("a", "echo starting; echo 'error: no such thing' >&2; exit 3")
	p.Ready = exists(filepath.Join(t.TempDir(), "never"))
	p.LogFile = "a.log"
	s := New(nil)
	err := s.Start(t.Context(), p)
	failed, ok := errors.AsType[*ExitError](err)
	if !ok {
		t.Fatalf("error is %v", err)
	}
	if failed.Reason != "error: no such thing" || failed.Exit != "exit status 3" || failed.LogFile != "a.log" {
		t.Errorf("error is %+v", failed)
	}
	s.Stop("a")
}

func TestMissingProgramFailsTheStart(t *testing.T) {
	p := script("a", "")
	p.Path = filepath.Join(t.TempDir(), "missing")
	if err := New(nil).Start(t.Context(), p); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error is %v", err)
	}
}

func TestStopIsGentleThenFirm(t *testing.T) {
	dir := t.TempDir()
	ready, ended := filepath.Join(dir, "ready"), filepath.Join(dir, "ended")
	gentle := script("gentle", fmt.Sprintf("trap 'touch %s; exit 0' TERM; touch %s; while :; do sleep 0.05; done", ended, ready))
	gentle.Ready = exists(ready)
	readyFirm := filepath.Join(dir, "ready-firm")
	firm := script("firm", fmt.Sprintf("trap '' TERM; touch %s; while :; do sleep 0.05; done", readyFirm))
	firm.Ready = exists(readyFirm)
	firm.Grace = 300 * time.Millisecond
	s := New(nil)
	for _, p := range []Process{gentle, firm} {
		if err := s.Start(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	pid := s.Statuses()[1].PID
	s.Stop("gentle")
	s.Stop("firm")
	if _, err := os.Stat(ended); err != nil {
		t.Error("the gentle child was not given the time to end by itself")
	}
	if alive(pid) {
		t.Error("the child that ignores SIGTERM still runs")
	}
	for _, status := range s.Statuses() {
		if status.State != Stopped || status.PID != 0 {
			t.Errorf("status after the stop is %+v", status)
		}
	}
}

func TestCanceledStartCanBeStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := script("a", "exec sleep 600")
	p.Ready = func(context.Context) error {
		cancel()
		return errors.New("not yet")
	}
	s := New(nil)
	if err := s.Start(ctx, p); !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	pid := s.Statuses()[0].PID
	s.Stop("a")
	if alive(pid) {
		t.Error("the child outlived the stop")
	}
}

func TestEveryChangeIsTold(t *testing.T) {
	var mu sync.Mutex
	var states []State
	s := New(func(list []Status) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, list[0].State)
	})
	if err := s.Start(t.Context(), script("a", "exec sleep 600")); err != nil {
		t.Fatal(err)
	}
	s.Stop("a")
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(states); got != "[starting running stopping stopped]" {
		t.Errorf("states were %s", got)
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+file)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	eventually(t, func() bool {
		content, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		return err == nil
	})
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	eventually(t, func() bool { return !alive(pid) })
}

func TestReasonPrefersErrors(t *testing.T) {
	for output, want := range map[string]string{
		"":                               "it printed nothing",
		"one\ntwo\n":                     "two",
		"error: broken\nUsage: ...\n":    "error: broken",
		"E0102 15:04 x.go:1] bad\nbye\n": "E0102 15:04 x.go:1] bad",
		"{\"level\":\"fatal\"}\nrest":    "{\"level\":\"fatal\"}",
	} {
		tail := &tail{next: new(bytes.Buffer)}
		if _, err := tail.Write([]byte(output)); err != nil {
			t.Fatal(err)
		}
		if got := tail.reason(); got != want {
			t.Errorf("reason of %.40q is %q, want %q", output, got, want)
		}
	}
}

func TestTailIsBounded(t *testing.T) {
	log := new(bytes.Buffer)
	tail := &tail{next: log}
	for i := range 10_000 {
		if _, err := fmt.Fprintf(tail, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if len(tail.last) > tailSize || tail.reason() != "line 9999" {
		t.Errorf("kept %d bytes, last line %q", len(tail.last), tail.reason())
	}
	if !strings.HasPrefix(log.String(), "line 0\n") {
		t.Error("the log did not get everything")
	}
}

// alive tells whether a process runs; one that has ended and waits to be collected does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && pid != 0 && !strings.Contains(string(stat), ") Z ")
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatal("it did not come to that within 20 s")
	}
}
