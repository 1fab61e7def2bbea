// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller watches StatefulSets and all that belongs to them, and brings each one nearer to its spec: observe,
// plan, apply, settle the status.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/internal/apply"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/status"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

const (
	// staleRecheck is how long a sync that waits for the caches waits at most until it looks again. The event that it waits
	// for wakes it earlier, unless the event was swallowed because its object came and went between two listings.
	staleRecheck = time.Second
	// retryFirst and retryMax bound the delay after which a failed sync is tried again.
	retryFirst = 20 * time.Millisecond
	retryMax   = 30 * time.Second
)

// Controller keeps StatefulSets. It is used once.
type Controller struct {
	ready     func()
	informers *observe.Informers
	observer  *observe.Observer
	watermark *observe.Watermark
	applier   *apply.Applier
	metrics   *telemetry.Metrics
	health    *telemetry.Health
	tracer    *telemetry.Tracer
	crew      *crew
	memories  memories
	rivals    rivals
	// named means that the API server knows what is written here by telemetry.Manager.
	named bool
	queue workqueue.TypedRateLimitingInterface[observe.Key]
}

// New makes a controller.
func New(client kubernetes.Interface, recorder apply.Recorder, o Options) (*Controller, error) {
	o = o.withDefaults()
	informers, err := o.Scope.NewInformers(client, o.Policies, o.Resync)
	if err != nil {
		return nil, err
	}
	watermark := observe.NewWatermark(informers)
	workers := &crew{size: o.Workers}
	c := &Controller{
		ready:     o.Ready,
		informers: informers,
		observer: observe.New(informers, watermark, plan.Options{
			Defaulter: o.Defaulter, Recreate: o.Recreate, Strict: o.Strict,
		}),
		watermark: watermark,
		applier: &apply.Applier{
			Client: client, Policies: o.Policies, Recorder: recorder, Watermark: watermark, Metrics: o.Metrics,
			Tracer: o.Tracer, Progress: workers.progress,
		},
		metrics:  o.Metrics,
		health:   o.Health,
		tracer:   o.Tracer,
		crew:     workers,
		named:    o.named,
		memories: memories{strict: o.Strict},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[observe.Key](retryFirst, retryMax),
			workqueue.TypedRateLimitingQueueConfig[observe.Key]{Name: "statefulset", MetricsProvider: o.Metrics.Queue},
		),
	}
	if err := informers.Handle(c.queue.Add); err != nil {
		return nil, err
	}
	return c, nil
}

// Run works until ctx is done. Syncs that have begun are then brought to an end.
func (c *Controller) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer c.informers.Shutdown()
	defer stop()
	defer c.queue.ShutDown()
	if c.named {
		if err := c.watchRivals(ctx); err != nil {
			return err
		}
	}
	c.health.AddReady(c.informers.Filled)
	c.health.AddAlive(c.crew.alive)
	c.informers.Start(watching)
	if !c.informers.WaitForSync(ctx.Done()) {
		return nil
	}
	log.Info("Started", "workers", c.crew.size)
	c.health.Working()
	if c.ready != nil {
		c.ready()
	}
	c.crew.work = func() {
		for c.next(ctx) {
		}
	}
	c.crew.start()
	<-ctx.Done()
	c.queue.ShutDown()
	c.crew.wait()
	log.Info("Stopped")
	return nil
}

// next works on the next set in the queue; false when the worker is to stop.
func (c *Controller) next(ctx context.Context) bool {
	key, stopped := c.queue.Get()
	if stopped {
		return false
	}
	if rest := c.restOf(ctx, key); rest > 0 {
		c.postpone(key, rest)
		return true
	}
	switch c.crew.do(key, func() { c.process(ctx, key) }) {
	case leaves:
		return false
	case postponed:
		c.postpone(key, patience)
	case stays:
	}
	return true
}

// postpone gives a set back that was taken from the queue, to be taken again later.
func (c *Controller) postpone(key observe.Key, by time.Duration) {
	c.queue.AddAfter(key, by)
	c.queue.Done(key)
}

// process syncs a set, and sees to it that this is done again if need be.
func (c *Controller) process(ctx context.Context, key observe.Key) {
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return
	}
	started := time.Now()
	result, err := c.sync(klog.NewContext(ctx, klog.FromContext(ctx).WithValues(telemetry.KeySet, key)), key, started)
	c.metrics.Synced(telemetry.Key(key), result, time.Since(started))
	switch {
	case result == telemetry.SyncConflict:
		c.queue.AddRateLimited(key)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Sync failed", telemetry.KeySet, key)
		c.queue.AddRateLimited(key)
	default:
		c.queue.Forget(key)
	}
}

// errConflict is why a sync is done again: the world was not as planned for.
var errConflict = errors.New("conflict")

