// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package component

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
	// frugalPeriod is how often a component looks whether it has work.
	frugalPeriod = 20 * time.Second
	// busyCollections is how many garbage collections in one period mean work.
	busyCollections = 4
	// busyPercent and idlePercent are how far the heap may grow between collections, in percent of what lives. While a
	// component works, collecting costs time; while it idles, garbage costs memory.
	busyPercent = 100
	idlePercent = 15
)

// beFrugal gives memory back to the system while this process has little to do. It never returns.
func beFrugal() {
	last, idle := collections(), false
	for range time.Tick(frugalPeriod) {
		now := collections()
		switch calm := now-last < busyCollections; {
		case calm && !idle:
			idle = true
			debug.SetGCPercent(idlePercent)
			debug.FreeOSMemory()
			dropProgram()
		case !calm && idle:
			idle = false
			debug.SetGCPercent(busyPercent)
		}
		last = collections()
	}
}

func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}}
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
