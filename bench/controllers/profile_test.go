// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// Work of any length ends up in one CPU profile, and the profiles of memory are taken beside it.
func TestRecording(t *testing.T) {
	var windows atomic.Int32
	second := make(chan struct{})
	next := telemetry.WithProfiles(http.NotFoundHandler())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/profile") && windows.Add(1) == 2 {
			close(second)
		}
		next.ServeHTTP(w, r)
	}))
	defer server.Close()
	r := &recording{
		dir: filepath.Join(t.TempDir(), "profiles"), scenario: "work", scratch: t.TempDir(), window: time.Second, done: make(chan struct{}),
	}
	r.follow(t.Context(), profiled{name: "server", url: server.URL, client: server.Client()})
	<-second
	if err := r.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{"cpu": "Type: cpu\n", "heap": "Type: inuse_space\n", "allocs": "Type: alloc_space\n"} {
		out, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", filepath.Join(r.dir, "work.server."+kind+".pb.gz")).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("the profile %s is %v\n%s", kind, err, out)
		}
		if kind != "cpu" {
			continue
		}
		var seconds float64
		_, after, _ := strings.Cut(string(out), "Duration: ")
		if _, err := fmt.Sscanf(after, "%fs", &seconds); err != nil || seconds < 2 {
			t.Errorf("two windows last %.20q together, %v", after, err)
		}
	}
	if left, err := os.ReadDir(r.scratch); err != nil || len(left) > 0 {
		t.Errorf("of the windows %v are left, %v", left, err)
	}
}

func TestProfilesThatCannotBeHad(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	r := &recording{dir: t.TempDir(), scratch: t.TempDir(), window: time.Second, done: make(chan struct{})}
	r.follow(t.Context(), profiled{name: "server", url: server.URL, client: server.Client()})
	if err := r.end(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the recording ends with %v", err)
	}
}

// A profile slows down what it looks at, so there is nothing to compare then.
func TestContenders(t *testing.T) {
	for _, tt := range []struct {
		options options
		round   int
		want    string
	}{
		{options{}, 1, "[kube-controller-manager ordinal]"},
		{options{}, 2, "[ordinal kube-controller-manager]"},
		{options{profiles: "dir"}, 1, "[ordinal]"},
	} {
		if got := fmt.Sprint(tt.options.contenders(tt.round)); got != tt.want {
			t.Errorf("round %d with %+v is for %s, want %s", tt.round, tt.options, got, tt.want)
		}
	}
}
