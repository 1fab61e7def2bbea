// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apply carries out plans. It alone writes to the API server and records events. It decides nothing: an action that
// finds the world other than planned ends in a conflict, and the next plan takes it from there.
package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// maxBatch is how many chains are run at most until it is looked whether they fail.
const maxBatch = 500

// maxParallel is how many chains of one set run at the same time. Each takes a connection, and more than 25 are not kept.
const maxParallel = 8

// callTimeout is how long a write may take.
const callTimeout = 30 * time.Second

// ErrLeaseLost is the cause of a context that ends because another process may write from now on. It is a cancellation: what it
// cuts short was not refused.
var ErrLeaseLost = fmt.Errorf("the lease is lost: %w", context.Canceled)

// errSetGone is why nothing is adopted: the set is being deleted, or is another by now.
var errSetGone = errors.New("the set is gone or going")

// Recorder takes note of events. It never waits.
type Recorder interface {
	Event(object runtime.Object, kind, reason, message string)
}

// Applier carries out plans.
type Applier struct {
	Client kubernetes.Interface
	// Policies writes their statuses; nil if there are none.
	Policies  observe.PolicyClient
	Recorder  Recorder
	Watermark *observe.Watermark
	Metrics   *telemetry.Metrics
	// Tracer traces each write; nil for none.
	Tracer *telemetry.Tracer
	// Progress is called after each write for a set; nil for nobody.
	Progress func(observe.Key)
}

// Apply carries out a plan for a set. It gives one outcome for each action that was tried, in the order of the plan. When
// ctx ends, the batch that has begun is finished, and what follows left out; at once if it ends with ErrLeaseLost.
func (a *Applier) Apply(ctx context.Context, set *appsv1.StatefulSet, p plan.Plan) []plan.Outcome {
	ctx, span := a.Tracer.Start(ctx, telemetry.SpanApply)
	defer span.End(nil)
	r := &run{Applier: a, set: set, key: observe.Key{Namespace: set.Namespace, Name: set.Name}}
	r.live = sync.OnceValue(func() error { return r.checkLive(ctx) })
	failed, lost := false, false
	var all []plan.Outcome
	for _, s := range p.Steps {
		if lost || (failed && !s.Always) {
			continue
		}
		outcomes := r.step(ctx, s)
		all = append(all, outcomes...)
		if hasFailure(outcomes) {
			failed = true
			lost = lost || s.Essential
		}
	}
	return all
}

// run is one application of a plan.
type run struct {
	*Applier
	set *appsv1.StatefulSet
	key observe.Key
	// live tells, asking the API server once, whether the set may still adopt.
	live func() error
}

func (r *run) step(ctx context.Context, s plan.Step) []plan.Outcome {
	if s.Mode == plan.SlowStart {
		return r.slowStart(ctx, s.Chains)
	}
	var all []plan.Outcome
	for _, c := range s.Chains {
		if ctx.Err() != nil {
			break
		}
		outcomes := r.chain(ctx, c)
		all = append(all, outcomes...)
		if hasFailure(outcomes) {
			break
		}
	}
	return all
}

// slowStart runs chains in batches that double, so that a cause that fails them all is met by few.
func (r *run) slowStart(ctx context.Context, chains []plan.Chain) []plan.Outcome {
	results := make([][]plan.Outcome, len(chains))
	var all []plan.Outcome
	for from, size := 0, 1; from < len(chains) && ctx.Err() == nil; size = min(2*size, maxBatch) {
		to := min(from+size, len(chains))
		var batch errgroup.Group
		batch.SetLimit(maxParallel)
		for i := from; i < to; i++ {
			batch.Go(func() error {
				results[i] = r.chain(ctx, chains[i])
				return nil
			})
		}
		_ = batch.Wait()
		failed := false
		for ; from < to; from++ {
			all = append(all, results[from]...)
			failed = failed || hasFailure(results[from])
		}
		if failed {
			break
		}
	}
	return all
}

func (r *run) chain(ctx context.Context, c plan.Chain) []plan.Outcome {
	outcomes := make([]plan.Outcome, 0, len(c))
	for _, action := range c {
		if errors.Is(context.Cause(ctx), ErrLeaseLost) {
			break
		}
		o := r.traced(ctx, action)
		outcomes = append(outcomes, o)
		r.report(ctx, o)
		if r.Progress != nil {
			r.Progress(r.key)
		}
		if IsFailure(o) {
			break
		}
	}
	return outcomes
}

