// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package telemetry names what Ordinal's controller tells about itself: its metrics, the reasons of its events and the keys
// of its logs. It decides nothing.
package telemetry

import (
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
	SyncDone   = "done"
	SyncStale  = "stale"
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

// Metrics are the metrics of one controller, in a registry of their own.
type Metrics struct {
	registry *prometheus.Registry
	syncs    *prometheus.HistogramVec
	actions  *prometheus.CounterVec
	pods     *prometheus.GaugeVec
	budget   *prometheus.GaugeVec
	Queue    *QueueMetrics
}

// New makes the metrics and registers them.
func New() *Metrics {
	set := []string{"namespace", "name"}
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
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ordinal_statefulset_pods",
			Help: "Pods of a set, by state.",
		}, append(set, "state")),
		budget: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ordinal_statefulset_max_unavailable",
			Help: "How many pods of a set an update may make unavailable at once.",
		}, set),
		Queue: newQueueMetrics(),
	}
	m.registry.MustRegister(m.syncs, m.actions, m.pods, m.budget)
	m.Queue.register(m.registry)
	for _, result := range []string{SyncDone, SyncStale, SyncFailed} {
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

// Observed tells the state of a set's pods.
func (m *Metrics) Observed(k Key, p Pods, maxUnavailable int) {
	for state, n := range map[string]int32{
		"wanted":    p.Wanted,
		"created":   p.Created,
		"ready":     p.Ready,
		"available": p.Available,
		"current":   p.Current,
		"updated":   p.Updated,
	} {
		m.pods.WithLabelValues(k.Namespace, k.Name, state).Set(float64(n))
	}
	m.budget.WithLabelValues(k.Namespace, k.Name).Set(float64(maxUnavailable))
}

// Forget removes the series of a set that is gone.
func (m *Metrics) Forget(k Key) {
	labels := prometheus.Labels{"namespace": k.Namespace, "name": k.Name}
	m.pods.DeletePartialMatch(labels)
	m.budget.DeletePartialMatch(labels)
}
