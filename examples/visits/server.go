// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

// server shows who this pod is and counts who comes to see it.
type server struct {
	hostname string
	revision string
	service  string
	counter  *counter
	resolver resolver
}

// page is what a visitor sees.
type page struct {
	Hostname string `json:"hostname"`
	// Ordinal is -1 outside a StatefulSet.
	Ordinal  int      `json:"ordinal"`
	Revision string   `json:"revision"`
	Visits   uint64   `json:"visits"`
	Peers    []string `json:"peers"`
	// PeersError says why Peers could not be found.
	PeersError string `json:"peersError,omitempty"`
}

// handler serves / (counts a visit, text), /json (the same without counting) and /healthz (for the readiness probe).
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.visit)
	mux.HandleFunc("GET /json", s.json)
	mux.HandleFunc("GET /healthz", s.healthz)
	return mux
}

func (s *server) visit(w http.ResponseWriter, r *http.Request) {
	n, err := s.counter.add()
	if err != nil {
		refuse(w, err)
		return
	}
	log.Printf("visit %d from %s", n, r.RemoteAddr)
	_, _ = io.WriteString(w, s.page(r.Context(), n).text())
}

func (s *server) json(w http.ResponseWriter, r *http.Request) {
	n, err := s.counter.value()
	if err != nil {
		refuse(w, err)
		return
	}
	body, err := json.MarshalIndent(s.page(r.Context(), n), "", "  ")
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

// healthz is fine while the volume can be read.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	if _, err := s.counter.value(); err != nil {
		refuse(w, err)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

func refuse(w http.ResponseWriter, err error) {
	log.Print(err)
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func (s *server) page(ctx context.Context, visits uint64) page {
	p := page{Hostname: s.hostname, Ordinal: ordinalOf(s.hostname), Revision: s.revision, Visits: visits, Peers: []string{}}
	found, err := peers(ctx, s.resolver, s.service)
	if err != nil {
		p.PeersError = err.Error()
		return p
	}
	p.Peers = found
	return p
}

func (p page) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "I am %s, ordinal %d, of revision %s.\n", p.Hostname, p.Ordinal, p.Revision)
	fmt.Fprintf(&b, "Visits that my volume remembers: %d\n", p.Visits)
	if p.PeersError != "" {
		fmt.Fprintf(&b, "Peers: %s\n", p.PeersError)
		return b.String()
	}
	b.WriteString("Peers:\n")
	for _, peer := range p.Peers {
		fmt.Fprintf(&b, "  %s\n", peer)
	}
	return b.String()
}

// serve answers until ctx ends, then lets the requests that are under way finish.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped <- srv.Shutdown(grace)
	})
	err := srv.Serve(l)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
