// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/status"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// settle writes the set's status if it has changed, and tells of what has become wrong.
func (c *Controller) settle(ctx context.Context, s plan.Snapshot, p plan.Plan, outcomes []plan.Outcome) error {
	next, changed := status.Settle(s, p, outcomes)
	c.observe(s.Set, next, p.Waits)
	if !changed {
		return nil
	}
	result, err := c.applier.Status(ctx, s.Set, next)
	if result == plan.ResultDone {
		c.applier.AnnounceDegraded(s.Set, next.Conditions, p.Waits)
	}
	return writeError("write status", result, err)
}

// settlePolicies writes the statuses of policies.
func (c *Controller) settlePolicies(ctx context.Context, changed []status.PolicyStatus) []error {
	errs := make([]error, 0, len(changed))
	for _, s := range changed {
		result, err := c.applier.PolicyStatus(ctx, s.Policy, s.Status)
		errs = append(errs, writeError("write status of policy "+s.Policy.Name, result, err))
	}
	return errs
}

// settleOrphans tells the policies of a set that does not exist so.
func (c *Controller) settleOrphans(ctx context.Context, key observe.Key, now time.Time) []error {
	policies, err := c.observer.Policies(key)
	if err != nil {
		return []error{err}
	}
	return c.settlePolicies(ctx, status.Orphaned(policies, now))
}

// writeError is why a write of a status has to be done again; nil if it need not be.
func writeError(what string, result plan.Result, err error) error {
	switch result {
	case plan.ResultConflict:
		return errConflict
	case plan.ResultFailed:
		return fmt.Errorf("%s: %w", what, err)
	case plan.ResultDone, plan.ResultGone, plan.ResultCollision, plan.ResultBlocked:
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
	told := telemetry.Set{Pods: pods, MaxUnavailable: plan.MaxUnavailable(set), Waits: reasons}
	for _, condition := range s.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == status.Degraded:
			told.Degraded = condition.Reason
		case condition.Type == appsv1.StatefulSetProgressing:
			told.Progress = telemetry.Progress{Reason: condition.Reason, At: status.Since(condition)}
		}
	}
	c.metrics.Observed(telemetry.Key{Namespace: set.Namespace, Name: set.Name}, told)
}
