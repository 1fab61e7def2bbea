// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/apply"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// wired is an API server behind a fence, which notes when something reached it last.
type wired struct {
	mu   sync.Mutex
	last time.Time
	// hangs means that it does not answer.
	hangs atomic.Bool
}

// RoundTrip carries out a request.
func (w *wired) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.last = time.Now()
	w.mu.Unlock()
	if w.hangs.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok"))}, nil
}

// ask makes a request and reads the answer.
func ask(ctx context.Context, t *testing.T, client http.RoundTripper, method string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://server/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.ReadAll(answer.Body)
	return errors.Join(err, answer.Body.Close())
}

// fenced are options with a lease of the usual times.
func fenced(h *telemetry.Health) Options {
	o := Options{Health: h}.withDefaults()
	o.lease = newLease(o)
	return o
}

// A leader that cannot renew its lease writes until the lease ends, and nothing after that, even if its work does not notice.
func TestNothingIsWrittenWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases, server := fake.NewClientset(), &wired{}
		var renewed time.Time
		deaf := time.Now().Add(time.Minute)
		leases.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if time.Now().Before(deaf) {
				if a.GetVerb() != "get" {
					renewed = time.Now()
				}
				return false, nil, nil
			}
			return true, nil, errors.New("unreachable")
		})
		h := &telemetry.Health{}
		o := fenced(h)
		client := o.lease.fence(server)
		end := make(chan struct{})
		// It does not know that its work is to stop.
		unaware := t.Context()
		try := func(method string) error { return ask(unaware, t, client, method) }
		err := lead(t.Context(), leases, o, func(ctx context.Context) error {
			for ctx.Err() == nil {
				// At the very moment of the end it may be either way.
				if err := try(http.MethodPost); err != nil && time.Since(renewed) < o.lease.term {
					t.Errorf("%s after the last renewal, a write ends with %v", time.Since(renewed), err)
				}
				<-time.After(100 * time.Millisecond)
			}
			if cause := context.Cause(ctx); !errors.Is(cause, apply.ErrLeaseLost) {
				t.Errorf("the work ends for %v", cause)
			}
			if took := time.Since(renewed); took > o.lease.term+time.Second {
				t.Errorf("the work is stopped %s after the last renewal", took)
			}
			// What has not noticed may read, but not write.
			if err := try(http.MethodPut); !errors.Is(err, apply.ErrLeaseLost) || !errors.Is(err, context.Canceled) {
				t.Errorf("a write without the lease ends with %v", err)
			}
			if err := try(http.MethodGet); err != nil {
				t.Errorf("a read without the lease ends with %v", err)
			}
			if err := h.Alive(); err != nil {
				t.Errorf("the end of its work makes it unhealthy: %v", err)
			}
			<-time.After(2 * time.Minute)
			if err := h.Alive(); err == nil || !strings.Contains(err.Error(), "kube-system/ordinal-controller was not renewed") {
				t.Errorf("work that goes on for long without the lease makes it unhealthy with %v", err)
			}
			close(end)
			return nil
		})
		<-end
		if err == nil || !strings.Contains(err.Error(), "the lease is lost") {
			t.Errorf("the end is %v", err)
		}
		if err := h.Alive(); err != nil {
			t.Errorf("after its end it is unhealthy: %v", err)
		}
	})
}

// A write that is under way when the lease ends is given up.
func TestWriteUnderWayIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &wired{}
		l := fenced(nil).lease
		client := l.fence(server)
		l.renew(time.Now())
		if err := ask(t.Context(), t, client, http.MethodPost); err != nil || len(l.writes) != 0 {
			t.Fatalf("a write ends with %v, and %d are said to be under way", err, len(l.writes))
		}
		server.hangs.Store(true)
		began := time.Now()
		err := ask(t.Context(), t, client, http.MethodPost)
		if took := time.Since(began); !errors.Is(err, apply.ErrLeaseLost) || took != l.term {
			t.Errorf("after %s it ends with %v", took, err)
		}
		// Its own deadline is another matter.
		l.renew(time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ask(ctx, t, client, http.MethodPost); errors.Is(err, apply.ErrLeaseLost) || !errors.Is(err, context.DeadlineExceeded) || len(l.writes) != 0 {
			t.Errorf("a write that takes too long ends with %v, and %d are said to be under way", err, len(l.writes))
		}
		l.lose()
	})
}

