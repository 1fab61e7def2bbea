// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/ordinal-dev/ordinal/internal/apply"
)

const (
	// leaseSlack is for how long a leader whose lease has ended may still be there, bringing its work to an end.
	leaseSlack = time.Minute
	// standbySlack is for how long the lease may not be readable until one that stands by says that it could not take over.
	standbySlack = time.Minute
)

// lease keeps watch over the lease of this process, and lets nothing be written without it. client-go's elector alone would notice
// its loss some seconds late: while it tries to give the lease back, and after the whole process stood still.
type lease struct {
	// term is for how long an acquisition or a renewal counts from its beginning.
	term time.Duration
	name string

	mu sync.Mutex
	// held means that the lease is ours until it ends, which is when timer fires.
	held  bool
	ends  time.Time
	timer *time.Timer
	// leads means that work goes on that needs the lease.
	leads bool
	// stop ends that work.
	stop func()
	// writes are those that are under way.
	writes map[*write]bool
	// reached is when the API server last told of the lease, and trouble why it did not since.
	reached time.Time
	trouble error
}

// write is one that is under way.
type write struct {
	cancel context.CancelCauseFunc
}

func newLease(o Options) *lease {
	return &lease{
		// An elector gives up no later than that.
		term:    min(o.LeaseDuration, o.RenewDeadline+o.RetryPeriod),
		name:    o.LeaseNamespace + "/" + o.LeaseName,
		writes:  map[*write]bool{},
		reached: time.Now(),
	}
}

// watch is a lock that tells the lease how it fares.
func (l *lease) watch(lock resourcelock.Interface) resourcelock.Interface {
	return watchedLock{Interface: lock, lease: l}
}

type watchedLock struct {
	resourcelock.Interface

	lease *lease
}

// Get reads the lease.
func (w watchedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := w.Interface.Get(ctx)
	w.lease.asked(err)
	if err == nil && record.HolderIdentity != w.Identity() {
		w.lease.lose()
	}
	return record, raw, err
}

// Create makes the lease, which is then ours.
func (w watchedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	err := w.Interface.Create(ctx, record)
	w.wrote(began, record, err)
	return err
}

// Update renews the lease, takes it over, or gives it back.
func (w watchedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := time.Now()
	if record.HolderIdentity != w.Identity() {
		w.lease.lose()
	}
	err := w.Interface.Update(ctx, record)
	w.wrote(began, record, err)
	return err
}

func (w watchedLock) wrote(began time.Time, record resourcelock.LeaderElectionRecord, err error) {
	w.lease.asked(err)
	if err == nil && record.HolderIdentity == w.Identity() {
		w.lease.renew(began)
	}
}

// asked notes what became of a request about the lease.
func (l *lease) asked(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble = err; err == nil {
		l.reached = time.Now()
	}
}

// renew notes that the lease is ours, by a request that began at that time.
func (l *lease) renew(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.ends = true, began.Add(l.term)
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timer = time.AfterFunc(time.Until(l.ends), l.expire)
}

// expire loses the lease if it has ended.
func (l *lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.ends) {
		l.drop()
	}
}

// lose notes that the lease is not ours, or will not be in a moment.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// drop ends all that needs the lease. The caller has the lock.
func (l *lease) drop() {
	if !l.held {
		return
	}
	l.held = false
	l.timer.Stop()
	if l.stop != nil {
		l.stop()
	}
	for w := range l.writes {
		w.cancel(apply.ErrLeaseLost)
	}
}

// work lets stop be called when the lease is lost, until the function is called that is given back.
func (l *lease) work(stop func()) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads, l.stop = true, stop
	if !l.held {
		stop()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leads, l.stop = false, nil
	}
}

// begin takes note of a write; false if the lease is lost.
func (l *lease) begin(w *write) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held && !time.Now().Before(l.ends) {
		// The timer is late, as when the whole process stood still.
		l.drop()
	}
	if l.held {
		l.writes[w] = true
	}
	return l.held
}

func (l *lease) end(w *write) {
	l.mu.Lock()
	delete(l.writes, w)
	l.mu.Unlock()
	w.cancel(nil)
}

// fence is a client that writes only while the lease is held. What is under way when it is lost is given up.
func (l *lease) fence(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return next.RoundTrip(r)
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		w := &write{cancel: cancel}
		if !l.begin(w) {
			cancel(nil)
			return nil, apply.ErrLeaseLost
		}
		answer, err := next.RoundTrip(r.WithContext(ctx))
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, apply.ErrLeaseLost) {
				err = cause
			}
			l.end(w)
			return nil, err
		}
		answer.Body = &fencedBody{ReadCloser: answer.Body, end: func() { l.end(w) }}
		return answer, nil
	})
}

// fencedBody is the end of a write: an answer is read before its request is over.
type fencedBody struct {
	io.ReadCloser

	end func()
}

// Close ends the request.
func (b *fencedBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// alive fails if work that needs the lease goes on long after it was lost.
func (l *lease) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if late := time.Since(l.ends); l.leads && late > leaseSlack {
		return fmt.Errorf("the lease %s was not renewed in time, and the work that needs it has not ended for %s", l.name, late.Round(time.Second))
	}
	return nil
}

// ready fails if nothing is known of the lease, so that it could not be taken over.
func (l *lease) ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if silence := time.Since(l.reached); l.trouble != nil && silence > standbySlack {
		return fmt.Errorf("the lease %s could not be read or written for %s: %w", l.name, silence.Round(time.Second), l.trouble)
	}
	return nil
}
