// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The supervisor dies: what is left hinders nothing, the pods run on, and the next `up` has all there was.
func TestSupervisorIsKilled(t *testing.T) {
	c := ownCluster(t)
	s := startedWithSet(t, c)
	lives, claims, revisions := s.lives(), s.claims(), names(s.revisions())
	supervisor := parentOf(t, c.mustStatus(t)["etcd"].PID)
	parts := []int{supervisor}
	for _, part := range c.mustStatus(t) {
		parts = append(parts, part.PID)
	}
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the parts die with the supervisor", func() error { return allDead(parts) })
	if out := c.run(t.Context(), "status"); !strings.Contains(out.stdout, "dead") || strings.Contains(out.stdout, running) {
		t.Errorf("status of a dead cluster: %s", said(out))
	}

	c.mustStart(t)
	s.awaitReady(2)
	s.checkSameLives(lives)
	s.checkSameClaims(claims)
	s.checkHeard("web-0")
	s.checkMarks(2)
	if now := names(s.revisions()); !slices.Equal(now, revisions) {
		t.Errorf("revisions are %v, were %v", now, revisions)
	}
	s.kubectl("delete", "pod", "web-1")
	s.awaitReady(2)
	s.checkMarks(2)
}

// A cluster that was stopped, and one of which everything was killed at once, come back with their sets, claims and data.
func TestDataSurvives(t *testing.T) {
	c := ownCluster(t)
	s := startedWithSet(t, c)
	for _, how := range []struct {
		name string
		end  func(t *testing.T)
	}{
		{"down", func(t *testing.T) {
			c.mustStop(t)
			if err := residue(t.Context()); err != nil {
				t.Errorf("after down: %v", err)
			}
		}},
		{"kill everything", func(t *testing.T) {
			killed := map[int]bool{}
			for range 3 { // pods have processes that are only seen once their parents are gone
				for _, p := range processes() {
					killed[p.pid] = true
					_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have died with another
				}
			}
			eventually(t, patience, "all is dead", func() error { return allDead(slices.Collect(maps.Keys(killed))) })
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			s := s.in(t)
			before, lives, claims := s.pods(), s.lives(), s.claims()
			how.end(t)
			c.mustStart(t)
			for name, pod := range s.pods() {
				if isReady(&pod) && lives[name] == life(pod) {
					t.Errorf("%s is told to be ready, and has not been started yet", name)
				}
			}
			s.awaitReady(2)
			for name, pod := range s.pods() {
				if pod.UID != before[name].UID {
					t.Errorf("%s is another pod than before", name)
				}
			}
			s.checkSameClaims(claims)
			s.checkMarks(2)
		})
	}
}

// Ctrl-C during the start ends it soon, whenever it comes, and leaves nothing behind that hinders the next start.
func TestInterruptedStart(t *testing.T) {
	c := ownCluster(t)
	seed := seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	began := time.Now()
	c.mustStart(t)
	whole := time.Since(began)
	c.mustStop(t)
	for range 5 {
		moment := time.Duration(random.Int64N(int64(whole)))
		args := []string{"up", "--api-port", strconv.Itoa(c.port)}
		if random.IntN(2) == 0 {
			args = append(args, "--detach")
		}
		if random.IntN(2) == 0 { // a first start; else one on what was left half-made
			if err := c.run(t.Context(), "down", "--purge", "--yes").err(); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(fmt.Sprintf("%s after %v", args[len(args)-1], moment.Round(time.Millisecond)), func(t *testing.T) {
			interrupt(t, c.command(t.Context(), args...), moment)
			c.mustStop(t) // if it was ready before the moment came, it is up
			if err := residue(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	// So does kill -9.
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(whole))))
	defer cancel()
	t.Logf("killed: %v", c.run(ctx, "up", "--api-port", strconv.Itoa(c.port)).err())
	c.mustStart(t)
}

// interrupt runs a command that starts a cluster, and presses Ctrl-C at a moment.
func interrupt(t *testing.T, cmd *exec.Cmd, moment time.Duration) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does it
	var said follower
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state tells
		close(exited)
	}()
	select {
	case <-exited:
		if !cmd.ProcessState.Success() || !strings.Contains(said.said(), "ready. Go on with") {
			t.Fatalf("it ended by itself: %v\n%s", cmd.ProcessState, said.said())
		}
		t.Log("it was ready before")
		return
	case <-time.After(moment):
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	pressed := time.Now()
	select {
	case <-exited:
		t.Logf("ended %v after Ctrl-C with %v:\n%s", time.Since(pressed).Round(time.Millisecond), cmd.ProcessState, said.said())
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatalf("it runs 30 s after Ctrl-C:\n%s", said.said())
	}
	if !cmd.ProcessState.Exited() && said.said() != "" { // before its first word, nothing is there to be put in order
		t.Errorf("it did not end in order: %v", cmd.ProcessState)
	}
	if strings.Contains(said.said(), "panic") || strings.Contains(said.said(), "goroutine ") {
		t.Error("it panicked")
	}
	if left := describe(processes()); len(left) > 0 {
		t.Errorf("it left running: %v", left)
	}
}

// seed is the seed of random choices: given by ORDINAL_E2E_SEED, or new for each run.
func seed(t *testing.T) uint64 {
	t.Helper()
	value := rand.Uint64()
	if given := os.Getenv("ORDINAL_E2E_SEED"); given != "" {
		var err error
		if value, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ORDINAL_E2E_SEED=%d", value)
	return value
}

// startedWithSet starts a cluster with a set of two whose volumes are marked.
func startedWithSet(t *testing.T, c *cluster) *space {
	t.Helper()
	c.mustStart(t)
	if err := c.importImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t, c)
	s.webOf(2)
	s.mark(2)
	return s
}

// parentOf is the process that started another.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-o", "ppid=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	parent, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || parent <= 1 {
		t.Fatalf("the parent of %d is %q: %v", pid, out, err)
	}
	return parent
}
