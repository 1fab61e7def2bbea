// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// candidates run several controllers that want to lead, and tell how many work at once.
type candidates struct {
	mu      sync.Mutex
	working int
	most    int
}

func (c *candidates) work(ctx context.Context) error {
	c.mu.Lock()
	c.working++
	c.most = max(c.most, c.working)
	c.mu.Unlock()
	<-ctx.Done()
	// Work that has begun takes a while to finish.
	<-time.After(3 * time.Second)
	c.mu.Lock()
	c.working--
	c.mu.Unlock()
	return nil
}

func TestOneLeaderAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		c := &candidates{}
		var wg sync.WaitGroup
		stops := make([]context.CancelFunc, 3)
		for i := range stops {
			ctx, stop := context.WithCancel(t.Context())
			stops[i] = stop
			wg.Go(func() {
				if err := lead(ctx, client, Options{}.withDefaults(), c.work); err != nil {
					t.Error(err)
				}
			})
			<-time.After(time.Second)
		}
		for _, stop := range stops {
			<-time.After(time.Minute)
			c.mu.Lock()
			if c.working != 1 {
				t.Errorf("%d controllers work", c.working)
			}
			c.mu.Unlock()
			stop()
			// The lease is free once the work is done, so that the next need not wait for its end.
			<-time.After(3*time.Second + 2*retryPeriod)
		}
		wg.Wait()
		if c.most != 1 {
			t.Errorf("%d controllers worked at once", c.most)
		}
	})
}

func TestLeadershipIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		begin := time.Now()
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return time.Since(begin) > time.Minute, nil, errors.New("unreachable")
		})
		c := &candidates{}
		err := lead(t.Context(), client, Options{}.withDefaults(), c.work)
		if err == nil || c.working != 0 {
			t.Errorf("the end is %v with %d at work", err, c.working)
		}
	})
}

func TestStoppedBeforeLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("unreachable")
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		c := &candidates{}
		if err := lead(ctx, client, Options{}.withDefaults(), c.work); err != nil || c.most != 0 {
			t.Errorf("the end is %v with %d that worked", err, c.most)
		}
	})
}

func TestWorkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		err := lead(t.Context(), fake.NewClientset(), Options{}.withDefaults(), func(context.Context) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("the end is %v", err)
		}
	})
}

func TestDefaults(t *testing.T) {
	o := Options{}.withDefaults()
	if o.Workers != 20 || o.QPS != 200 || o.Burst != 400 || o.LeaseNamespace != metav1.NamespaceSystem || o.Metrics == nil {
		t.Errorf("defaults are %+v", o)
	}
	if o := (Options{Workers: 2, LeaseName: "x"}).withDefaults(); o.Workers != 2 || o.LeaseName != "x" {
		t.Errorf("options become %+v", o)
	}
}

// Run asks the API server for all that it watches, and ends when it is told to although there is no answer.
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	asked, requests := map[string]bool{}, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path] = true
		// Of so many, all but one for each path have been answered.
		if requests++; len(asked) == 6 && requests >= 12 {
			stop()
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	m := telemetry.New()
	if err := Run(ctx, &rest.Config{Host: server.URL}, Options{Metrics: m}); err != nil {
		t.Fatal(err)
	}
	all := told(t, m)
	if n, err := strconv.Atoi(all[`rest_client_requests_total{code="503",method="GET"}`]); err != nil || n < 6 {
		t.Errorf("of six requests or more, %d are counted: %v", n, err)
	}
	if got := all[`leader_election_master_status{name="ordinal-controller"}`]; got != "1" {
		t.Errorf("that it works without a lease is told as %q", got)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{
		"/apis/apps/v1/statefulsets", "/apis/apps/v1/controllerrevisions", "/api/v1/pods", "/api/v1/persistentvolumeclaims",
		"/apis/ordinal.dev/v1alpha1/statefulsetpolicies", "/version",
	} {
		if !asked[path] {
			t.Errorf("%s is not asked for", path)
		}
	}
	if err := Run(ctx, &rest.Config{Host: "http://%"}, Options{}); err == nil {
		t.Error("a bad address is accepted")
	}
}
