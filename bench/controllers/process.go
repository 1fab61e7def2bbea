// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit in which /proc counts CPU time.
const tick = 10 * time.Millisecond

// memory is what a process holds, in bytes.
type memory struct {
	// peak is the most that was resident.
	peak int64
	// all is the proportional set size; own is the part of it that no file backs.
	all, own int64
}

// traffic is what a process has read and written, sockets included, in bytes.
type traffic struct {
	in, out int64
}

func procFile(pid int, name string) (string, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	return string(content), err
}

// cpuOf is the CPU time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := procFile(pid, "stat")
	if err != nil {
		return 0, err
	}
	return parseStat(stat)
}

// parseStat reads a line of /proc/PID/stat, whose second field, in brackets, may hold anything.
func parseStat(line string) (time.Duration, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected process status %q", line)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err
}

// forgetPeak makes the peak of a process' memory begin anew.
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

func memoryOf(pid int) (memory, error) {
	status, err := procFile(pid, "status")
	if err != nil {
		return memory{}, err
	}
	rollup, err := procFile(pid, "smaps_rollup")
	if err != nil {
		return memory{}, err
	}
	return memory{peak: kib(status, "VmHWM"), all: kib(rollup, "Pss"), own: kib(rollup, "Pss_Anon")}, nil
}

func trafficOf(pid int) (traffic, error) {
	io, err := procFile(pid, "io")
	if err != nil {
		return traffic{}, err
	}
	return traffic{in: number(io, "rchar"), out: number(io, "wchar")}, nil
}

// kib is the value of a line such as "Pss:  12 kB" in bytes.
func kib(content, name string) int64 { return number(content, name) << 10 }

// number is the first number of the line that begins with a name and a colon; 0 if there is none.
func number(content, name string) int64 {
	for line := range strings.Lines(content) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			var n int64
			_, _ = fmt.Sscan(value, &n)
			return n
		}
	}
	return 0
}
