// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
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
	// CertFile and KeyFile hold a certificate and its key. They are read anew for each connection, so they may be renewed. Without
	// them, an address that others can reach has a certificate that is made for it and that nobody knows: it keeps what is sent from
	// those who only listen.
	CertFile, KeyFile string
}

// Listen opens the endpoint.
func (e Endpoint) Listen(ctx context.Context) (net.Listener, error) {
	address, err := net.ResolveTCPAddr("tcp", e.Address)
	if err != nil {
		return nil, fmt.Errorf("read address %q: %w", e.Address, err)
	}
	secure, err := e.secure(address.IP)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address.String())
	if err == nil && secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	return listener, err
}

// secure is how the endpoint is secured at an address; nil for plain text.
func (e Endpoint) secure(at net.IP) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: e.certificate}
	switch {
	case (e.CertFile == "") != (e.KeyFile == ""):
		return nil, errors.New("a certificate and its key belong together")
	case e.CertFile != "":
		_, err := e.certificate(nil)
		return c, err
	case at.IsLoopback():
		return nil, nil
	}
	var err error
	c.GetCertificate, err = selfSigned()
	return c, err
}

// ListenPlain opens an address for what everybody may read, without TLS.
func ListenPlain(ctx context.Context, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// selfSigned makes a certificate for this host.
func selfSigned() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get hostname: %w", err)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, err
}

func (e Endpoint) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(e.CertFile, e.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate and key: %w", err)
	}
	return &c, nil
}

// Handler answers /metrics with m and with the metrics of the process, and what HealthHandler answers.
func Handler(m *Metrics, h *Health) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{m.Registry(), process}, promhttp.HandlerOpts{}))
	mux.Handle("/", HealthHandler(h))
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
