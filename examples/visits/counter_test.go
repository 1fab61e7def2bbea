// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// crashDir names, for the test binary run as a child, the directory in which to count until it is killed.
const crashDir = "VISITS_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		countForever(dir)
	}
	os.Exit(m.Run())
}

// countForever says each number once it is counted.
func countForever(dir string) {
	for c := open(dir); ; {
		n, err := c.add()
		if err != nil {
			panic(err)
		}
		fmt.Println(n)
	}
}

func open(dir string) *counter {
	c, err := newCounter(dir)
	if err != nil {
		panic(err)
	}
	return c
}

// value is what a counter started anew in the directory says.
func value(t *testing.T, dir string) uint64 {
	t.Helper()
	n, err := open(dir).value()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCounterGoesOnWhereItWas(t *testing.T) {
	dir := t.TempDir()
	for want := range uint64(3) {
		if got := value(t, dir); got != want {
			t.Fatalf("value = %d, want %d", got, want)
		}
		if got, err := open(dir).add(); err != nil || got != want+1 {
			t.Fatalf("add = %d, %v, want %d", got, err, want+1)
		}
	}
}

func TestCounterCountsEveryone(t *testing.T) {
	dir := t.TempDir()
	c := open(dir)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if _, err := c.add(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := value(t, dir); got != 40 {
		t.Errorf("value = %d, want 40", got)
	}
}

// No number that was said is lost when the process is killed at any moment, and the file is never half written.
func TestCounterOutlivesKill(t *testing.T) {
	dir := t.TempDir()
	var said uint64
	for round := range 10 {
		for _, line := range killAfter(t, dir, 1+round*3) {
			n, err := strconv.ParseUint(line, 10, 64)
			if err != nil || n != said+1 {
				t.Fatalf("round %d: the child said %q after %d", round, line, said)
			}
			said = n
		}
		// The last one may have been counted and not said.
		got := value(t, dir)
		if got != said && got != said+1 {
			t.Fatalf("round %d: value = %d, want %d or one more", round, got, said)
		}
		said = got
	}
}

// killAfter lets a child count in dir, kills it after it has said some numbers, and gives all that it said.
func killAfter(t *testing.T, dir string, numbers int) []string {
	t.Helper()
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), crashDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for s := bufio.NewScanner(out); s.Scan(); {
		lines = append(lines, s.Text())
		if len(lines) == numbers {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = child.Wait()
	if len(lines) < numbers {
		t.Fatalf("the child ended by itself after %q", lines)
	}
	return lines
}

func TestCounterLeavesWhatItCannotReadAlone(t *testing.T) {
	for name, content := range map[string]string{
		"empty":    "",
		"words":    "seventeen\n",
		"negative": "-3\n",
		"too much": strings.Repeat("9", 30),
		"binary":   "\x00\xff\x00",
		"long":     strings.Repeat("x", 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "visits")
			if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := open(dir).add()
			if err == nil || !strings.Contains(err.Error(), file) || len(err.Error()) > 300 {
				t.Errorf("add: %v, want a short error that names %s", err, file)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != content {
				t.Errorf("the file has become %q, %v", got, err)
			}
		})
	}
}

func TestCounterKeepsItsNumberWhenItCannotWrite(t *testing.T) {
	dir := t.TempDir()
	if _, err := open(dir).add(); err != nil {
		t.Fatal(err)
	}
	// A directory in the place of the new file is as good as a full disk.
	if err := os.Mkdir(filepath.Join(dir, "visits.next"), 0o755); err != nil {
		t.Fatal(err)
	}
	if n, err := open(dir).add(); err == nil {
		t.Errorf("add = %d, want an error", n)
	}
	if got := value(t, dir); got != 1 {
		t.Errorf("value = %d, want 1", got)
	}
}

func TestCounterOverwritesWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "visits.next"), []byte("12345 and a half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := value(t, dir); got != 0 {
		t.Errorf("value = %d, want 0", got)
	}
	if got, err := open(dir).add(); err != nil || got != 1 {
		t.Errorf("add = %d, %v, want 1", got, err)
	}
}

func TestCounterNeedsItsVolume(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, file + "-missing"} {
		if _, err := newCounter(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("newCounter(%s): %v, want an error that names it", dir, err)
		}
	}
}
