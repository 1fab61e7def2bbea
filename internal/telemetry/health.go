// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// Check looks whether something is as it should be, and says what is not. It never waits.
type Check func() error

// Health is whether a controller does its work. Its zero value is that of one that has just been started.
type Health struct {
	mu               sync.Mutex
	working, standby bool
	alive, ready     []Check
}

// Working notes that sets are being worked on.
func (h *Health) Working() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.working = true
}

// Standby notes whether the controller waits for leadership.
func (h *Health) Standby(waits bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.standby = waits
}

// AddAlive adds a check that fails when something hangs that only a new start mends.
func (h *Health) AddAlive(c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alive = append(h.alive, c)
}

// AddReady adds a check that fails as long as the controller cannot do its work, for a reason that a new start does not mend.
func (h *Health) AddReady(c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = append(h.ready, c)
}

// Alive is why the controller has to be started anew; nil if it need not be.
func (h *Health) Alive() error {
	h.mu.Lock()
	checks := h.alive
	h.mu.Unlock()
	return failures(checks)
}

// Ready is why sets are not worked on, and would not be if the leader were gone; nil if they are or would be.
func (h *Health) Ready() error {
	h.mu.Lock()
	checks, starts := h.ready, !h.working && !h.standby
	h.mu.Unlock()
	err := failures(checks)
	if err == nil && starts {
		err = errors.New("not ready: it has just been started")
	}
	return errors.Join(h.Alive(), err)
}

func failures(checks []Check) error {
	errs := make([]error, 0, len(checks))
	for _, c := range checks {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// HealthHandler answers /healthz and /readyz with 200, or with 503 and what is wrong.
func HealthHandler(h *Health) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, h.Alive()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, h.Ready()) })
	return mux
}

func answer(w http.ResponseWriter, problem error) {
	text := "ok"
	if problem != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = problem.Error()
	}
	// Who has asked and is gone need not be told.
	_, _ = io.WriteString(w, text+"\n")
}
