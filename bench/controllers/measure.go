// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/bench/rig"
)

// scenario is a piece of work that is measured.
type scenario struct {
	name string
	pods int
	act  func(context.Context) error
	// goal is where the sets have to come; without one the work is done when act is.
	goal goal
	sets []string
	// step gives the write that has to wait until a pod is ready; nil if there is none.
	step func(pod string) (verb, object string)
	// untilQuiet means that the work is done only with the last request.
	untilQuiet bool
}

// nextCreation is what a pod's readiness allows when a set comes up in order.
func nextCreation(pod string) (verb, object string) { return "create", neighbour(pod, 1) }

// nextDeletion is what a pod's readiness allows in a rolling update.
func nextDeletion(pod string) (verb, object string) { return "delete", neighbour(pod, -1) }

// neighbour is the name of the pod that is so many ordinals further on.
func neighbour(pod string, by int) string {
	set, n := setOf(pod)
	return fmt.Sprintf("%s-%d", set, n+by)
}

// setOf takes the name of a pod apart.
func setOf(pod string) (set string, n int) {
	at := strings.LastIndexByte(pod, '-')
	n, err := strconv.Atoi(pod[at+1:])
	if at < 0 || err != nil {
		return pod, 0
	}
	return pod[:at], n
}

// result is what a scenario cost a contender.
type result struct {
	Scenario  string `json:"scenario"`
	Contender string `json:"contender"`
	Limits    limits `json:"limits"`
	Round     int    `json:"round"`
	Sets      int    `json:"sets"`
	Pods      int    `json:"pods"`
	// Seconds is the time until the goal was reached. CPUSeconds are those that the contender had used once it had caught up,
	// StartCPUSeconds what it uses to start in an empty cluster, and ServerCPUSeconds what the API server used.
	Seconds          float64 `json:"seconds"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	StartCPUSeconds  float64 `json:"startCPUSeconds"`
	ServerCPUSeconds float64 `json:"serverCPUSeconds"`
	// PeakBytes is the most that was resident, SettledBytes the proportional set size after a while, OwnBytes the part of that
	// which no file backs.
	PeakBytes    int64 `json:"peakBytes"`
	SettledBytes int64 `json:"settledBytes"`
	OwnBytes     int64 `json:"ownBytes"`
	// Requests are counted by verb, resource and code. Writes are those that are neither reads nor about events.
	Requests map[string]int `json:"requests"`
	Writes   int            `json:"writes"`
	// PodWrites are the writes of pods and of sets, without claims and revisions.
	PodWrites    int   `json:"podWrites"`
	Reads        int   `json:"reads"`
	EventWrites  int   `json:"eventWrites"`
	Refused      int   `json:"refused"`
	BytesRead    int64 `json:"bytesRead"`
	BytesWritten int64 `json:"bytesWritten"`
	// InFlight is how many of the contender's requests the API server worked on at a time, on the average.
	InFlight float64 `json:"inFlight"`
	// Adds are the times that a set was put into the queue, Syncs those that it was worked on, for SyncSeconds in all.
	Adds        float64 `json:"adds"`
	Syncs       float64 `json:"syncs"`
	SyncSeconds float64 `json:"syncSeconds"`
	// NextWrite is the time from a pod's readiness to the next write for its set, NextStep that to the write which had to wait
	// for it.
	NextWrite latency `json:"nextWrite"`
	NextStep  latency `json:"nextStep"`
	// ActedSeconds is, after a restart, the time from the start of the process to the first write for the set that was changed.
	ActedSeconds float64 `json:"actedSeconds,omitempty"`
}

// latency is a distribution of times, in milliseconds.
type latency struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
}

func latencyOf(times []time.Duration) latency {
	if len(times) == 0 {
		return latency{}
	}
	slices.Sort(times)
	at := func(q float64) float64 {
		return float64(times[int(q*float64(len(times)-1)+0.5)].Microseconds()) / 1000
	}
	return latency{Count: len(times), P50: at(0.5), P99: at(0.99)}
}

// counters are what is read before and after.
type counters struct {
	cpu, server time.Duration
	traffic     traffic
	work        work
}

// count reads all of it. The metrics are asked for outside of what is counted: before the rest at the beginning, and after it
// at the end.
func (t *turn) count(ctx context.Context, atEnd bool) (counters, error) {
	var c counters
	var err error
	if !atEnd {
		if c.work, err = t.contender.scrape(ctx); err != nil {
			return c, err
		}
	}
	if c.cpu, err = cpuOf(t.contender.pid); err != nil {
		return c, err
	}
	if c.server, err = cpuOf(t.plane.serverPID()); err != nil {
		return c, err
	}
	if c.traffic, err = trafficOf(t.contender.pid); err != nil {
		return c, err
	}
	if atEnd {
		c.work, err = t.contender.scrape(ctx)
	}
	return c, err
}

// begin makes everything count from now on. A contender that is yet to be started counts from nothing.
func (t *turn) begin(ctx context.Context) (counters, error) {
	if _, err := t.plane.audit.take(); err != nil {
		return counters{}, err
	}
	t.kubelet.take()
	if t.contender == nil {
		server, err := cpuOf(t.plane.serverPID())
		return counters{server: server}, err
	}
	if err := forgetPeak(t.contender.pid); err != nil {
		return counters{}, err
	}
	return t.count(ctx, false)
}

// measure does a piece of work, adds what it cost to the report, and checks what came of it.
func (t *turn) measure(ctx context.Context, s scenario) error {
	before, err := t.begin(ctx)
	if err != nil {
		return err
	}
	if t.recording, err = t.record(ctx, s.name); err != nil {
		return err
	}
	began := time.Now()
	end, err := t.do(ctx, s)
	if err = errors.Join(err, t.recording.end(ctx)); err != nil {
		return err
	}
	after, err := t.count(ctx, true)
	if err != nil {
		return err
	}
	requests, err := t.plane.audit.take()
	if err != nil {
		return err
	}
	r := &result{
		Scenario: s.name, Contender: t.who, Limits: t.limits, Round: t.round, Sets: t.stage.fleet.sets, Pods: s.pods,
		StartCPUSeconds: t.started.Seconds(),
	}
	r.charge(before, after)
	r.countRequests(requests)
	if s.untilQuiet {
		end, r.ActedSeconds = lastOf(requests, end), firstFor(requests, s.sets[0], began).Seconds()
	}
	r.Seconds = end.Sub(began).Seconds()
	r.InFlight = inFlight(requests, began, end)
	r.NextWrite, r.NextStep = latencies(t.kubelet.take(), requests, s.step)
	if s.goal != nil {
		if err := rig.Pause(ctx, t.options.settle); err != nil {
			return err
		}
	}
	if err := t.weigh(r); err != nil {
		return err
	}
	if err := t.verify(ctx, r); err != nil {
		return err
	}
	t.report.Results = append(t.report.Results, r)
	rig.Progress("  %s: %.2f s, %.2f s of CPU (API server %.2f s), %d writes, %d events", s.name, r.Seconds, r.CPUSeconds, r.ServerCPUSeconds,
		r.Writes, r.EventWrites)
	return nil
}

// do carries out the work and gives the time at which it was done. It returns once the contender has caught up.
func (t *turn) do(ctx context.Context, s scenario) (time.Time, error) {
	if s.goal == nil {
		err := s.act(ctx)
		return time.Now(), err
	}
	e := t.watcher.expect(t.namespace, s.goal, s.sets...)
	if err := s.act(ctx); err != nil {
		return time.Time{}, err
	}
	end, err := t.watcher.wait(ctx, e, limit)
	if err != nil {
		return time.Time{}, err
	}
	return end, awaitQuiet(ctx, t.plane.audit, quiet)
}

func (r *result) charge(before, after counters) {
	r.CPUSeconds = (after.cpu - before.cpu).Seconds()
	r.ServerCPUSeconds = (after.server - before.server).Seconds()
	r.BytesRead = after.traffic.in - before.traffic.in
	r.BytesWritten = after.traffic.out - before.traffic.out
	r.Adds = after.work.adds - before.work.adds
	r.Syncs = after.work.syncs - before.work.syncs
	r.SyncSeconds = after.work.seconds - before.work.seconds
}

func (r *result) countRequests(requests []request) {
	r.Requests = map[string]int{}
	for _, q := range requests {
		r.Requests[fmt.Sprintf("%s %s %d", q.Verb, q.resource(), q.Response.Code)]++
		switch {
		case q.isEvent() && q.Verb != "watch":
			r.EventWrites++
		case q.isWrite():
			r.Writes++
		default:
			r.Reads++
		}
		if q.isWrite() && !q.took() {
			r.Refused++
		}
		if q.isWrite() && (q.Object.Resource == "pods" || q.Object.Resource == "statefulsets") {
			r.PodWrites++
		}
	}
}

// weigh reads the memory.
func (t *turn) weigh(r *result) error {
	m, err := memoryOf(t.contender.pid)
	r.PeakBytes, r.SettledBytes, r.OwnBytes = m.peak, m.all, m.own
	return err
}

// verify checks that the sets are as they have to be, and that the contender tells of its syncs.
func (t *turn) verify(ctx context.Context, r *result) error {
	if r.Scenario != atRest && r.Syncs == 0 {
		return fmt.Errorf("%s counts no syncs", t.who)
	}
	w, err := look(ctx, t.plane.client, t.namespace)
	if err != nil {
		return err
	}
	if err := w.check(t.stage.fleet); err != nil {
		return fmt.Errorf("after %s: %w", r.Scenario, err)
	}
	return nil
}

// lastOf is the time of the last request, or the time that is given if that is later.
func lastOf(requests []request, end time.Time) time.Time {
	for _, q := range requests {
		if q.Received.After(end) {
			end = q.Received
		}
	}
	return end
}

// firstFor is how long after a moment a pod of a set was made.
func firstFor(requests []request, set string, began time.Time) time.Duration {
	var first time.Duration
	for _, q := range requests {
		owner, _ := setOf(q.Object.Name)
		if at := q.Received.Sub(began); q.Verb == "create" && q.Object.Resource == "pods" && owner == set && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// setFor is the set that a write was made for; "" for those that are for none.
func setFor(q request) types.NamespacedName {
	key := types.NamespacedName{Namespace: q.Object.Namespace}
	switch q.Object.Resource {
	case "statefulsets":
		key.Name = q.Object.Name
	case "pods":
		key.Name, _ = setOf(q.Object.Name)
	case "persistentvolumeclaims":
		key.Name, _ = setOf(strings.TrimPrefix(q.Object.Name, claimTemplate+"-"))
	}
	return key
}

// latencies are the times from the readiness of pods to the next write for the set, and to the write that had to wait for it. A
// write that the API server received before a pod was known to be ready, and after the kubelet asked to write that down,
// counts as one that came at once.
func latencies(ready []readiness, requests []request, step func(string) (string, string)) (write, next latency) {
	writes := map[types.NamespacedName][]time.Time{}
	steps := map[string][]time.Time{}
	for _, q := range requests {
		if !q.took() {
			continue
		}
		key := setFor(q)
		writes[key] = append(writes[key], q.Received)
		if q.Object.Resource == "pods" && q.Object.Subresource == "" {
			id := q.Verb + " " + q.Object.Name
			steps[id] = append(steps[id], q.Received)
		}
	}
	for _, times := range writes {
		slices.SortFunc(times, time.Time.Compare)
	}
	var toWrite, toStep []time.Duration
	for _, r := range ready {
		set, _ := setOf(r.pod.Name)
		if wait, found := r.until(writes[types.NamespacedName{Namespace: r.pod.Namespace, Name: set}]); found {
			toWrite = append(toWrite, wait)
		}
		if step == nil {
			continue
		}
		verb, object := step(r.pod.Name)
		if wait, found := r.until(steps[verb+" "+object]); found {
			toStep = append(toStep, wait)
		}
	}
	return latencyOf(toWrite), latencyOf(toStep)
}

// until is the time to the first of some moments that comes after the pod became ready; false if none does.
func (r readiness) until(times []time.Time) (time.Duration, bool) {
	for _, at := range times {
		if !at.Before(r.asked) {
			return max(0, at.Sub(r.known)), true
		}
	}
	return 0, false
}
