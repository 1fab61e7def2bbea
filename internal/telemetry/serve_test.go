// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// get gives the status and the body of an answer.
func get(ctx context.Context, t *testing.T, client *http.Client, url string) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func listen(t *testing.T, e Endpoint) net.Listener {
	t.Helper()
	l, err := e.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// identity writes a certificate for loopback addresses with its key, and gives the pool by which it is known.
func identity(t *testing.T, e Endpoint) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes})
	if err := errors.Join(os.WriteFile(e.CertFile, certPEM, 0o600), os.WriteFile(e.KeyFile, keyPEM, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool
}

func TestServe(t *testing.T) {
	l := listen(t, Endpoint{Address: "127.0.0.1:0"})
	url := "http://" + l.Addr().String()
	m, h := New(), &Health{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	client := &http.Client{}
	check := func(path string, wantCode int, wantBody string) {
		t.Helper()
		if code, body := get(t.Context(), t, client, url+path); code != wantCode || !strings.Contains(body, wantBody) {
			t.Errorf("%s answers %d %q, want %d and %q", path, code, body, wantCode, wantBody)
		}
	}
	err := ServeWhile(ctx, l, Handler(m, h), func(ctx context.Context) error {
		check("/healthz", http.StatusOK, "ok")
		check("/readyz", http.StatusServiceUnavailable, "it has just been started")
		h.Standby(true)
		check("/readyz", http.StatusOK, "ok")
		// Its caches are not filled yet.
		h.Standby(false)
		check("/readyz", http.StatusServiceUnavailable, "it has just been started")
		h.Working()
		check("/readyz", http.StatusOK, "ok")
		check("/metrics", http.StatusOK, "\nordinal_sync_duration_seconds_count{result=\"done\"} 0\n")
		check("/metrics", http.StatusOK, "\ngo_goroutines ")
		check("/metrics", http.StatusOK, "\nprocess_resident_memory_bytes ")
		check("/", http.StatusNotFound, "")
		check("/debug/pprof/", http.StatusNotFound, "")
		check("/debug/pprof/heap", http.StatusNotFound, "")
		// Work that is told to stop is served until it has ended.
		stop()
		<-ctx.Done()
		check("/healthz", http.StatusOK, "ok")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String()); err == nil {
		c.Close()
		t.Error("the address is still served")
	}
}

// A profile may take longer than other requests, and what was served before still is.
func TestWithProfiles(t *testing.T) {
	m, h := New(), &Health{}
	server := httptest.NewUnstartedServer(WithProfiles(Handler(m, h)))
	const short = 100 * time.Millisecond
	server.Config.ReadTimeout, server.Config.WriteTimeout = short, short
	server.Start()
	defer server.Close()
	client := server.Client()
	for path, want := range map[string]string{
		"/debug/pprof/":               "goroutine",
		"/debug/pprof/heap?debug=1":   "heap profile",
		"/debug/pprof/allocs?debug=1": "heap profile",
		"/debug/pprof/cmdline":        os.Args[0],
		"/debug/pprof/symbol":         "num_symbols",
		"/healthz":                    "ok",
		"/metrics":                    "ordinal_sync_duration_seconds_count",
	} {
		if code, body := get(t.Context(), t, client, server.URL+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d %.100q, want %q", path, code, body, want)
		}
	}
	if code, _ := get(t.Context(), t, client, server.URL+"/nothing"); code != http.StatusNotFound {
		t.Errorf("what is not served answers %d", code)
	}
	for _, kind := range []string{"profile", "trace"} {
		began := time.Now()
		code, body := get(t.Context(), t, client, server.URL+"/debug/pprof/"+kind+"?seconds=1")
		if took := time.Since(began); code != http.StatusOK || body == "" || took < time.Second {
			t.Errorf("a %s of a second answers %d with %d bytes after %s", kind, code, len(body), took)
		}
	}
}

func TestServeWithTLS(t *testing.T) {
	dir := t.TempDir()
	e := Endpoint{Address: "0.0.0.0:0", CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	if _, err := e.Listen(t.Context()); err == nil {
		t.Fatal("files that are not there are accepted")
	}
	pool := identity(t, e)
	// Only loopback is opened, and it is served over TLS too if there is a certificate.
	e.Address = "127.0.0.1:0"
	l := listen(t, e)
	client := func(pool *x509.CertPool) *http.Client {
		return &http.Client{Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		}}
	}
	url := "https://" + l.Addr().String() + "/healthz"
	err := ServeWhile(t.Context(), l, Handler(New(), &Health{}), func(ctx context.Context) error {
		if code, _ := get(ctx, t, client(pool), url); code != http.StatusOK {
			t.Errorf("over TLS the answer is %d", code)
		}
		// A renewed certificate is served from the next connection on.
		renewed := identity(t, e)
		if code, _ := get(ctx, t, client(renewed), url); code != http.StatusOK {
			t.Errorf("with the renewed certificate the answer is %d", code)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What others can reach is never served in plain text: without a certificate, one is made.
func TestNothingIsServedInPlainText(t *testing.T) {
	for _, address := range []string{"0.0.0.0", "::", "192.0.2.1", ""} {
		c, err := Endpoint{}.secure(net.ParseIP(address))
		if err != nil || c == nil {
			t.Fatalf("%q is secured by %v, %v", address, c, err)
		}
		pair, err := c.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(pair.Certificate[0])
		if host, _ := os.Hostname(); err != nil || cert.VerifyHostname(host) != nil {
			t.Errorf("the certificate is for %v, %v", cert.DNSNames, err)
		}
	}
	for _, address := range []string{"127.0.0.1", "::1"} {
		if c, err := (Endpoint{}).secure(net.ParseIP(address)); err != nil || c != nil {
			t.Errorf("%s is secured by %v, %v", address, c, err)
		}
	}
}

func TestListenRefuses(t *testing.T) {
	for _, tt := range []struct {
		endpoint Endpoint
		want     string
	}{
		{Endpoint{Address: "127.0.0.1"}, "missing port"},
		{Endpoint{Address: "127.0.0.1:0", CertFile: "cert"}, "belong together"},
		{Endpoint{Address: "0.0.0.0:0", KeyFile: "key"}, "belong together"},
		{Endpoint{Address: "0.0.0.0:0", CertFile: "no-cert", KeyFile: "no-key"}, "no-cert"},
	} {
		l, err := tt.endpoint.Listen(t.Context())
		if err == nil {
			l.Close()
			t.Errorf("%+v is accepted", tt.endpoint)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v is refused with %q, want %q", tt.endpoint, err, tt.want)
		}
	}
	taken := listen(t, Endpoint{Address: "127.0.0.1:0"})
	if _, err := (Endpoint{Address: taken.Addr().String()}).Listen(t.Context()); err == nil {
		t.Error("an address that is taken is accepted")
	}
}

// When serving breaks, the work is stopped, so that nobody believes that a controller without metrics is well.
func TestServingBreaks(t *testing.T) {
	l := listen(t, Endpoint{Address: "127.0.0.1:0"})
	broken := errors.New("broken")
	err := ServeWhile(t.Context(), l, http.NotFoundHandler(), func(ctx context.Context) error {
		l.Close()
		<-ctx.Done()
		return broken
	})
	if !errors.Is(err, broken) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("the end is %v", err)
	}
}
