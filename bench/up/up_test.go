// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proc is a machine with two components, a shim with a pod, and a stranger.
func proc(ticks int) fstest.MapFS {
	files := fstest.MapFS{"uptime": {Data: []byte("1 1")}}
	add := func(pid, parent int, command string, kib, ticks int) {
		dir := fmt.Sprintf("%d/", pid)
		stat := fmt.Sprintf("%d (a (b) c) S %d 1 1 0 -1 4194560 1 2 3 4 %d %d %d %d 20 0 1 0 9", pid, parent, ticks, ticks, ticks, ticks)
		files[dir+"stat"] = &fstest.MapFile{Data: []byte(stat)}
		files[dir+"cmdline"] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(command, " ", "\x00") + "\x00")}
		files[dir+"smaps_rollup"] = &fstest.MapFile{Data: fmt.Appendf(nil, "00400000-7fff [rollup]\nRss: 9999 kB\nPss:  %d kB\nPss_Dirty: 1 kB\n", kib)}
	}
	add(1, 0, "/sbin/init", 100, 1000)
	add(10, 1, "/opt/ordinal up", 10, ticks)
	add(11, 10, "/opt/ordinal component kubelet", 20, ticks)
	add(12, 11, "/bin/mount x", 1, 0)
	add(13, 10, "/opt/containerd --config=x", 30, ticks)
	add(20, 1, "/opt/containerd-shim-runc-v2 -namespace k8s.io -address /run/ordinal/containerd.sock", 5, ticks)
	add(21, 20, "/pause", 2, 0)
	add(22, 20, "/visits", 3, ticks)
	add(30, 1, "/usr/bin/containerd-shim-runc-v2 -namespace moby -address /run/containerd/containerd.sock", 50, ticks)
	add(31, 30, "/web", 60, ticks)
	return files
}

func TestParts(t *testing.T) {
	before, err := processes(proc(100))
	if err != nil {
		t.Fatal(err)
	}
	after, err := processes(proc(150))
	if err != nil {
		t.Fatal(err)
	}
	names := map[int]string{10: "supervisor", 11: "kubelet", 13: "containerd"}

	got := parts(names, before, after)

	// Fifty ticks more in each of four fields.
	const used = 2 * time.Second
	want := []part{
		{"containerd", 1, 30 << 10, used},
		{"kubelet", 2, 21 << 10, used},
		{"supervisor", 1, 10 << 10, used},
		{"containerd-shim", 1, 5 << 10, used},
		{"pods", 2, 5 << 10, used},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestProcessesOfThisMachine(t *testing.T) {
	all, err := processes(os.DirFS("/proc"))
	if err != nil {
		t.Fatal(err)
	}
	self := all[os.Getpid()]
	if self.parent != os.Getppid() || self.memory == 0 || !strings.HasPrefix(self.command, os.Args[0]) {
		t.Errorf("this process is read as %+v", self)
	}
}

func TestMedianTakesEachStageByItself(t *testing.T) {
	got := median([]stages{
		{1, 20, 3, 40, 5},
		{10, 2, 30, 4, 50},
		{5, 5, 5, 5, 5},
	})
	if want := (stages{5, 5, 5, 5, 5}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A pod's status outlives its containers: what an earlier start has said does not count.
func TestReadySince(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name    string
		ready   corev1.ConditionStatus
		started time.Time
		want    bool
	}{
		{"ready in a new container", corev1.ConditionTrue, began.Add(time.Second), true},
		{"ready in an old container", corev1.ConditionTrue, began.Add(-time.Second), false},
		{"not ready", corev1.ConditionFalse, began.Add(time.Second), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: tt.ready}},
				ContainerStatuses: []corev1.ContainerStatus{{
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(tt.started)}},
				}},
			}}
			if got := readySince(p, began); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	m := &measurement{
		machine: "a machine", load: "0.10", idle: 100 * time.Second,
		first: stages{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second},
		parts: []part{{"etcd", 1, 50e6, time.Second}, {"pods", 3, 7e6, 500 * time.Millisecond}},
	}
	var out strings.Builder
	if err := m.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"on a machine; load average before: 0.10.",
		"| the API answers | 1.0 s | 0.0 s | 0.0 s |",
		"| idle for 1m40s with that set |",
		"| etcd | 1 | 50 MB | 1.00 % |",
		"| **in all** | 4 | 57 MB | 1.50 % |",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in:\n%s", line, out.String())
		}
	}
}
