// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is the unit in which /proc counts CPU time.
const tick = 10 * time.Millisecond

// process is what /proc tells about one.
type process struct {
	parent  int
	command string
	// memory is the proportional set size in bytes: memory shared by several processes counts in parts.
	memory int64
	// cpu is the time used, by it and by its children that have ended.
	cpu time.Duration
}

// part is a part of the cluster, which may be several processes.
type part struct {
	name   string
	count  int
	memory int64
	cpu    time.Duration
}

// processes reads all processes of the machine. One that ends meanwhile is left out.
func processes(proc fs.FS) (map[int]process, error) {
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return nil, err
	}
	found := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := readProcess(proc, e.Name()); err == nil {
			found[pid] = p
		}
	}
	return found, nil
}

func readProcess(proc fs.FS, pid string) (process, error) {
	stat, err := fs.ReadFile(proc, pid+"/stat")
	if err != nil {
		return process{}, err
	}
	p, err := parseStat(string(stat))
	if err != nil {
		return process{}, err
	}
	command, err := fs.ReadFile(proc, pid+"/cmdline")
	if err != nil {
		return process{}, err
	}
	p.command = strings.TrimRight(strings.ReplaceAll(string(command), "\x00", " "), " ")
	// A kernel thread has no memory of its own.
	if rollup, err := fs.ReadFile(proc, pid+"/smaps_rollup"); err == nil {
		p.memory = parsePSS(string(rollup))
	}
	return p, nil
}

// parseStat reads a line of /proc/PID/stat, whose second field, in brackets, may hold anything.
func parseStat(line string) (process, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 15 {
		return process{}, fmt.Errorf("unexpected process status %q", line)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return process{}, err
	}
	var ticks int64
	for _, f := range fields[11:15] { // own user and system time, then that of ended children
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return process{}, err
		}
		ticks += n
	}
	return process{parent: parent, cpu: time.Duration(ticks) * tick}, nil
}

func parsePSS(rollup string) int64 {
	for line := range strings.Lines(rollup) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// parts adds up, for each part of the cluster, the memory after a time and the CPU used in it, the largest first.
func parts(names map[int]string, before, after map[int]process) []part {
	sums := map[string]part{}
	for pid, p := range after {
		name := partOf(pid, names, after)
		if name == "" {
			continue
		}
		sum := sums[name]
		sum.name = name
		sum.count++
		sum.memory += p.memory
		sum.cpu += p.cpu
		if earlier, found := before[pid]; found {
			sum.cpu -= earlier.cpu
		}
		sums[name] = sum
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b part) int {
		return cmp.Or(cmp.Compare(b.memory, a.memory), cmp.Compare(a.name, b.name))
	})
}

// partOf finds what a process belongs to, by the closest of itself and its ancestors that is known: a component, or a shim,
// which holds a pod and has no component as its parent. It is "" for what is not the cluster's.
func partOf(pid int, names map[int]string, all map[int]process) string {
	inPod := false
	for steps := 0; pid > 1 && steps < len(all); steps++ {
		if name, found := names[pid]; found {
			return name
		}
		p, found := all[pid]
		switch {
		case !found:
			return ""
		case !isShim(p):
		case inPod:
			return "pods"
		default:
			return "containerd-shim"
		}
		inPod = true
		pid = p.parent
	}
	return ""
}

func isShim(p process) bool {
	return strings.Contains(p.command, "/containerd-shim-runc-v2 ") && strings.Contains(p.command, " /run/ordinal/")
}
