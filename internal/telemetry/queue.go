// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// QueueMetrics are the metrics of work queues, under the names that Kubernetes components use.
type QueueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

func newQueueMetrics() *QueueMetrics {
	name := []string{"name"}
	gauge := func(metric, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metric, Help: help}, name)
	}
	counter := func(metric, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metric, Help: help}, name)
	}
	histogram := func(metric, help string) *prometheus.HistogramVec {
		buckets := prometheus.ExponentialBuckets(0.00001, 10, 10)
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metric, Help: help, Buckets: buckets}, name)
	}
	return &QueueMetrics{
		depth:      gauge("workqueue_depth", "Current depth of the work queue."),
		unfinished: gauge("workqueue_unfinished_work_seconds", "Seconds of work in progress that has not been observed yet."),
		longest:    gauge("workqueue_longest_running_processor_seconds", "Seconds that the longest running worker has run."),
		adds:       counter("workqueue_adds_total", "Adds handled by the work queue."),
		retries:    counter("workqueue_retries_total", "Retries handled by the work queue."),
		latency:    histogram("workqueue_queue_duration_seconds", "Seconds that an item stays in the queue."),
		work:       histogram("workqueue_work_duration_seconds", "Seconds that processing an item takes."),
	}
}

func (q *QueueMetrics) register(r *prometheus.Registry) {
	r.MustRegister(q.depth, q.unfinished, q.longest, q.adds, q.retries, q.latency, q.work)
}

// NewDepthMetric is part of workqueue.MetricsProvider.
func (q *QueueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return q.depth.WithLabelValues(name)
}

// NewAddsMetric is part of workqueue.MetricsProvider.
func (q *QueueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return q.adds.WithLabelValues(name)
}

// NewLatencyMetric is part of workqueue.MetricsProvider.
func (q *QueueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return q.latency.WithLabelValues(name)
}

// NewWorkDurationMetric is part of workqueue.MetricsProvider.
func (q *QueueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return q.work.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric is part of workqueue.MetricsProvider.
func (q *QueueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.unfinished.WithLabelValues(name)
}

// NewLongestRunningProcessorSecondsMetric is part of workqueue.MetricsProvider.
func (q *QueueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.longest.WithLabelValues(name)
}

// NewRetriesMetric is part of workqueue.MetricsProvider.
func (q *QueueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return q.retries.WithLabelValues(name)
}
