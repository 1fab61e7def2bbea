// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package control is our planner and applier behind the interfaces of Kubernetes' StatefulSet control, so that its tests can
// drive them: one sync at a time, on objects that their fakes hold.
package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/controller/statefulset"

	"github.com/ordinal-dev/ordinal/internal/apply"
	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/status"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

var setKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// Control syncs sets whose objects are held by others.
type Control struct {
	Objects statefulset.StatefulPodControlObjectManager
	Status  statefulset.StatefulSetStatusUpdaterInterface
	History history.Interface
	Options plan.Options
}

// Update brings a set nearer to its spec, once. Unlike the controller, which has a back-off of its own for what is refused, it
// returns every failure.
func (c *Control) Update(ctx context.Context, set *appsv1.StatefulSet, pods []*corev1.Pod, now time.Time) (*appsv1.StatefulSetStatus, error) {
	set = set.DeepCopy()
	// An API server gives each pod a phase. In the tests, a pod without one has yet to be created.
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Status.Phase == "" })
	snapshot, err := c.look(set, pods, now)
	if err != nil {
		return nil, err
	}
	applier, err := c.applier(set)
	if err != nil {
		return nil, err
	}
	todo := plan.Make(snapshot)
	outcomes := applier.Apply(ctx, set, todo)
	failures := failuresOf(outcomes)
	next, changed := status.Settle(snapshot, todo, outcomes)
	if changed {
		if _, err := applier.Status(ctx, set, next); err != nil {
			failures = append(failures, err)
		}
	}
	return &next, errors.Join(failures...)
}

// Record sees to it that the set's template has a revision, and gives the set's current and its update revision.
func (c *Control) Record(
	ctx context.Context, set *appsv1.StatefulSet, revisions []*appsv1.ControllerRevision, now time.Time,
) (current, update *appsv1.ControllerRevision, err error) {
	set = set.DeepCopy()
	applier, err := c.applier(set)
	if err != nil {
		return nil, nil, err
	}
	todo := plan.Make(plan.Snapshot{Now: now, Set: set, Revisions: revisions, Options: c.Options})
	// The first steps are those of revisions: pods are made from them.
	until := slices.IndexFunc(todo.Steps, func(s plan.Step) bool { return !isOfRevisions(s) })
	if until >= 0 {
		todo.Steps = todo.Steps[:until]
	}
	if failures := failuresOf(applier.Apply(ctx, set, todo)); len(failures) > 0 {
		return nil, nil, errors.Join(failures...)
	}
	written, err := c.Revisions(set)
	if err != nil {
		return nil, nil, err
	}
	known := slices.Concat(written, revisions)
	current, update = named(known, todo.Revisions.Current), named(known, todo.Revisions.Update)
	if current == nil || update == nil {
		return nil, nil, fmt.Errorf("no revision %s or %s", todo.Revisions.Current, todo.Revisions.Update)
	}
	return current, update, nil
}

// Revisions are those that the set owns, and those without an owner that match its selector.
func (c *Control) Revisions(set *appsv1.StatefulSet) ([]*appsv1.ControllerRevision, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, err
	}
	return c.History.ListControllerRevisions(set, setKind, selector)
}

// look gives the snapshot of a set with these pods.
func (c *Control) look(set *appsv1.StatefulSet, pods []*corev1.Pod, now time.Time) (plan.Snapshot, error) {
	s := plan.Snapshot{Now: now, Set: set, Pods: pods, Options: c.Options}
	var err error
	if s.Revisions, err = c.Revisions(set); err != nil {
		return s, err
	}
	wanted := map[int]bool{}
	for n := range ordinal.RangeOf(set).All() {
		wanted[n] = true
	}
	for _, p := range pods {
		if n, named := ordinal.Of(set.Name, p.Name); named {
			wanted[n] = true
		}
	}
	for n := range wanted {
		for _, name := range claim.Names(set, n) {
			found, err := c.Objects.GetClaim(set.Namespace, name)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return s, err
			}
			s.Claims = append(s.Claims, found)
		}
	}
	return s, nil
}

func (c *Control) applier(set *appsv1.StatefulSet) (*apply.Applier, error) {
	client := &client{control: c, set: set}
	informers, err := observe.NewInformers(client, nil, 0)
	if err != nil {
		return nil, err
	}
	return &apply.Applier{
		Client: client, Recorder: silence{}, Watermark: observe.NewWatermark(informers), Metrics: telemetry.New(),
	}, nil
}

// silence records no events.
type silence struct{}

// Event is part of apply.Recorder.
func (silence) Event(runtime.Object, string, string, string) {}

func failuresOf(outcomes []plan.Outcome) []error {
	var failures []error
	for _, o := range outcomes {
		if apply.IsFailure(o) {
			failures = append(failures, fmt.Errorf("%s: %w", o.Action, o.Err))
		}
	}
	return failures
}

func isOfRevisions(s plan.Step) bool {
	return !slices.ContainsFunc(s.Chains, func(c plan.Chain) bool {
		return slices.ContainsFunc(c, func(a plan.Action) bool { return a.Target().Kind != plan.KindRevision })
	})
}

func named(revisions []*appsv1.ControllerRevision, name string) *appsv1.ControllerRevision {
	at := slices.IndexFunc(revisions, func(r *appsv1.ControllerRevision) bool { return r.Name == name })
	if at < 0 {
		return nil
	}
	return revisions[at]
}