// A process that stood still, as in a machine that was suspended, writes nothing when it goes on after the end of its lease, although
// its timers have not fired yet.
func TestProcessThatStoodStillWritesNothing(t *testing.T) {
	server := &wired{}
	l := fenced(nil).lease
	l.renew(time.Now())
	stopped := false
	defer l.work(func() { stopped = true })()
	l.mu.Lock()
	l.ends = time.Now().Add(-time.Millisecond)
	l.mu.Unlock()
	if err := ask(t.Context(), t, l.fence(server), http.MethodPost); !errors.Is(err, apply.ErrLeaseLost) || !server.last.IsZero() {
		t.Errorf("the write ends with %v, and reached the server at %s", err, server.last)
	}
	if !stopped {
		t.Error("the work goes on")
	}
}

// A lease that another has taken is lost as soon as that is seen.
func TestLeaseIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := fake.NewClientset()
		// The next renewal after the lease was taken is refused, as the lease has changed, and then it is read.
		var isTaken atomic.Bool
		leases.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if isTaken.Load() {
				return true, nil, errors.New("conflict")
			}
			return false, nil, nil
		})
		o := fenced(nil)
		err := lead(t.Context(), leases, o, func(ctx context.Context) error {
			api := leases.CoordinationV1().Leases(o.LeaseNamespace)
			taken, err := api.Get(ctx, o.LeaseName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			taken.Spec = coordinationv1.LeaseSpec{
				HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NowMicro()), AcquireTime: new(metav1.NowMicro()),
			}
			if _, err := api.Update(ctx, taken, metav1.UpdateOptions{}); err != nil {
				return err
			}
			isTaken.Store(true)
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); took > 2*retryPeriod {
				t.Errorf("it goes on for %s", took)
			}
			return nil
		})
		if err == nil {
			t.Error("the end is no failure")
		}
	})
}

// The batch that is under way when the lease is lost is not finished, and no status is written.
func TestBatchStopsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		o := fenced(nil)
		created := 0
		c.answer = func(a clienttesting.Action) error {
			if a.GetVerb() == "create" && a.GetResource() == podsResource {
				if created++; created == 20 {
					o.lease.lose()
				}
			}
			return nil
		}
		c.create(setsResource, newSet(parallel, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(100)) }))
		err := lead(t.Context(), fake.NewClientset(), o, func(ctx context.Context) error {
			var wg sync.WaitGroup
			defer wg.Wait()
			c.control(ctx, &wg, o)
			<-ctx.Done()
			return nil
		})
		if err == nil {
			t.Error("the end is no failure")
		}
		// Batches are of 1, 2, 4, 8 and 16 pods; the last was at work, and 8 at a time are made.
		if pods := len(c.pods()); pods < 20 || pods > 27 {
			t.Errorf("%d pods are there, want 20 and those that were under way", pods)
		}
		if n := c.set().Status.Replicas; n != 0 {
			t.Errorf("the status counts %d pods, want that it was not written", n)
		}
	})
}

// One that stands by says so when it could not take over, as it cannot read the lease.
func TestStandbyThatCannotReadTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := fake.NewClientset()
		var broken atomic.Bool
		broken.Store(true)
		leases.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return broken.Load(), &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro()), AcquireTime: new(metav1.NowMicro()),
			}}, errors.New("no rights")
		})
		h := &telemetry.Health{}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := lead(ctx, leases, fenced(h), func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
				t.Error(err)
			}
		})
		pass(30 * time.Second)
		if err := h.Ready(); err != nil {
			t.Errorf("soon it is not ready: %v", err)
		}
		pass(time.Minute)
		if err := h.Ready(); err == nil || !strings.Contains(err.Error(), "no rights") || h.Alive() != nil {
			t.Errorf("it is ready: %v; alive: %v", err, h.Alive())
		}
		broken.Store(false)
		pass(time.Minute)
		h.Working()
		if err := h.Ready(); err != nil {
			t.Errorf("once the lease can be read it is not ready: %v", err)
		}
		stop()
		wg.Wait()
	})
}
