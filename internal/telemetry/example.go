// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"net/http"
	"time"
)

// Example gives metrics that have a series each, as one without series is not shown. It is for documents and tests.
func Example() *Metrics {
	m := New()
	web := Key{"default", "web"}
	m.Observed(web, Set{
		Waits: map[string]int{"NotReady": 1}, Degraded: "NotReady", Progress: Progress{Reason: "Updating", At: time.Unix(0, 0)},
	})
	m.Synced(web, SyncFailed, 0)
	m.Leads(true)
	m.Acted("CreatePod", "NoPod", "Done")
	m.requests.total.WithLabelValues("200", http.MethodGet)
	m.requests.duration.WithLabelValues(http.MethodGet)
	const queue = "statefulset"
	m.Queue.NewDepthMetric(queue)
	m.Queue.NewAddsMetric(queue)
	m.Queue.NewLatencyMetric(queue)
	m.Queue.NewWorkDurationMetric(queue)
	m.Queue.NewUnfinishedWorkSecondsMetric(queue)
	m.Queue.NewLongestRunningProcessorSecondsMetric(queue)
	m.Queue.NewRetriesMetric(queue)
	return m
}
