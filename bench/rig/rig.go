// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rig is what the benchmarks share: the machine they run on, their progress, their pauses, and the logs of what they start.
package rig

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Progress tells on standard error what is done now, so that standard output holds the tables alone.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Pause waits, unless ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Machine names what the numbers depend on.
func Machine() string {
	model := field("/proc/cpuinfo", "model name")
	if model == "" {
		model = runtime.GOARCH
	}
	var kib float64
	_, _ = fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kib)
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d cores, %.0f GB of memory, Linux %s", model, runtime.NumCPU(), kib*1024/1e9, strings.TrimSpace(string(release)))
}

// field is the value of the first line of a file that begins with a name and a colon.
func field(file, name string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// LoadAverage is that of the last minute, so that a table from a busy machine shows that it is one.
func LoadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	load, _, _ := strings.Cut(string(content), " ")
	return load
}

// LogFile is where a process logs to. It is opened at the first write.
type LogFile struct {
	Path string
	file *os.File
}

// Write writes to the end of the file.
func (l *LogFile) Write(b []byte) (int, error) {
	if l.file == nil {
		file, err := os.OpenFile(l.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	return l.file.Write(b)
}
