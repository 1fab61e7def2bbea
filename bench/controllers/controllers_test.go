// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// line is one of the audit log, so many milliseconds after the beginning.
func line(stage, verb, resource, name string, code, at int) string {
	resource, subresource, _ := strings.Cut(resource, "/")
	return fmt.Sprintf(`{"stage":%q,"verb":%q,"user":{"username":"ordinal"},"objectRef":{"resource":%q,"subresource":%q,"namespace":"n","name":%q},`+
		`"responseStatus":{"code":%d},"requestReceivedTimestamp":%q}`+"\n", stage, verb, resource, subresource, name, code, moment(at).Format(time.RFC3339Nano))
}

func moment(milliseconds int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, milliseconds*int(time.Millisecond), time.UTC)
}

func requestsOf(t *testing.T, lines ...string) []request {
	t.Helper()
	all, err := parseRequests([]byte(strings.Join(lines, "")))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Each request counts once, whatever lines are written about it; events and refused writes are counted by themselves.
func TestRequestsAreCounted(t *testing.T) {
	r := &result{}
	r.countRequests(requestsOf(t,
		line(stageStarted, "watch", "pods", "", 200, 0),
		line(stageComplete, "watch", "pods", "", 200, 9),
		line(stageComplete, "list", "pods", "", 200, 1),
		line(stageComplete, "create", "pods", "db-0", 201, 2),
		line(stageComplete, "create", "persistentvolumeclaims", "data-db-0", 201, 2),
		line(stageComplete, "update", "statefulsets/status", "db", 409, 3),
		line(stageComplete, "create", "events", "db.1", 201, 4),
	))
	if got := fmt.Sprint(r.Reads, r.Writes, r.PodWrites, r.Refused, r.EventWrites); got != "2 3 2 1 1" {
		t.Errorf("reads, writes, those of pods, refused ones and events are %s", got)
	}
	if len(r.Requests) != 6 || r.Requests["update statefulsets/status 409"] != 1 || r.Requests["watch pods 200"] != 1 {
		t.Errorf("requests are %v", r.Requests)
	}
}

// A request counts for as long as the API server worked on it, within the time that is looked at; a watch does not.
func TestInFlight(t *testing.T) {
	served := func(verb string, from, to int) request {
		return request{Verb: verb, Received: moment(from), Answered: moment(to)}
	}
	requests := []request{
		served("create", 0, 30), served("update", 20, 30), served("patch", 95, 150), served("get", 120, 130), served("create", -20, -5), served("watch", 0, 100),
	}
	if got := inFlight(requests, moment(10), moment(100)); math.Abs(got-(20+10+5)/90.0) > 1e-9 {
		t.Errorf("%v are in flight", got)
	}
}

// A log that is still being written is read up to its last whole line, and from there on the next time.
func TestAuditLogIsTakenInParts(t *testing.T) {
	log := &auditLog{path: t.TempDir() + "/audit.log"}
	first, second := line(stageComplete, "create", "pods", "db-0", 201, 0), line(stageComplete, "create", "pods", "db-1", 201, 1)
	for _, step := range []struct {
		content string
		want    int
	}{{first + second[:20], 1}, {first + second, 1}, {first + second, 0}} {
		if err := os.WriteFile(log.path, []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := log.take(); err != nil || len(got) != step.want {
			t.Errorf("of %d bytes %d requests are taken, not %d: %v", len(step.content), len(got), step.want, err)
		}
	}
}

// Latency is counted from the first knowledge of a pod's readiness, to any write for the set and to the one that had to wait.
func TestLatencies(t *testing.T) {
	ready := []readiness{
		{pod: types.NamespacedName{Namespace: "n", Name: "db-0"}, asked: moment(10), known: moment(12)},
		{pod: types.NamespacedName{Namespace: "n", Name: "db-1"}, asked: moment(40), known: moment(50)},
	}
	requests := requestsOf(t,
		line(stageComplete, "create", "pods", "db-0", 201, 0),
		line(stageComplete, "create", "pods", "other-1", 201, 13),
		line(stageComplete, "patch", "statefulsets/status", "db", 409, 14),
		line(stageComplete, "create", "persistentvolumeclaims", "data-db-1", 201, 15),
		line(stageComplete, "create", "pods", "db-1", 201, 20),
		line(stageComplete, "create", "pods", "db-2", 201, 45),
	)
	write, step := latencies(ready, requests, nextCreation)
	if want := (latency{Count: 2, P50: 3, P99: 3}); write != want {
		t.Errorf("to the next write: %+v, not %+v", write, want)
	}
	if want := (latency{Count: 2, P50: 8, P99: 8}); step != want {
		t.Errorf("to the next pod's turn: %+v, not %+v", step, want)
	}
	if _, step := latencies(ready, requests, nil); step.Count != 0 {
		t.Errorf("without a step: %+v", step)
	}
}

func TestQuantiles(t *testing.T) {
	var times []time.Duration
	for n := range 101 {
		times = append(times, time.Duration(100-n)*time.Millisecond)
	}
	if got, want := latencyOf(times), (latency{Count: 101, P50: 50, P99: 99}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}

func TestProcessFiles(t *testing.T) {
	stat := "7 (a (b) c) S 1 1 1 0 -1 4194560 1 2 3 4 30 12 500 600 20 0 1 0 9"
	if got, err := parseStat(stat); err != nil || got != 420*time.Millisecond {
		t.Errorf("CPU time is %s, %v", got, err)
	}
	if _, err := parseStat("7 (a) S 1"); err == nil {
		t.Error("a short line is no error")
	}
	rollup := "00400000-7fff [rollup]\nRss: 9999 kB\nPss:  12 kB\nPss_Anon: 8 kB\n"
	if all, own := kib(rollup, "Pss"), kib(rollup, "Pss_Anon"); all != 12<<10 || own != 8<<10 {
		t.Errorf("memory is %d, of it own %d", all, own)
	}
}

func TestWorkOfAContender(t *testing.T) {
	metrics := `# TYPE workqueue_adds_total counter
workqueue_adds_total{name="other"} 9
workqueue_adds_total{name="statefulset"} 5
workqueue_work_duration_seconds_count{name="statefulset"} 4
workqueue_work_duration_seconds_sum{name="statefulset"} 2.5e-03
`
	if got, err := parseWork(strings.NewReader(metrics)); err != nil || got != (work{adds: 5, syncs: 4, seconds: 0.0025}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// settled is a set of one with its pod and its claim, as it should be.
func settled() world {
	set := appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "u", Generation: 2},
		Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(1))},
		Status: appsv1.StatefulSetStatus{
			ObservedGeneration: 2, Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, CurrentReplicas: 1, UpdatedReplicas: 1,
			CurrentRevision: "db-2", UpdateRevision: "db-2",
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db-0", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "db-2"},
			OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: new(true)}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	return world{sets: []appsv1.StatefulSet{set}, pods: map[string]*corev1.Pod{"db-0": pod}, claims: map[string]bool{"data-db-0": true}}
}

func TestEndStateIsChecked(t *testing.T) {
	f := fleet{sets: 1, replicas: 1, claims: true}
	if err := settled().check(f); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*world){
		"a set is missing":       func(w *world) { w.sets = nil },
		"a counter is wrong":     func(w *world) { w.sets[0].Status.UpdatedReplicas = 0 },
		"a generation is new":    func(w *world) { w.sets[0].Generation = 3 },
		"an update is under way": func(w *world) { w.sets[0].Status.CurrentRevision = "db-1" },
		"a pod is missing":       func(w *world) { delete(w.pods, "db-0") },
		"a pod is too much":      func(w *world) { w.pods["db-1"] = w.pods["db-0"] },
		"a pod is not ready":     func(w *world) { w.pods["db-0"].Status.Conditions = nil },
		"a pod goes":             func(w *world) { w.pods["db-0"].DeletionTimestamp = new(metav1.Now()) },
		"a pod is outdated":      func(w *world) { w.pods["db-0"].Labels[appsv1.ControllerRevisionHashLabelKey] = "db-1" },
		"a pod is a stranger's":  func(w *world) { w.pods["db-0"].OwnerReferences = nil },
		"a claim is missing":     func(w *world) { clear(w.claims) },
	} {
		w := settled()
		spoil(&w)
		if w.check(f) == nil {
			t.Errorf("%s, and nobody minds", name)
		}
	}
}

// three rounds in which we take a half, a quarter and all of the incumbent's CPU, and make no write at rest.
func results() []*result {
	var all []*result
	for round, cpu := range []float64{5, 2.5, 10} {
		for _, scenario := range []string{ordered, atRest} {
			base := result{Scenario: scenario, Limits: unlimited, Round: round + 1, Sets: 2, Pods: 6, Seconds: 10}
			theirs, own := base, base
			theirs.Contender, theirs.CPUSeconds, theirs.PodWrites, theirs.SettledBytes = incumbent, 10, 12, 100
			own.Contender, own.CPUSeconds, own.PodWrites, own.SettledBytes = ours, cpu, 6, 40
			all = append(all, &own, &theirs)
		}
	}
	return all
}

func TestComparison(t *testing.T) {
	c, found := find(compare(results()), ordered, figureCPU)
	if !found || c.Rounds != 3 || c.Incumbent != 10 || c.Ours != 5 || *c.Ratio != 0.5 || *c.Least != 0.25 || *c.Most != 1 {
		t.Errorf("CPU compares as %+v", c)
	}
	if c, found := find(compare(results()), atRest, figureWrites); !found || c.Ratio != nil {
		t.Errorf("where there are no writes, they compare as %+v", c)
	}
	if _, found := find(compare(results()), atRest, figureWall); found {
		t.Error("the time at rest is compared")
	}
	if _, found := find(compare(results()), atRest, "sync-cpu"); found {
		t.Error("what a sync costs is compared where there are none")
	}
	lonely := compare(results()[:1])
	if len(lonely) > 0 {
		t.Errorf("one contender alone is compared: %+v", lonely)
	}
}

func TestReport(t *testing.T) {
	var b strings.Builder
	r := &report{Machine: "a machine", Load: "0.1", Scale: 1, Workers: 5, Results: results()}
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	r.Results[1].Requests = map[string]int{"create pods 201": 6}
	file := t.TempDir() + "/bench.json"
	if err := r.writeJSON(file); err != nil {
		t.Fatal(err)
	}
	var kept struct {
		Results     []result     `json:"results"`
		Comparisons []comparison `json:"comparisons"`
	}
	content, err := os.ReadFile(file)
	if err := errors.Join(err, json.Unmarshal(content, &kept)); err != nil {
		t.Fatal(err)
	}
	if c, found := find(kept.Comparisons, ordered, figureCPU); !found || *c.Ratio != 0.5 || kept.Results[1].Requests["create pods 201"] != 6 {
		t.Errorf("the file holds %s", content)
	}
	for _, row := range []string{
		"| CPU, ordered bring-up | 0.400 | 0.500 | **no** |",
		"| writes at rest | 0 | 0 | yes |",
		"| CPU at rest, % of a core | 0.500 | 50.0 | **no** |",
		"| CPU, s | 10.0 | 5.00 | 0.500 | 0.250 – 1.00 |",
		"| writes of pods and sets per pod | 2.00 | 1.00 | 0.500 | 0.500 – 0.500 |",
	} {
		if !strings.Contains(b.String(), row+"\n") {
			t.Errorf("there is no row %s in\n%s", row, b.String())
		}
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	picture := plot(compare(results()))
	if n := strings.Count(picture, "<rect x="); n != 5 {
		t.Errorf("there are %d bars, not time, CPU and memory of one scenario and CPU and memory of the other:\n%s", n, picture)
	}
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The work grows with the scale, and none of it is left out because the scale is small.
func TestStagesScale(t *testing.T) {
	s := sizes{ordered: 1000, parallelSets: 10, parallelPods: 1000, single: 300, rolling: 500, paced: 100, update: 200, settled: 2000}
	full := map[string]int{}
	for _, stage := range stages(s, 1, unlimited) {
		full[stage.name] = stage.fleet.pods()
	}
	for name, want := range map[string]int{ordered: 3000, parallel: 10000, single: 300, rolling: 1500, tenth: 300, restart: 6000} {
		if full[name] != want {
			t.Errorf("%s has %d pods, not %d", name, full[name], want)
		}
	}
	for _, stage := range stages(s, 0.0001, unlimited) {
		if stage.fleet.pods() == 0 {
			t.Errorf("%s is left out", stage.name)
		}
	}
}
