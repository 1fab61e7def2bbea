// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// noAnswer takes the place of a status code where a request had no answer. Kubernetes components have it, too.
const noAnswer = "<error>"

// requests count what is asked of the API server, under the names that Kubernetes components use.
type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newRequests() requests {
	return requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total",
			Help: "Requests to the API server, by method and status code.",
		}, []string{"code", "method"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rest_client_request_duration_seconds",
			Help:    "How long the API server took to begin its answer, by method.",
			Buckets: prometheus.ExponentialBuckets(0.002, 4, 8),
		}, []string{"verb"}),
	}
}

// Transport counts the requests that next carries out. Each try of a request counts.
func (m *Metrics) Transport(next http.RoundTripper) http.RoundTripper {
	return transport{m.requests, next}
}

type transport struct {
	requests
	next http.RoundTripper
}

// RoundTrip carries out a request.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	answer, err := t.next.RoundTrip(r)
	t.duration.WithLabelValues(r.Method).Observe(time.Since(began).Seconds())
	code := noAnswer
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	t.total.WithLabelValues(code, r.Method).Inc()
	return answer, err
}
