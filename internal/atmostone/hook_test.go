// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package atmostone

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// machine is a directory of bundles and one of processes. The processes are real, but for their control groups.
type machine struct {
	*testing.T
	bundles, processes string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{T: t, bundles: t.TempDir(), processes: t.TempDir()}
}

// container makes a bundle of a pod's container, and what its hook is told.
func (m *machine) container(id string, pod Pod) state {
	m.Helper()
	bundle := filepath.Join(m.bundles, id)
	if err := os.Mkdir(bundle, 0o700); err != nil {
		m.Fatal(err)
	}
	return state{ID: id, Bundle: bundle, Annotations: map[string]string{
		"io.kubernetes.cri.container-type":    "container",
		"io.kubernetes.cri.sandbox-namespace": pod.Namespace,
		"io.kubernetes.cri.sandbox-name":      pod.Name,
		"io.kubernetes.cri.sandbox-uid":       pod.UID,
	}}
}

// live gives a container a process. It lives until it is killed, or the test ends.
func (m *machine) live(id string) *exec.Cmd {
	m.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have been killed before
		_ = cmd.Wait()
	})
	dir := filepath.Join(m.processes, strconv.Itoa(cmd.Process.Pid))
	if err := os.Mkdir(dir, 0o700); err != nil {
		m.Fatal(err)
	}
	for file, content := range map[string]string{
		"cgroup": "2:pids:/kubepods/besteffort/podx/" + id + "\n0::/kubepods/besteffort/podx/" + id + "/inner\n", "comm": "sleep\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			m.Fatal(err)
		}
	}
	return cmd
}

// gate lets containers of this machine start, or says no after a while.
func (m *machine) gate(patience time.Duration) gate {
	return gate{processes: m.processes, patience: patience}
}

func (m *machine) mustPass(s state) {
	m.Helper()
	if err := m.gate(0).pass(s); err != nil {
		m.Fatalf("%s may not start: %v", s.ID, err)
	}
}

func (m *machine) mustNotPass(s state) {
	m.Helper()
	if err := m.gate(0).pass(s); err == nil {
		m.Fatalf("%s may start", s.ID)
	}
}

func pod(name, uid string) Pod { return Pod{Namespace: "shop", Name: name, UID: uid} }

func TestOneAfterTheOther(t *testing.T) {
	m := newMachine(t)
	m.mustPass(m.container("old", pod("db-0", "u1")))
	first, second := m.live("old"), m.live("old")
	next := m.container("next", pod("db-0", "u2"))
	m.mustNotPass(next)
	m.mustPass(m.container("other", pod("db-1", "u3")))
	m.mustPass(m.container("sidecar", pod("db-0", "u1")))
	kill(t, first)
	m.mustNotPass(next) // a process that outlives the container's first one
	kill(t, second)
	m.mustPass(next)
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// A process that has ended, and whose parent does not ask how, writes nothing any more.
func TestZombie(t *testing.T) {
	m := newMachine(t)
	m.mustPass(m.container("old", pod("db-0", "u1")))
	old := m.live("old")
	if err := old.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.gate(time.Minute).pass(m.container("next", pod("db-0", "u2"))); err != nil {
		t.Error(err)
	}
}

func TestWaitEndsWithTheProcess(t *testing.T) {
	m := newMachine(t)
	m.mustPass(m.container("old", pod("db-0", "u1")))
	old := m.live("old")
	next := m.container("next", pod("db-0", "u2"))
	passed := make(chan error, 1)
	go func() { passed <- m.gate(time.Minute).pass(next) }()
	kill(t, old)
	if err := <-passed; err != nil {
		t.Error(err)
	}
}

func TestRefusalSaysWhy(t *testing.T) {
	m := newMachine(t)
	m.mustPass(m.container("old", pod("db-0", "u1")))
	old := m.live("old")
	err := m.gate(0).pass(m.container("next", pod("db-0", "u2")))
	for _, want := range []string{"pod db-0 of namespace shop", fmt.Sprintf("process %d (sleep)", old.Process.Pid)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}

// A container that waits, or was refused, holds up nobody.
func TestWhoWaitsIsNotInTheWay(t *testing.T) {
	m := newMachine(t)
	m.mustPass(m.container("old", pod("db-0", "u1")))
	old := m.live("old")
	m.mustNotPass(m.container("next", pod("db-0", "u2")))
	m.live("next")
	m.mustPass(m.container("old-too", pod("db-0", "u1")))
	kill(t, old)
	m.mustPass(m.container("last", pod("db-0", "u3")))
}

// The runtime deletes the bundle of a container whose start it gives up. Then nobody may start it any more.
func TestStartThatWasGivenUp(t *testing.T) {
	m := newMachine(t)
	given := m.container("given", pod("db-0", "u2"))
	if err := os.Remove(given.Bundle); err != nil {
		t.Fatal(err)
	}
	m.mustNotPass(given)
	m.mustPass(m.container("old", pod("db-0", "u1")))
	m.live("old")
	if err := m.gate(2 * time.Second).pass(given); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Errorf("the error is %v, want one about the start", err)
	}
}

// Of several pods of a name that start at the same instant, one wins.
func TestAtTheSameInstant(t *testing.T) {
	m := newMachine(t)
	const pods, rounds = 4, 100
	for i := range pods {
		m.live(fmt.Sprintf("container-%d-", i)) // the runtime's own process is there before the hook runs
	}
	for round := range rounds {
		m.bundles = t.TempDir()
		var wait sync.WaitGroup
		var passed atomic.Int32
		start := make(chan struct{})
		for i := range pods {
			s := m.container(fmt.Sprintf("container-%d-", i), pod("db-0", "u"+strconv.Itoa(i)))
			wait.Go(func() {
				<-start
				if m.gate(0).pass(s) == nil {
					passed.Add(1)
				}
			})
		}
		close(start)
		wait.Wait()
		if passed.Load() != 1 {
			t.Fatalf("round %d: %d pods of one name may start, want 1", round, passed.Load())
		}
	}
}

// Records that nobody can read are no reason to start nothing.
func TestBrokenRecords(t *testing.T) {
	m := newMachine(t)
	broken := m.container("broken", pod("db-0", "u1"))
	if err := os.WriteFile(filepath.Join(broken.Bundle, record), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.live("broken")
	m.mustPass(m.container("next", pod("db-0", "u2")))
}

func TestHook(t *testing.T) {
	m := newMachine(t)
	s := m.container("mine", pod("db-0", "u1"))
	sandbox := m.container("sandbox", pod("db-0", "u1"))
	sandbox.Annotations["io.kubernetes.cri.container-type"] = "sandbox"
	foreign := m.container("foreign", Pod{})
	foreign.Annotations = nil
	for _, s := range []state{s, sandbox, foreign} {
		told, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := Hook(strings.NewReader(string(told))); err != nil {
			t.Errorf("%s may not start: %v", s.ID, err)
		}
	}
	started := startedIn(m.bundles)
	if len(started) != 1 || started[0] != (Container{ID: "mine", Pod: pod("db-0", "u1")}) {
		t.Errorf("started are %v, want the container of the pod", started)
	}
	if err := Hook(strings.NewReader("nothing")); err == nil {
		t.Error("a hook that is told nothing lets a container start")
	}
}
