// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

func TestControllerRefusesBadFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--workers=0", "--workers must be at least 1"},
		{"--kube-api-qps=0", "--kube-api-qps must be more than 0"},
		{"--kube-api-burst=0", "--kube-api-burst must be at least 1"},
		{"--metrics-cert-file=cert", "need --metrics-bind-address"},
		{"--pprof", "needs --metrics-bind-address"},
	} {
		cmd := New()
		cmd.SetArgs(strings.Fields(tt.args))
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s ends with %v, want %q", tt.args, err, tt.want)
		}
	}
	o := options{metrics: telemetry.Endpoint{Address: "0.0.0.0:0"}}
	if err := o.run(t.Context(), &rest.Config{}); err == nil || !strings.Contains(err.Error(), "no loopback address") {
		t.Errorf("metrics for everybody without TLS end with %v", err)
	}
}

// The metrics are served while the controller runs, and it is not ready before it has seen the cluster.
func TestControllerServesMetrics(t *testing.T) {
	serves(t, options{}, map[string]int{
		"/healthz": http.StatusOK, "/metrics": http.StatusOK, "/readyz": http.StatusServiceUnavailable,
		"/debug/pprof/": http.StatusNotFound, "/debug/pprof/heap": http.StatusNotFound,
	})
}

func TestControllerServesProfiles(t *testing.T) {
	serves(t, options{pprof: true}, map[string]int{
		"/healthz": http.StatusOK, "/metrics": http.StatusOK, "/readyz": http.StatusServiceUnavailable,
		"/debug/pprof/": http.StatusOK, "/debug/pprof/heap": http.StatusOK,
	})
}

// serves runs a controller, which has to answer so on a free address.
func serves(t *testing.T, o options, want map[string]int) {
	t.Helper()
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	status := func(path string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Error(err)
			return 0
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	// The API server, when it is asked first, looks at the controller that asks.
	var look sync.Once
	asked := false
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		look.Do(func() {
			defer stop()
			asked = true
			for path, code := range want {
				if got := status(path); got != code {
					t.Errorf("%s answers %d, want %d", path, got, code)
				}
			}
		})
	}))
	defer api.Close()
	o.metrics, o.Options = telemetry.Endpoint{Address: address}, controller.Options{Workers: 1}
	if err := o.run(ctx, &rest.Config{Host: api.URL}); err != nil {
		t.Fatal(err)
	}
	if !asked {
		t.Error("the controller has asked nothing")
	}
}

func TestControllerFlags(t *testing.T) {
	f := New().Flags()
	for name, want := range map[string]string{
		"recreate-strategy": "false", "strict-upstream": "false", "metrics-bind-address": "", "pprof": "false", "workers": "5", "leader-elect": "true",
	} {
		if flag := f.Lookup(name); flag == nil || flag.DefValue != want {
			t.Errorf("--%s is %+v, want the default %q", name, flag, want)
		}
	}
}
