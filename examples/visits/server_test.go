// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// names is a DNS that knows the members of one Service.
type names struct {
	service string
	srv     []*net.SRV
}

func (n names) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if service != "http" || proto != "tcp" || name != n.service {
		return "", nil, errors.New("no such host")
	}
	return "", n.srv, nil
}

func (n names) LookupHost(context.Context, string) ([]string, error) {
	return []string{"10.0.0.9", "10.0.0.10"}, nil
}

func newServer(t *testing.T, service string) *server {
	t.Helper()
	log.SetOutput(t.Output())
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	return &server{
		hostname: "visits-1",
		revision: "visits-6f7d",
		service:  service,
		counter:  open(t.TempDir()),
		resolver: names{"visits", []*net.SRV{
			{Target: "visits-10.visits.default.svc.cluster.local.", Port: 8080},
			{Target: "visits-2.visits.default.svc.cluster.local.", Port: 8080},
		}},
	}
}

// ask makes one request and gives the answer's status and body.
func ask(t *testing.T, s *server, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestPageCounts(t *testing.T) {
	s := newServer(t, "visits")
	for range 2 {
		ask(t, s, http.MethodGet, "/")
	}
	status, got := ask(t, s, http.MethodGet, "/")
	want := `I am visits-1, ordinal 1, of revision visits-6f7d.
Visits that my volume remembers: 3
Peers:
  visits-2.visits.default.svc.cluster.local:8080
  visits-10.visits.default.svc.cluster.local:8080
`
	if status != http.StatusOK || got != want {
		t.Errorf("GET / = %d\n%s\nwant\n%s", status, got, want)
	}
}

func TestJSONDoesNotCount(t *testing.T) {
	s := newServer(t, "visits")
	ask(t, s, http.MethodGet, "/")
	want := page{
		Hostname: "visits-1", Ordinal: 1, Revision: "visits-6f7d", Visits: 1,
		Peers: []string{"visits-2.visits.default.svc.cluster.local:8080", "visits-10.visits.default.svc.cluster.local:8080"},
	}
	for range 2 {
		status, body := ask(t, s, http.MethodGet, "/json")
		var got page
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if status != http.StatusOK || !reflect.DeepEqual(got, want) {
			t.Errorf("GET /json = %d, %+v, want %+v", status, got, want)
		}
	}
}

func TestPageComesWithoutPeers(t *testing.T) {
	s := newServer(t, "nobody")
	if status, got := ask(t, s, http.MethodGet, "/"); status != http.StatusOK || !strings.Contains(got, "no such host") {
		t.Errorf("GET / = %d %q, want a page that says why there are no peers", status, got)
	}
	if _, got := ask(t, s, http.MethodGet, "/json"); !strings.Contains(got, `"peers": []`) || !strings.Contains(got, `"peersError"`) {
		t.Errorf("GET /json = %s, want an empty list and the reason", got)
	}
}

func TestBadCounterIsShown(t *testing.T) {
	s := newServer(t, "visits")
	if status, body := ask(t, s, http.MethodGet, "/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("GET /healthz = %d %q, want ok", status, body)
	}
	if err := os.WriteFile(s.counter.file, []byte("seventeen"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/json", "/healthz"} {
		if status, body := ask(t, s, http.MethodGet, path); status != http.StatusInternalServerError || !strings.Contains(body, "seventeen") {
			t.Errorf("GET %s = %d %q, want an error that shows the file's content", path, status, body)
		}
	}
}

func TestOtherRequestsAreRefused(t *testing.T) {
	s := newServer(t, "visits")
	if status, _ := ask(t, s, http.MethodPost, "/"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST / = %d, want %d", status, http.StatusMethodNotAllowed)
	}
	if status, _ := ask(t, s, http.MethodGet, "/favicon.ico"); status != http.StatusNotFound {
		t.Errorf("GET /favicon.ico = %d, want %d", status, http.StatusNotFound)
	}
	if n, err := s.counter.value(); err != nil || n != 0 {
		t.Errorf("value = %d, %v, want 0: no visit", n, err)
	}
}

// A request that is under way when the pod is told to end gets its answer.
func TestServeEndsGracefully(t *testing.T) {
	s := newServer(t, "visits")
	slow := slowNames{resolver: s.resolver, asked: make(chan struct{}), answer: make(chan struct{})}
	s.resolver = slow
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	served, body := make(chan error, 1), make(chan string, 1)
	go func() { served <- s.serve(ctx, l) }()
	go func() {
		var b strings.Builder
		if err := get(t.Context(), &b, l.Addr().String()); err != nil {
			b.WriteString(err.Error())
		}
		body <- b.String()
	}()
	<-slow.asked
	end()
	refusesConnections(t, l.Addr())
	close(slow.answer)
	if got := <-body; !strings.Contains(got, "remembers: 1") {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func refusesConnections(t *testing.T, addr net.Addr) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		conn, err := new(net.Dialer).DialContext(ctx, addr.Network(), addr.String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil, nil
	})
	if err != nil {
		t.Errorf("it still accepts connections: %v", err)
	}
}

// slowNames answers when it is told to.
type slowNames struct {
	resolver
	asked, answer chan struct{}
}

func (s slowNames) LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	close(s.asked)
	<-s.answer
	return s.resolver.LookupSRV(ctx, service, proto, name)
}

func TestGet(t *testing.T) {
	s := newServer(t, "visits")
	srv := httptest.NewServer(s.handler())
	t.Cleanup(srv.Close)
	var body strings.Builder
	if err := run(t.Context(), &body, []string{"get", srv.URL + "/healthz"}); err != nil || body.String() != "ok\n" {
		t.Errorf("get = %q, %v, want ok", body.String(), err)
	}
	if err := run(t.Context(), io.Discard, []string{"get", srv.URL + "/nothing"}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("get of nothing: %v, want an error with 404", err)
	}
}

func TestLookup(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, []string{"lookup", "localhost"}); err != nil || !strings.Contains(out.String(), "127.0.0.1\n") {
		t.Errorf("lookup localhost = %q, %v, want 127.0.0.1", out.String(), err)
	}
}

func TestBadCalls(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, args := range [][]string{
		{"frobnicate"}, {"lookup"}, {"lookup", "a", "b"}, {"peers", "a", "b"}, {"get"}, {"serve", "now"}, {"-port", "1"}, {"-dir", missing},
	} {
		if err := run(t.Context(), io.Discard, args); err == nil {
			t.Errorf("run %q did not fail", args)
		}
	}
}

func TestOrdinalOf(t *testing.T) {
	for pod, want := range map[string]int{"web-0": 0, "my-web-12": 12, "web": -1, "web-": -1, "web--1": 1, "web-x": -1, "": -1, "web-99999999999": -1} {
		if got := ordinalOf(pod); got != want {
			t.Errorf("ordinalOf(%q) = %d, want %d", pod, got, want)
		}
	}
}
