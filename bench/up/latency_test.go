// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

func pod(name string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

// The first moment counts, whatever is seen later, and the first pod of a set waits for nobody.
func TestTurn(t *testing.T) {
	began, seen := time.Now(), sightings{}
	for _, event := range []struct {
		at    int
		name  string
		ready corev1.ConditionStatus
	}{
		{10, "db-0-0", corev1.ConditionFalse},
		{12, "db-1-0", corev1.ConditionFalse},
		{100, "db-0-0", corev1.ConditionTrue},
		{110, "db-0-1", corev1.ConditionFalse},
		{150, "db-0-0", corev1.ConditionFalse},
		{200, "db-1-0", corev1.ConditionTrue},
		{205, "db-1-1", corev1.ConditionFalse},
		{300, "db-0-1", corev1.ConditionTrue},
		{310, "db-0-1", corev1.ConditionTrue},
	} {
		seen.see(pod(event.name, event.ready), began.Add(time.Duration(event.at)*time.Millisecond))
	}
	if n := seen.ready(); n != 3 {
		t.Errorf("%d pods are ready, want 3", n)
	}
	seen.see(pod("db-1-1", corev1.ConditionTrue), began.Add(600*time.Millisecond))
	if last := seen.last().Sub(began); last != 600*time.Millisecond {
		t.Errorf("the last pod is ready after %s", last)
	}
	got := turnOf(shape{Sets: 2, Replicas: 2}, seen, "db")
	if want := []float64{10, 5}; !slices.Equal(got.Made, want) {
		t.Errorf("next pods are made after %v, want %v", got.Made, want)
	}
	if want := []float64{200, 400}; !slices.Equal(got.Ready, want) {
		t.Errorf("next pods are ready after %v, want %v", got.Ready, want)
	}
}

func TestSpread(t *testing.T) {
	var hundred []float64
	for n := range 101 {
		hundred = append(hundred, float64(100-n))
	}
	if got, want := spreadOf(hundred), (spread{101, 50, 99, 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := spreadOf(nil); got != (spread{}) {
		t.Errorf("of nothing the spread is %+v", got)
	}
}

// Ratios are those of a round; a round that one of the contenders has not ended is left out.
func TestLatencyReport(t *testing.T) {
	small := shapes()[0]
	turnIn := func(round int, who string, made float64) turn {
		return turn{shape: small, Contender: who, Round: round, Seconds: made, Made: []float64{made, made, 10 * made}, Ready: []float64{100}}
	}
	r := &latencyReport{Machine: "a machine", Load: "0.10", Rounds: 4, Turns: []turn{
		turnIn(1, incumbent, 10), turnIn(1, ours, 5),
		turnIn(2, ours, 9), turnIn(2, incumbent, 10),
		turnIn(3, incumbent, 100), turnIn(3, ours, 20),
		turnIn(4, ours, 1000),
	}}
	got := r.compare()[0]
	want := compared{
		shape: small, Title: got.Title, Incumbent: spread{9, 100, 1000, 1000}, Ours: spread{9, 20, 200, 200}, Ratio: 0.5, Least: 0.2, Most: 0.9,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"on a machine; load average before: 0.10. Rounds: 4.",
		"| 1 × 10 pods in order: p50, p99, most | kube-controller-manager | Ordinal |",
		"| pod ready → next pod made, ms | 100.0, 1000.0, 1000.0 | 20.0, 200.0, 200.0 | 0.50 | 0.20 – 0.90 |",
		"| first request → all pods ready, s | 10.0, 100.0, 100.0 | 9.0, 20.0, 20.0 | 0.50 | 0.20 – 0.90 |",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in:\n%s", line, out.String())
		}
	}
	file := filepath.Join(t.TempDir(), "latency.json")
	if err := r.writeJSON(file); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Turns       []turn
		Comparisons []compared
	}
	if err := json.Unmarshal(content, &read); err != nil || len(read.Turns) != 7 || read.Comparisons[0] != want {
		t.Errorf("the file says %s, %v", content, err)
	}
}

// A turn whose pods were made by somebody else is worth nothing.
func TestCheckWriter(t *testing.T) {
	made := pod("db-0-0", corev1.ConditionTrue)
	made.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "ordinal"}, {Manager: "kubelet", Subresource: "status"}}
	c := &contest{client: fake.NewClientset(made), contenders: map[string]supervise.Process{ours: {Path: "bin/ordinal"}, incumbent: {Path: "kubelet"}}}
	if err := c.checkWriter(t.Context(), "n", ours); err != nil {
		t.Error(err)
	}
	if err := c.checkWriter(t.Context(), "n", incumbent); err == nil {
		t.Error("who has only written the status has made the pod")
	}
}

// The cluster's own controller does nothing any more once it counts as frozen.
func TestFreeze(t *testing.T) {
	pid := idler(t)
	if err := freeze(t.Context(), pid); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(t, pid); !strings.HasPrefix(state, "T") {
		t.Errorf("the process is in the state %.1s", state)
	}
}

// idler starts a process that does nothing until the end of the test, even if it is frozen then.
func idler(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// How it ends does not matter.
		_ = input.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func stateOf(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest
}
