// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package telemetry names what Ordinal's controller tells about itself: its metrics, the reasons of its events and the keys
// of its logs. It serves the metrics, and decides nothing.
package telemetry

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Keys of log entries.
const (
	KeySet     = "statefulSet"
	KeyAction  = "action"
	KeyReason  = "reason"
	KeyResult  = "result"
	KeyWaits   = "waits"
	KeyRequeue = "requeueAt"
	KeyError   = "err"
)

// Results of a sync.
const (
	// SyncDone means that all went as planned.
	SyncDone = "done"
	// SyncStale means that the sync was put off, because the caches did not show all that was written for the set.
	SyncStale = "stale"
	// SyncConflict means that an object was no longer what was planned for.
	SyncConflict = "conflict"
	// SyncFailed means that a write was refused or that its end is unknown.
	SyncFailed = "failed"
)

// Key names a set.
type Key struct {
	Namespace, Name string
}

// Pods counts the pods of a set by state.
type Pods struct {
	Wanted, Created, Ready, Available, Current, Updated int32
}

func (p Pods) byState() map[string]int32 {
	return map[string]int32{
		"wanted":    p.Wanted,
		"created":   p.Created,
		"ready":     p.Ready,
		"available": p.Available,
		"current":   p.Current,
		"updated":   p.Updated,
	}
}

// Set is the state of a set.
type Set struct {
	Pods Pods
	// MaxUnavailable is how many pods an update may make unavailable at once.
	MaxUnavailable int
	// Waits counts what the set waits for, by reason. It must not be changed any more.
	Waits map[string]int
}

// Metrics are the metrics of one controller, in a registry of their own.
type Metrics struct {
	registry *prometheus.Registry
	syncs    *prometheus.HistogramVec
	actions  *prometheus.CounterVec
	sets     *sets
	Queue    *QueueMetrics
}

// New makes the metrics and registers them.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		syncs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ordinal_sync_duration_seconds",
			Help:    "How long it took to bring a set nearer to its spec, by result.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"result"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ordinal_actions_total",
			Help: "Writes to the API server, by kind of action, reason and result.",
		}, []string{"action", "reason", "result"}),
		sets:  newSets(),
		Queue: newQueueMetrics(),
	}
	m.registry.MustRegister(m.syncs, m.actions, m.sets)
	m.Queue.register(m.registry)
	for _, result := range []string{SyncDone, SyncStale, SyncConflict, SyncFailed} {
		m.syncs.WithLabelValues(result)
	}
	return m
}

// Registry holds all metrics.
func (m *Metrics) Registry() *prometheus.Registry {
	return m.registry
}

// Synced counts a sync.
func (m *Metrics) Synced(result string, took time.Duration) {
	m.syncs.WithLabelValues(result).Observe(took.Seconds())
}

// Acted counts an action.
func (m *Metrics) Acted(action, reason, result string) {
	m.actions.WithLabelValues(action, reason, result).Inc()
}

// Observed tells the state of a set. It takes the place of what was told of the set before.
func (m *Metrics) Observed(k Key, s Set) {
	m.sets.put(k, s)
}

// Forget removes the series of a set that is gone.
func (m *Metrics) Forget(k Key) {
	m.sets.remove(k)
}

// sets collects the series of all sets. There are as many as there are sets, and none of a set that is gone.
type sets struct {
	pods, budget, waits *prometheus.Desc

	mu sync.Mutex
	of map[Key]Set
}

func newSets() *sets {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"namespace", "name"}, labels...), nil)
	}
	return &sets{
		pods:   desc("ordinal_statefulset_pods", "Pods of a set, by state.", "state"),
		budget: desc("ordinal_statefulset_max_unavailable", "How many pods of a set an update may make unavailable at once."),
		waits:  desc("ordinal_statefulset_waits", "How many things a set waits for, by reason.", "reason"),
		of:     map[Key]Set{},
	}
}

func (s *sets) put(k Key, state Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[k] = state
}

func (s *sets) remove(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, k)
}

// Describe is part of prometheus.Collector.
func (s *sets) Describe(descs chan<- *prometheus.Desc) {
	descs <- s.pods
	descs <- s.budget
	descs <- s.waits
}

// Collect is part of prometheus.Collector.
func (s *sets) Collect(metrics chan<- prometheus.Metric) {
	s.mu.Lock()
	all := maps.Clone(s.of)
	s.mu.Unlock()
	for k, state := range all {
		gauge := func(desc *prometheus.Desc, n int, labels ...string) {
			labels = append([]string{k.Namespace, k.Name}, labels...)
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
		}
		for name, n := range state.Pods.byState() {
			gauge(s.pods, int(n), name)
		}
		gauge(s.budget, state.MaxUnavailable)
		for reason, n := range state.Waits {
			gauge(s.waits, n, reason)
		}
	}
}
