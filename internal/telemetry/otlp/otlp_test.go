// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// collector takes traces.
type collector struct {
	*httptest.Server

	mu       sync.Mutex
	requests []*http.Request
	spans    []*tracepb.ResourceSpans
	// answers are the codes of the next answers; 200 after them.
	answers []int
}

func newCollector(t *testing.T, start func(*httptest.Server)) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err = errors.Join(err, proto.Unmarshal(body, &data)); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests = append(c.requests, r)
		if len(c.answers) > 0 {
			code := c.answers[0]
			c.answers = c.answers[1:]
			http.Error(w, "try later", code)
			return
		}
		c.spans = append(c.spans, data.GetResourceSpans()...)
	}))
	start(c.Server)
	t.Cleanup(c.Close)
	return c
}

// trace sends one span.
func trace(t *testing.T, endpoint string) {
	t.Helper()
	traces, err := Start(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	_, span := traces.Tracer().Start(t.Context(), telemetry.SpanSync)
	span.Set(telemetry.AttrName, "web")
	span.End(nil)
	traces.Stop(t.Context())
}

// A span arrives as the collector's service expects it, with what tells whose it is.
func TestTracesAreSent(t *testing.T) {
	c := newCollector(t, (*httptest.Server).Start)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x, tenant=t")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=home")
	trace(t, c.URL)
	if len(c.requests) != 1 || len(c.spans) != 1 {
		t.Fatalf("there are %d requests with %d resources", len(c.requests), len(c.spans))
	}
	r := c.requests[0]
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
		r.Header.Get("Authorization") != "Bearer x" || r.Header.Get("Tenant") != "t" {
		t.Errorf("the request is %s %s with %v", r.Method, r.URL, r.Header)
	}
	got := map[string]string{}
	for _, a := range c.spans[0].GetResource().GetAttributes() {
		got[a.GetKey()] = a.GetValue().GetStringValue()
	}
	for key, want := range map[string]string{"service.name": "ordinal-controller", "service.version": "dev", "k8s.cluster.name": "home"} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	span := c.spans[0].GetScopeSpans()[0].GetSpans()[0]
	if span.GetName() != telemetry.SpanSync || span.GetAttributes()[0].GetValue().GetStringValue() != "web" {
		t.Errorf("the span is %v", span)
	}
}

// The environment says where traces go if no endpoint is given, and whether they go at all.
func TestTargetOf(t *testing.T) {
	const base, exact = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, tt := range []struct {
		endpoint string
		env      map[string]string
		want     string
	}{
		{"", nil, ""},
		{"http://c:4318", nil, "http://c:4318/v1/traces"},
		{"http://c:4318/", nil, "http://c:4318/v1/traces"},
		{"http://c/otlp", nil, "http://c/otlp/v1/traces"},
		{"http://c:4318", map[string]string{base: "http://d"}, "http://c:4318/v1/traces"},
		{"", map[string]string{base: "http://d"}, "http://d/v1/traces"},
		{"", map[string]string{base: "http://d", exact: "http://e/spans"}, "http://e/spans"},
		{"", map[string]string{base: "http://d", "OTEL_SDK_DISABLED": "true"}, ""},
		{"", map[string]string{base: "http://d", "OTEL_TRACES_EXPORTER": "none"}, ""},
	} {
		t.Run(fmt.Sprint(tt.endpoint, tt.env), func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			if got, err := targetOf(tt.endpoint); got != tt.want || err != nil {
				t.Errorf("the target is %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	traces, err := Start(t.Context(), "")
	if traces != nil || err != nil || traces.Tracer() != nil {
		t.Errorf("without an endpoint there are traces: %v, %v", traces, err)
	}
	traces.Stop(t.Context())
}

func TestBadSettings(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://%", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_EXPORTER_OTLP_HEADERS": "a",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": empty, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": filepath.Join(dir, "none"),
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := "http://c"
			if strings.HasSuffix(name, "ENDPOINT") {
				endpoint = ""
			}
			t.Setenv(name, value)
			if _, err := Start(t.Context(), endpoint); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}

// A collector is known by the authority that the environment names, and by no other.
func TestTLS(t *testing.T) {
	c := newCollector(t, (*httptest.Server).StartTLS)
	s, err := newSender(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.client.Timeout = time.Minute
	if again, err := s.post(t.Context(), nil); err == nil || !again {
		t.Errorf("a collector that nobody knows is sent traces: %v", err)
	}
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", authority)
	trace(t, c.URL)
	if len(c.spans) != 1 {
		t.Errorf("%d spans have arrived", len(c.spans))
	}
}

// What a collector cannot take now is sent again, and what it refuses is not.
func TestTracesAreSentAgain(t *testing.T) {
	for codes, want := range map[[2]int]struct {
		requests int
		lost     bool
	}{
		{503, 429}: {3, false},
		{400, 200}: {1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			answers := codes[:]
			requests := 0
			s := &sender{target: "http://c", client: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				requests++
				code := http.StatusOK
				if len(answers) > 0 {
					code, answers = answers[0], answers[1:]
				}
				return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader("no"))}, nil
			})}}
			err := s.UploadTraces(t.Context(), nil)
			if requests != want.requests || (err != nil) != want.lost {
				t.Errorf("after %v there are %d requests, %v", codes, requests, err)
			}
		})
	}
}

// That traces are lost is not told again and again.
func TestComplaints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		c := &complaints{tell: func(error) { told++ }}
		for range 10 {
			c.Handle(errors.New("lost"))
			<-time.After(10 * time.Second)
		}
		if told != 2 {
			t.Errorf("in a hundred seconds it is told %d times", told)
		}
	})
}

func TestHeaders(t *testing.T) {
	got, err := headersOf(" a=1 ,b=x%3Dy,,c= ")
	if want := map[string]string{"a": "1", "b": "x=y", "c": ""}; err != nil || !maps.Equal(got, want) {
		t.Errorf("the headers are %v, %v", got, err)
	}
}

// roundTripper is a function that carries out requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip carries out a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
