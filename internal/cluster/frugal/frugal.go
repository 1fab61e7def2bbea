// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package frugal makes a process give memory back to the system while it has little to do.
package frugal

import (
	"bufio"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// period is how often a process looks whether it has work.
	period = 20 * time.Second
	// busyRate is how much a process allocates while it works, in bytes per second. An idle API server allocates a tenth.
	busyRate = 4 << 20
	// StartPercent is how far the heap should grow between collections at the start, in percent of what lives: garbage would
	// scatter what stays over many pages.
	StartPercent = 25
	// busyPercent is the same while a process works, and collecting costs time; idlePercent while it idles, and garbage costs
	// memory.
	busyPercent = 100
	idlePercent = 15
)

// Run watches this process and never returns. It begins with the collector as it is; start a process with
// GOGC=StartPercent.
func Run() {
	last, idle := allocated(), false
	for range time.Tick(period) {
		now := allocated()
		switch calm := now-last < busyRate*uint64(period/time.Second); {
		case calm && !idle:
			idle = true
			debug.SetGCPercent(idlePercent)
			debug.FreeOSMemory()
			dropProgram()
		case !calm:
			idle = false
			debug.SetGCPercent(busyPercent)
		}
		last = now
	}
}

// allocated is how many bytes this process has allocated in its life.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// dropProgram lets go of the pages of the program itself. Those that are in use come back at once out of the page cache;
// what only the start needed, most of a large program, stays away.
func dropProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// 00400000-04ac2000 r-xp 00000000 fe:00 1234   /path: only what cannot have been written to may be dropped.
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[5] != program || fields[1][1] == 'w' {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, errBegin := strconv.ParseUint(from, 16, 64)
		end, errEnd := strconv.ParseUint(to, 16, 64)
		if errBegin != nil || errEnd != nil {
			continue
		}
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED)
	}
}