// traced carries out one action, which is traced.
func (r *run) traced(ctx context.Context, action plan.Action) plan.Outcome {
	if r.Tracer == nil {
		return r.act(ctx, action)
	}
	ctx, span := r.Tracer.Start(ctx, kindOf(action))
	o := r.act(ctx, action)
	if span.IsOn() {
		span.Set(telemetry.AttrAction, action.String())
		span.Set(telemetry.AttrReason, string(action.Why()))
		span.Set(telemetry.AttrResult, string(o.Result))
	}
	span.End(o.Err)
	return o
}

// act carries out one action, and marks what was written.
func (r *run) act(ctx context.Context, action plan.Action) plan.Outcome {
	ctx, cancel := call(ctx)
	defer cancel()
	o := plan.Outcome{Action: action}
	var obj metav1.Object
	obj, o.Result, o.Err = r.write(ctx, action)
	target := action.Target()
	switch {
	case o.Result == plan.ResultGone:
		r.Watermark.Gone(r.key, target)
	case o.Result != plan.ResultDone:
		// Nothing was written.
	case obj == nil:
		r.Watermark.Deleted(r.key, target)
	default:
		r.Watermark.Wrote(r.key, target.Kind, obj)
		o.Object = objectOf(obj)
	}
	return o
}

// call is the context of one write, which is not cut short: its end would be unknown.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
}

// report tells of an outcome in the log, the metrics and the events.
func (r *run) report(ctx context.Context, o plan.Outcome) {
	r.Metrics.Acted(kindOf(o.Action), string(o.Action.Why()), string(o.Result))
	log := klog.FromContext(ctx)
	switch {
	case o.Result == plan.ResultBlocked:
		log.V(2).Info("Action held up", telemetry.KeyAction, o.Action.String(), telemetry.KeyError, o.Err)
	case IsFailure(o):
		log.V(2).Info("Action failed", telemetry.KeyAction, o.Action.String(), telemetry.KeyResult, o.Result, telemetry.KeyError, o.Err)
	default:
		log.V(2).Info("Acted", telemetry.KeyAction, o.Action.String(), telemetry.KeyReason, o.Action.Why())
	}
	// What a namespace refuses that is going is no news, and what was cut short was not refused.
	if apierrors.HasStatusCause(o.Err, corev1.NamespaceTerminatingCause) || errors.Is(o.Err, context.Canceled) {
		return
	}
	if e, ok := telemetry.ForOutcome(r.set.Name, o); ok {
		r.Recorder.Event(r.set, e.Type, e.Reason, e.Message)
	}
}

// kindOf names an action in the metrics.
func kindOf(a plan.Action) string {
	if d, ok := a.(plan.DeletePod); ok && d.Evict {
		return "EvictPod"
	}
	return fmt.Sprintf("%T", a)[len("plan."):]
}

// Announce records an event for a wait that a user should know of.
func (a *Applier) Announce(set *appsv1.StatefulSet, w plan.Wait) {
	if e, ok := telemetry.ForWait(set.Namespace, set.Name, w); ok {
		a.Recorder.Event(set, e.Type, e.Reason, e.Message)
	}
}

// AnnounceDegraded records an event if conditions that were written tell that something new is wrong with a set.
func (a *Applier) AnnounceDegraded(set *appsv1.StatefulSet, written []appsv1.StatefulSetCondition, waits []plan.Wait) {
	if e, ok := telemetry.ForDegraded(set, written, waits); ok {
		a.Recorder.Event(set, e.Type, e.Reason, e.Message)
	}
}

// checkLive asks the API server whether the set is still the one that was observed, and is not being deleted. Caches may
// lag behind an orphaning deletion, after which the set must not take its pods back.
func (r *run) checkLive(ctx context.Context) error {
	ctx, cancel := call(ctx)
	defer cancel()
	fresh, err := r.Client.AppsV1().StatefulSets(r.set.Namespace).Get(ctx, r.set.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return errSetGone
	}
	if err != nil {
		return fmt.Errorf("get set %s: %w", r.key, err)
	}
	if fresh.UID != r.set.UID || fresh.DeletionTimestamp != nil {
		return errSetGone
	}
	return nil
}

// IsFailure tells if an outcome has to hold up what follows.
func IsFailure(o plan.Outcome) bool {
	switch o.Action.(type) {
	case plan.DeletePod, plan.DeleteRevision, plan.ReleasePod:
		return o.Result != plan.ResultDone && o.Result != plan.ResultGone
	default:
		return o.Result != plan.ResultDone
	}
}

func hasFailure(outcomes []plan.Outcome) bool {
	return slices.ContainsFunc(outcomes, IsFailure)
}
