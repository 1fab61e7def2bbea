// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observability

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ordinal-dev/ordinal/internal/sim/history"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// series is one series of an exposition.
type series struct {
	metric, labels, value string
	// grows means that it is part of a counter or a histogram.
	grows bool
}

// exposition is what a controller tells of itself at one moment.
type exposition []series

var sample = regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$`)

// scrape asks for the metrics as Prometheus does.
func scrape(t *testing.T, m *telemetry.Metrics) exposition {
	t.Helper()
	answer := httptest.NewRecorder()
	ask := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	telemetry.Handler(m, &telemetry.Health{}).ServeHTTP(answer, ask)
	var all exposition
	kinds := map[string]string{}
	for line := range strings.Lines(answer.Body.String()) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(text, " ")
			kinds[name] = kind
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		found := sample.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("the exposition has the line %q", line)
		}
		kind := kinds[found[1]]
		all = append(all, series{found[1], found[2], found[3], kind != "gauge" && kind != "summary"})
	}
	return all
}

// labels gives, by metric, the names of the labels that its series have.
func (e exposition) labels() map[string][]string {
	name := regexp.MustCompile(`(\w+)="`)
	all := map[string][]string{}
	for _, s := range e {
		all[s.metric] = append(all[s.metric], "job", "instance")
		for _, found := range name.FindAllStringSubmatch(s.labels, -1) {
			all[s.metric] = append(all[s.metric], found[1])
		}
	}
	return all
}

// has tells if there is a series of each metric.
func (e exposition) has(metrics ...string) bool {
	known := e.labels()
	return !slices.ContainsFunc(metrics, func(m string) bool { return known[m] == nil })
}

// input gives the series to promtool, as those of a controller that is scraped for two hours: gauges stay, and all else grows.
// What is a time is the beginning.
func (e exposition) input() []map[string]string {
	var all []map[string]string
	for _, s := range e {
		values := s.value + "x120"
		switch {
		case strings.HasSuffix(s.metric, "_timestamp_seconds"):
			values = "0x120"
		case s.grows && s.value != "0":
			values = "0+" + s.value + "x120"
		}
		labels := strings.TrimPrefix(s.labels+`,job="ordinal",instance="a"`, ",")
		all = append(all, map[string]string{"series": s.metric + "{" + labels + "}", "values": values})
	}
	return all
}

// lived gives what the real controller tells in a model cluster: while a rollout is stuck, a pod is refused and a write is answered
// 500; and in the end, when all is mended and it is at rest.
func lived(t *testing.T) (troubled, rested exposition) {
	t.Helper()
	m := telemetry.New()
	m.Leads(true)
	ask(t, m)
	steps := slices.Repeat([]history.Step{{Kind: history.Work}}, 12)
	steps = append(steps, history.Step{Kind: history.Image, A: 3})
	steps = append(steps, slices.Repeat([]history.Step{{Kind: history.Work}}, 6)...)
	for _, kind := range []history.Kind{
		history.Pass, history.ServerError, history.Scale, history.PodFails, history.Work, history.ServerError, history.PodUnready, history.Work,
	} {
		steps = append(steps, history.Step{Kind: kind, A: map[history.Kind]int{history.Pass: 3, history.Scale: 5}[kind]})
	}
	synctest.Test(t, func(t *testing.T) {
		look := func() {
			synctest.Wait()
			rested = scrape(t, m)
			if troubled == nil && rested.has("ordinal_statefulset_degraded", "ordinal_statefulset_progress_timestamp_seconds",
				"ordinal_statefulset_sync_failures", "ordinal_statefulset_waits") {
				troubled = rested
			}
		}
		r := history.Run(history.History{Config: history.Config{Replicas: 3, Claims: 1}, Steps: steps}, look, m, true)
		if len(r.Broken) > 0 || troubled == nil {
			t.Fatalf("no moment has all troubles at once: %v\n%s", r.Broken, r.Story)
		}
	})
	return troubled, rested
}

// ask lets the metrics count requests that end in the three ways: well, refused, and without an answer.
func ask(t *testing.T, m *telemetry.Metrics) {
	t.Helper()
	codes := map[string]int{http.MethodGet: http.StatusOK, http.MethodPatch: http.StatusServiceUnavailable}
	transport := m.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		if code := codes[r.Method]; code != 0 {
			return &http.Response{StatusCode: code, Body: http.NoBody}, nil
		}
		return nil, errors.New("no answer")
	}))
	for _, method := range append(slices.Sorted(maps.Keys(codes)), http.MethodPost) {
		answer, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), method, "/", http.NoBody))
		if (err == nil) != (codes[method] != 0) {
			t.Fatalf("%s is answered %v, %v", method, answer, err)
		}
		if err == nil {
			answer.Body.Close()
		}
	}
}

// roundTripper is a function that carries out requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip carries out a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