// sync brings a set nearer to its spec.
func (c *Controller) sync(ctx context.Context, key observe.Key, now time.Time) (result string, err error) {
	ctx, span := c.tracer.Start(ctx, telemetry.SpanSync)
	span.Set(telemetry.AttrNamespace, key.Namespace)
	span.Set(telemetry.AttrName, key.Name)
	defer func() {
		span.Set(telemetry.AttrResult, result)
		span.End(err)
	}()
	_, looking := c.tracer.Start(ctx, telemetry.SpanObserve)
	snapshot, view, err := c.observer.Look(key, now)
	looking.End(err)
	switch {
	case err != nil:
		return telemetry.SyncFailed, err
	case view == observe.Gone:
		errs := c.settleOrphans(ctx, key, now)
		c.forget(key)
		if !c.watermark.IsReached(key) {
			c.queue.AddAfter(key, staleRecheck)
		}
		return resultOf(errs...)
	case view == observe.Foreign:
		c.forget(key)
		return telemetry.SyncDone, nil
	case view == observe.Stale:
		c.queue.AddAfter(key, staleRecheck)
		return telemetry.SyncStale, nil
	}
	return c.act(ctx, key, snapshot)
}

// act plans from a snapshot, and carries that out.
func (c *Controller) act(ctx context.Context, key observe.Key, snapshot plan.Snapshot) (string, error) {
	memory := c.memories.of(key)
	memory.renew(snapshot.Set.Generation)
	memory.tell(&snapshot)

	_, planning := c.tracer.Start(ctx, telemetry.SpanPlan)
	todo := plan.Make(snapshot)
	planning.End(nil)
	memory.found = todo.Found
	memory.rest = restAfter(snapshot, todo)
	outcomes := c.applier.Apply(ctx, snapshot.Set, todo)
	if lost := context.Cause(ctx); errors.Is(lost, apply.ErrLeaseLost) {
		return telemetry.SyncFailed, lost
	}
	memory.learn(outcomes, snapshot.Now)
	for _, w := range memory.news(todo.Waits) {
		c.applier.Announce(snapshot.Set, w)
	}
	settling, span := c.tracer.Start(ctx, telemetry.SpanStatus)
	ends := []error{c.failureOf(outcomes), c.settle(settling, snapshot, todo, outcomes)}
	ends = append(ends, c.settlePolicies(settling, status.Policies(snapshot, todo, outcomes))...)
	span.End(errors.Join(ends...))
	c.scheduleNext(key, snapshot, todo, memory)
	return resultOf(ends...)
}

// resultOf is how a sync ends. A conflict beside a failure is no news.
func resultOf(ends ...error) (string, error) {
	var failure, conflict error
	for _, err := range ends {
		if errors.Is(err, errConflict) {
			conflict = err
		} else {
			failure = errors.Join(failure, err)
		}
	}
	switch {
	case failure != nil:
		return telemetry.SyncFailed, failure
	case conflict != nil:
		return telemetry.SyncConflict, conflict
	default:
		return telemetry.SyncDone, nil
	}
}

// scheduleNext wakes the set when time alone changes what has to be done or told.
func (c *Controller) scheduleNext(key observe.Key, s plan.Snapshot, p plan.Plan, m *memory) {
	for _, at := range []time.Time{p.Requeue, status.LookAgain(s, p)} {
		if !at.IsZero() {
			c.queue.AddAfter(key, time.Until(at))
		}
	}
	for _, b := range []backoff{m.creates, m.replaces, m.evictions} {
		for _, at := range b.until() {
			if at.After(s.Now) {
				c.queue.AddAfter(key, time.Until(at))
			}
		}
	}
}

// forget drops what is remembered of a set that is gone, but for the writes that the caches do not show yet: another set of that name
// would be planned without them.
func (c *Controller) forget(key observe.Key) {
	c.memories.forget(key)
	c.metrics.Forget(telemetry.Key(key))
}

// failureOf is why a sync has to be done again soon; nil if it need not be. A refused creation has its own back-off, unless
// all is done as upstream.
func (c *Controller) failureOf(outcomes []plan.Outcome) error {
	var failure error
	for _, o := range outcomes {
		switch o.Result {
		case plan.ResultFailed:
			// What a namespace that is being deleted refuses, it will refuse until the set has gone with it.
			isEnding := apierrors.HasStatusCause(o.Err, corev1.NamespaceTerminatingCause)
			if !isEnding && (c.memories.strict || !isCreation(o.Action)) {
				return fmt.Errorf("%s: %w", o.Action, o.Err)
			}
		case plan.ResultConflict:
			failure = errConflict
		case plan.ResultDone, plan.ResultGone, plan.ResultCollision, plan.ResultBlocked:
		}
	}
	return failure
}

func isCreation(a plan.Action) bool {
	switch a.(type) {
	case plan.CreatePod, plan.CreateClaim:
		return true
	default:
		return false
	}
}
