// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/ordinal-dev/ordinal/internal/apply"
	"github.com/ordinal-dev/ordinal/internal/events"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
	"github.com/ordinal-dev/ordinal/internal/version"
)

// Options choose how the controller runs. The zero value is good for use.
type Options struct {
	// Workers is how many sets are synced at once; 20 if it is zero.
	Workers int
	// Scope says which sets are worked on; all if it is zero.
	Scope observe.Scope
	// Resync is how often each set is looked at although nothing has changed; never if it is zero.
	Resync time.Duration
	// Defaulter fills in what the API server fills in by default. It is how a template that was recorded before a field got
	// its default is known to be the same. Nil compares templates as they are.
	Defaulter func(*appsv1.StatefulSet)
	// Recreate allows the update strategy Recreate: feature gate StatefulSetRecreateStrategy.
	Recreate bool
	// Strict does as Kubernetes' own controller does, also where that is known to get stuck.
	Strict bool
	// Policies gives the StatefulSetPolicies to obey; nil for none. Run makes it by itself.
	Policies observe.PolicyClient
	// QPS and Burst bound the requests per second to the API server; 200 and 400 if they are zero. Events have a budget of
	// their own of the same size.
	QPS   float32
	Burst int
	// LeaderElect lets only one of several controllers work at a time.
	LeaderElect bool
	// LeaseNamespace and LeaseName name the lease by which a leader is elected; kube-system and ordinal-controller if they
	// are empty.
	LeaseNamespace, LeaseName string
	// LeaseDuration is how long others wait for a leader that is silent, RenewDeadline how long one that cannot renew the lease goes
	// on, and RetryPeriod the pause between two attempts; 15 s, 10 s and 2 s if they are zero, as Kubernetes' own controllers have.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Metrics are counted up; nil for metrics that nobody sees.
	Metrics *telemetry.Metrics
	// Ready, if set, is called once sets are being worked on.
	Ready func()
	// Health is told how the controller fares; nil for nobody.
	Health *telemetry.Health
	// Tracer traces syncs; nil for none.
	Tracer *telemetry.Tracer
	// lease is the lease of the leader; nil without an election.
	lease *lease
	// wire looks at all requests; nil if nobody does.
	wire *wire
	// named means that the API server knows what the client writes by telemetry.Manager, so that other writers are known.
	named bool
}

func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(o.Workers, 20)
	o.QPS = cmp.Or(o.QPS, 200)
	o.Burst = cmp.Or(o.Burst, 400)
	o.LeaseNamespace = cmp.Or(o.LeaseNamespace, metav1.NamespaceSystem)
	o.LeaseName = cmp.Or(o.LeaseName, "ordinal-controller")
	if o.Metrics == nil {
		o.Metrics = telemetry.New()
	}
	o.LeaseDuration = cmp.Or(o.LeaseDuration, leaseDuration)
	o.RenewDeadline = cmp.Or(o.RenewDeadline, renewDeadline)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, retryPeriod)
	if o.Health == nil {
		o.Health = &telemetry.Health{}
	}
	return o
}

// Times of the lease, unless it is told otherwise.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Run keeps the StatefulSets of the cluster of cfg until ctx is done.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	o = o.withDefaults()
	o.named, o.wire = true, &wire{}
	o.Health.AddAlive(o.wire.alive)
	o.Health.AddReady(o.wire.ready)
	if o.LeaderElect {
		o.lease = newLease(o)
	}
	client, err := newClient(workConfig(cfg, o))
	if err != nil {
		return err
	}
	if o.Policies, err = observe.NewPolicyClient(workConfig(cfg, o)); err != nil {
		return err
	}
	// Events must not take from the budget of pods.
	eventClient, err := newClient(config(cfg, o, "ordinal-events"))
	if err != nil {
		return err
	}
	log := events.New(eventClient.CoreV1(), telemetry.Component)
	defer writeEvents(ctx, log)()

	work := func(ctx context.Context) error {
		var asking sync.WaitGroup
		defer asking.Wait()
		asking.Go(func() { tellVersion(ctx, client) })
		c, err := New(client, log, o)
		if err != nil {
			return err
		}
		return c.Run(ctx)
	}
	if o.LeaderElect {
		leaseClient, err := newClient(config(cfg, o, "ordinal-lease"))
		if err != nil {
			return err
		}
		return lead(ctx, leaseClient, o, work)
	}
	o.Metrics.Leads(true)
	return work(ctx)
}

