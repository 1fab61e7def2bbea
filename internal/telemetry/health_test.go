// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What hangs is told by both, and what only has to wait by readiness alone. Both say what it is.
func TestHealth(t *testing.T) {
	h := &Health{}
	var hangs, waits error
	h.AddAlive(func() error { return hangs })
	h.AddReady(func() error { return waits })
	server := httptest.NewServer(HealthHandler(h))
	defer server.Close()
	expect := func(path string, wantCode int, wantBody string) {
		t.Helper()
		if code, body := get(t.Context(), t, server.Client(), server.URL+path); code != wantCode || body != wantBody {
			t.Errorf("%s answers %d %q, want %d %q", path, code, body, wantCode, wantBody)
		}
	}
	expect("/healthz", http.StatusOK, "ok\n")
	expect("/readyz", http.StatusServiceUnavailable, "not ready: it has just been started\n")
	waits = errors.New("pods are not read")
	expect("/healthz", http.StatusOK, "ok\n")
	expect("/readyz", http.StatusServiceUnavailable, "pods are not read\n")
	h.Working()
	expect("/readyz", http.StatusServiceUnavailable, "pods are not read\n")
	waits = nil
	expect("/readyz", http.StatusOK, "ok\n")
	hangs = errors.New("web hangs")
	expect("/healthz", http.StatusServiceUnavailable, "web hangs\n")
	expect("/readyz", http.StatusServiceUnavailable, "web hangs\n")
	hangs = nil
	expect("/metrics", http.StatusNotFound, "404 page not found\n")
}
