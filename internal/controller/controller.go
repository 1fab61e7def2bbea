// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller watches StatefulSets and all that belongs to them, and brings each one nearer to its spec: observe,
// plan, apply, settle the status.
package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
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
	workers   int
	ready     func()
	informers *observe.Informers
	observer  *observe.Observer
	watermark *observe.Watermark
	applier   *apply.Applier
	metrics   *telemetry.Metrics
	memories  memories
	queue     workqueue.TypedRateLimitingInterface[observe.Key]
}

// New makes a controller.
func New(client kubernetes.Interface, recorder record.EventRecorder, o Options) (*Controller, error) {
	o = o.withDefaults()
	informers, err := observe.NewInformers(client, o.Resync)
	if err != nil {
		return nil, err
	}
	watermark := observe.NewWatermark(informers)
	c := &Controller{
		workers:   o.Workers,
		ready:     o.Ready,
		informers: informers,
		observer:  observe.New(informers, watermark, plan.Options{Defaulter: o.Defaulter, Recreate: o.Recreate}),
		watermark: watermark,
		applier:   &apply.Applier{Client: client, Recorder: recorder, Watermark: watermark, Metrics: o.Metrics},
		metrics:   o.Metrics,
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
	c.informers.Start(watching.Done())
	if !c.informers.WaitForSync(ctx.Done()) {
		return nil
	}
	log.Info("Started", "workers", c.workers)
	if c.ready != nil {
		c.ready()
	}
	var workers sync.WaitGroup
	for range c.workers {
		workers.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
	log.Info("Stopped")
	return nil
}

// next syncs the next set in the queue; false when the controller is to stop.
func (c *Controller) next(ctx context.Context) bool {
	key, stopped := c.queue.Get()
	if stopped {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	started := time.Now()
	result, err := c.sync(klog.NewContext(ctx, klog.FromContext(ctx).WithValues(telemetry.KeySet, key)), key, started)
	c.metrics.Synced(result, time.Since(started))
	switch {
	case result == telemetry.SyncConflict:
		c.queue.AddRateLimited(key)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Sync failed", telemetry.KeySet, key)
		c.queue.AddRateLimited(key)
	default:
		c.queue.Forget(key)
	}
	return true
}

// errConflict is why a sync is done again: the world was not as planned for.
var errConflict = errors.New("conflict")

// sync brings a set nearer to its spec.
func (c *Controller) sync(ctx context.Context, key observe.Key, now time.Time) (string, error) {
	snapshot, view, err := c.observer.Look(key, now)
	switch {
	case err != nil:
		return telemetry.SyncFailed, err
	case view == observe.Gone:
		c.forget(key)
		return telemetry.SyncDone, nil
	case view == observe.Stale:
		c.queue.AddAfter(key, staleRecheck)
		return telemetry.SyncStale, nil
	}
	memory := c.memories.of(key)
	memory.renew(snapshot.Set.Generation)
	snapshot.CreateAfter, snapshot.ReplaceAfter = memory.creates.until(), memory.replaces.until()

	todo := plan.Make(snapshot)
	outcomes := c.applier.Apply(ctx, snapshot.Set, todo)
	memory.learn(outcomes, now)
	for _, w := range memory.news(todo.Waits) {
		c.applier.Announce(snapshot.Set, w)
	}
	statusErr := c.settle(ctx, snapshot, todo, outcomes)
	c.scheduleNext(key, now, todo, memory)
	return resultOf(failureOf(outcomes), statusErr)
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

// settle writes the set's status if it has changed.
func (c *Controller) settle(ctx context.Context, s plan.Snapshot, p plan.Plan, outcomes []plan.Outcome) error {
	next, changed := status.Settle(s, p, outcomes)
	c.observe(s.Set, next, p.Waits)
	if !changed {
		return nil
	}
	result, err := c.applier.Status(ctx, s.Set, next)
	switch result {
	case plan.ResultConflict:
		return errConflict
	case plan.ResultFailed:
		return fmt.Errorf("write status: %w", err)
	case plan.ResultDone, plan.ResultGone, plan.ResultCollision:
	}
	return nil
}

// observe tells the metrics of a set.
func (c *Controller) observe(set *appsv1.StatefulSet, s appsv1.StatefulSetStatus, waits []plan.Wait) {
	pods := telemetry.Pods{
		Created:   s.Replicas,
		Ready:     s.ReadyReplicas,
		Available: s.AvailableReplicas,
		Current:   s.CurrentReplicas,
		Updated:   s.UpdatedReplicas,
	}
	if set.Spec.Replicas != nil {
		pods.Wanted = *set.Spec.Replicas
	}
	reasons := map[string]int{}
	for _, w := range waits {
		reasons[string(w.Reason)]++
	}
	c.metrics.Observed(telemetry.Key{Namespace: set.Namespace, Name: set.Name}, telemetry.Set{
		Pods:           pods,
		MaxUnavailable: plan.MaxUnavailable(set),
		Waits:          reasons,
	})
}

// scheduleNext wakes the set when time alone changes what has to be done.
func (c *Controller) scheduleNext(key observe.Key, now time.Time, p plan.Plan, m *memory) {
	if !p.Requeue.IsZero() {
		c.queue.AddAfter(key, time.Until(p.Requeue))
	}
	for _, b := range []backoff{m.creates, m.replaces} {
		for _, at := range b.until() {
			if at.After(now) {
				c.queue.AddAfter(key, time.Until(at))
			}
		}
	}
}

// forget drops all that is remembered of a set that is gone.
func (c *Controller) forget(key observe.Key) {
	c.watermark.Forget(key)
	c.memories.forget(key)
	c.metrics.Forget(telemetry.Key{Namespace: key.Namespace, Name: key.Name})
}

// failureOf is why a sync has to be done again soon; nil if it need not be. A refused creation has its own back-off.
func failureOf(outcomes []plan.Outcome) error {
	var failure error
	for _, o := range outcomes {
		switch o.Result {
		case plan.ResultFailed:
			if !isCreation(o.Action) {
				return fmt.Errorf("%s: %w", o.Action, o.Err)
			}
		case plan.ResultConflict:
			failure = errConflict
		case plan.ResultDone, plan.ResultGone, plan.ResultCollision:
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