func config(cfg *rest.Config, o Options, agent string) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.UserAgent = agent + "/" + version.Get()
	c.QPS, c.Burst = o.QPS, o.Burst
	c.Wrap(o.Metrics.Transport)
	c.Wrap(o.wire.look)
	// An API server is near. To compress and uncompress what it sends costs more, on both sides, than to send it.
	c.DisableCompression = true
	// HTTP/2 would cost a sixth more here and a tenth more there, and let one lost packet hold up all requests.
	c.NextProtos = []string{"http/1.1"}
	c.Dial = dialer.DialContext
	return c
}

// dialer finds out within half a minute that an API server is gone without a word, also where only watched.
var dialer = &net.Dialer{
	Timeout:         30 * time.Second,
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
}

// workConfig is for all that needs the lease.
func workConfig(cfg *rest.Config, o Options) *rest.Config {
	c := config(cfg, o, telemetry.Manager)
	c.Wrap(steady)
	if o.lease != nil {
		c.Wrap(o.lease.fence)
	}
	return c
}

func newClient(c *rest.Config) (kubernetes.Interface, error) {
	c.Wrap(impatient)
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// impatient makes a client that is told at once when a PodDisruptionBudget holds up an eviction. client-go by itself would wait
// and ask again for as long as the write may take.
func impatient(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil && answer.StatusCode == http.StatusTooManyRequests && strings.HasSuffix(r.URL.Path, "/eviction") {
			answer.Header.Del("Retry-After")
		}
		return answer, err
	})
}

// roundTripper is a function that carries out requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip carries out a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// writeEvents writes events until the function that it gives is called, which returns when those that wait are written.
func writeEvents(ctx context.Context, log *events.Log) (stop func()) {
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { log.Run(writing) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// lead does the work while this process is the elected leader, and stops it at once when it is not any more. The lease is given
// back when the work has ended, so that no two leaders work at once.
func lead(ctx context.Context, client kubernetes.Interface, o Options, work func(context.Context) error) error {
	if o.lease == nil {
		o.lease = newLease(o)
	}
	o.Health.AddAlive(o.lease.alive)
	o.Health.AddReady(o.lease.ready)
	leasing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var leads atomic.Bool
	results := make(chan error, 1)
	elector, err := newElector(client, o, func(leading context.Context) {
		leads.Store(true)
		o.Health.Standby(false)
		o.Metrics.Leads(true)
		defer o.Metrics.Leads(false)
		working, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		lost := func() { stop(apply.ErrLeaseLost) }
		defer o.lease.work(lost)()
		defer context.AfterFunc(leading, lost)()
		results <- work(working)
		release()
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		if !leads.Load() {
			release()
		}
	})()
	o.Health.Standby(true)
	o.Metrics.Leads(false)
	elector.Run(leasing)
	if !leads.Load() {
		return nil
	}
	if err := <-results; err != nil || ctx.Err() != nil {
		return err
	}
	return errors.New("the lease is lost: it could not be renewed in time, or another controller has taken it")
}

func newElector(client kubernetes.Interface, o Options, started func(context.Context)) (*leaderelection.LeaderElector, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get hostname: %w", err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: o.lease.watch(&resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.LeaseNamespace, Name: o.LeaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		}),
		LeaseDuration:   o.LeaseDuration,
		RenewDeadline:   o.RenewDeadline,
		RetryPeriod:     o.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            o.LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: started,
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make leader elector: %w", err)
	}
	return elector, nil
}
