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

// Program is how the metrics of leadership name the controller, whatever its lease is called.
const Program = "ordinal-controller"

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
	// Degraded is the reason of that condition; empty while nothing needs a look.
	Degraded string
	// Progress is what is being done; empty while nothing is.
	Progress Progress
}

// Progress is how a set gets on that is scaled or updated.
type Progress struct {
	// Reason is that of the condition Progressing.
	Reason string
	// At is when it last got on.
	At time.Time
}

// Metrics are the metrics of one controller, in a registry of their own.
type Metrics struct {
	registry *prometheus.Registry
	syncs    *prometheus.HistogramVec
	actions  *prometheus.CounterVec
	leads    *prometheus.GaugeVec
	yields   prometheus.Gauge
	sets     *sets
	requests requests
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
		leads: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status",
			Help: "Whether this controller works on sets (1), or waits for the lease (0).",
		}, []string{"name"}),
		yields: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ordinal_yields",
			Help: "Whether this controller does nothing (1), because another one works on the same sets.",
		}),
		sets:     newSets(),
		requests: newRequests(),
		Queue:    newQueueMetrics(),
	}
	m.registry.MustRegister(m.syncs, m.actions, m.leads, m.yields, m.sets, m.requests.total, m.requests.duration)
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

// Synced counts a sync of a set.
func (m *Metrics) Synced(k Key, result string, took time.Duration) {
	m.syncs.WithLabelValues(result).Observe(took.Seconds())
	m.sets.synced(k, result)
}

// Leads tells whether this controller works on sets, or waits until it holds the lease.
func (m *Metrics) Leads(leads bool) {
	m.leads.WithLabelValues(Program).Set(truth(leads))
}

// Yields tells whether this controller does nothing, because another one works on the same sets.
func (m *Metrics) Yields(yields bool) {
	m.yields.Set(truth(yields))
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
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
	pods, budget, waits, degraded, progress, failures *prometheus.Desc

	mu sync.Mutex
	of map[Key]Set
	// failed counts the syncs in a row that failed, of sets whose last one did.
	failed map[Key]int
}

func newSets() *sets {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ordinal_statefulset_"+name, help, append([]string{"namespace", "name"}, labels...), nil)
	}
	return &sets{
		pods:     desc("pods", "Pods of a set, by state.", "state"),
		budget:   desc("max_unavailable", "How many pods of a set an update may make unavailable at once."),
		waits:    desc("waits", "How many things a set waits for, by reason.", "reason"),
		degraded: desc("degraded", "1 for a set of which something needs a look, with the reason of its condition Degraded.", "reason"),
		progress: desc("progress_timestamp_seconds", "When a set that is scaled or updated last got on.", "reason"),
		failures: desc("sync_failures", "How many syncs of a set have failed in a row."),
		of:       map[Key]Set{},
		failed:   map[Key]int{},
	}
}

func (s *sets) put(k Key, state Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[k] = state
}

// synced counts failures in a row. A sync that came to nothing tells neither that there is one nor that there is none.
func (s *sets) synced(k Key, result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch result {
	case SyncFailed:
		s.failed[k]++
	case SyncDone:
		delete(s.failed, k)
	}
}

func (s *sets) remove(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, k)
	delete(s.failed, k)
}

// Describe is part of prometheus.Collector.
func (s *sets) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.pods, s.budget, s.waits, s.degraded, s.progress, s.failures} {
		descs <- d
	}
}

// Collect is part of prometheus.Collector.
func (s *sets) Collect(metrics chan<- prometheus.Metric) {
	s.mu.Lock()
	all, failed := maps.Clone(s.of), maps.Clone(s.failed)
	s.mu.Unlock()
	for k, state := range all {
		s.collect(gauges{k, metrics}, state)
	}
	for k, n := range failed {
		gauges{k, metrics}.tell(s.failures, float64(n))
	}
}

func (s *sets) collect(g gauges, state Set) {
	for name, n := range state.Pods.byState() {
		g.tell(s.pods, float64(n), name)
	}
	g.tell(s.budget, float64(state.MaxUnavailable))
	for reason, n := range state.Waits {
		g.tell(s.waits, float64(n), reason)
	}
	if state.Degraded != "" {
		g.tell(s.degraded, 1, state.Degraded)
	}
	if p := state.Progress; p.Reason != "" {
		g.tell(s.progress, float64(p.At.Unix()), p.Reason)
	}
}

// gauges gives the series of one set.
type gauges struct {
	of  Key
	out chan<- prometheus.Metric
}

func (g gauges) tell(desc *prometheus.Desc, value float64, labels ...string) {
	labels = append([]string{g.of.Namespace, g.of.Name}, labels...)
	g.out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}
