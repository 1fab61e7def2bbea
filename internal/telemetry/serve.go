// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// requestTimeout is how long a request, its answer, or the next one on the same connection may take.
	requestTimeout = 30 * time.Second
	// shutdownGrace is how long requests that have begun may take once serving is to end.
	shutdownGrace = 5 * time.Second
)

// Endpoint is where metrics and health are served: in plain text on a loopback address, and over TLS on any other.
type Endpoint struct {
	// Address is a host and a port.
	Address string
	// CertFile and KeyFile hold a certificate and its key. They are read anew for each connection, so they may be renewed.
	CertFile, KeyFile string
}

// Listen opens the endpoint. An address that others can reach is refused without TLS.
func (e Endpoint) Listen(ctx context.Context) (net.Listener, error) {
	if (e.CertFile == "") != (e.KeyFile == "") {
		return nil, errors.New("a certificate and its key belong together")
	}
	isSecure := e.CertFile != ""
	if isSecure {
		if _, err := e.certificate(nil); err != nil {
			return nil, err
		}
	}
	address, err := net.ResolveTCPAddr("tcp", e.Address)
	if err != nil {
		return nil, fmt.Errorf("read address %q: %w", e.Address, err)
	}
	if !isSecure && !address.IP.IsLoopback() {
		return nil, fmt.Errorf("%q is no loopback address, so it needs a certificate and a key", e.Address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address.String())
	if err != nil {
		return nil, err
	}
	if isSecure {
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: e.certificate})
	}
	return listener, nil
}

func (e Endpoint) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(e.CertFile, e.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate and key: %w", err)
	}
	return &c, nil
}

// Health is whether a controller does its work. Its zero value is that of one that has just been started.
type Health struct {
	working, standby atomic.Bool
}

// Working notes that sets are being worked on.
func (h *Health) Working() { h.working.Store(true) }

// Standby notes whether the controller waits for leadership.
func (h *Health) Standby(waits bool) { h.standby.Store(waits) }

// IsReady tells if sets are being worked on, or will be as soon as the leader is gone.
func (h *Health) IsReady() bool { return h.working.Load() || h.standby.Load() }

// Handler answers /metrics with m and with the metrics of the process, /healthz always, and /readyz once h is ready.
func Handler(m *Metrics, h *Health) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{m.Registry(), process}, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, true) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, h.IsReady()) })
	return mux
}

// WithProfiles answers /debug/pprof/ as net/http/pprof does, and all else with next. What takes seconds puts off the time that the
// server gives each answer.
func WithProfiles(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func answer(w http.ResponseWriter, ok bool) {
	text := "ok"
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = "not ready"
	}
	// Who has asked and is gone need not be told.
	_, _ = io.WriteString(w, text+"\n")
}

// ServeWhile serves on l while work runs. When one of the two ends, so does the other, and then ServeWhile. The end of ctx
// is told to work, which is served until it has ended.
func ServeWhile(ctx context.Context, l net.Listener, h http.Handler, work func(context.Context) error) error {
	server := &http.Server{Handler: h, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: requestTimeout}
	working, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(l)
		stop()
	}()
	err := work(working)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		err = errors.Join(err, server.Close())
	}
	if broken := <-served; !errors.Is(broken, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve metrics: %w", broken))
	}
	return err
}
