// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// roll replaces outdated pods as the strategy says: by deleting them, so that they are created anew.
func (p *planner) roll() {
	switch p.strategy() {
	case appsv1.RecreateStatefulSetStrategyType:
		return
	case appsv1.OnDeleteStatefulSetStrategyType:
		if slices.ContainsFunc(p.live, func(s slot) bool { return p.isOutdated(s.pod) }) {
			p.waitForSet(WaitOnDelete)
		}
		return
	case appsv1.RollingUpdateStatefulSetStrategyType:
	}
	if p.rollout.stopped {
		return
	}
	targets := p.leadersLast(p.targets())
	switch {
	case p.Options.IgnoreMaxUnavailable:
		p.rollOneByOne(targets)
	case p.isOrdered():
		p.deleteWithin(p.budget(), targets)
	default:
		p.rollAtOnce(targets)
	}
}

// targets are the outdated pods that the update may delete, from the highest down to the partition.
func (p *planner) targets() []slot {
	var targets []slot
	kept := false
	for _, s := range slices.Backward(p.live) {
		if !p.isOutdated(s.pod) {
			continue
		}
		if s.ordinal < p.firstUpdated() {
			kept = true
			continue
		}
		if !podstate.IsTerminating(s.pod) {
			targets = append(targets, s)
		}
	}
	if kept {
		p.waitForSet(WaitPartition)
	}
	return targets
}

// rollAtOnce first replaces outdated pods that serve nobody, whatever the budget is, and then others within the budget. So
// a set whose pods are all broken can be mended, and no pod that serves goes while too many do not.
func (p *planner) rollAtOnce(targets []slot) {
	budget := p.budget()
	var broken []Chain
	serving := make([]slot, 0, len(targets))
	for _, s := range targets {
		if p.isServing(s.pod) {
			serving = append(serving, s)
			continue
		}
		if !p.isReplaced(s) {
			broken = append(broken, p.remove(s, ReasonOutdatedBroken))
		}
	}
	for _, s := range p.live {
		if s.ordinal < p.firstUpdated() && p.isStuck(s) {
			broken = append(broken, p.remove(s, ReasonStuck))
		}
	}
	p.step(Step{Mode: Serial}, broken...)
	p.deleteWithin(budget, serving)
}

// isReplaced tells if the pod is replaced anyway, because it ended.
func (p *planner) isReplaced(s slot) bool {
	return podstate.IsFinished(s.pod)
}

// deleteWithin deletes as many of the targets as the budget allows.
func (p *planner) deleteWithin(budget int, targets []slot) {
	n := max(0, min(len(targets), budget, p.rollout.room))
	switch {
	case len(targets) == n:
	case n == p.rollout.room:
		p.waitForSet(WaitBatch)
	default:
		p.waitForSet(WaitBudget)
	}
	var chains []Chain
	for _, s := range targets[:n] {
		chains = append(chains, p.remove(s, ReasonOutdated))
	}
	p.step(Step{Mode: Serial}, chains...)
}

// rollOneByOne walks down to the partition, and deletes the first of the targets unless it meets a pod before that does not
// serve.
func (p *planner) rollOneByOne(targets []slot) {
	below := p.span.Count
	for _, s := range slices.Backward(p.live) {
		below--
		if s.ordinal < p.firstUpdated() {
			return
		}
		if p.span.Below(s.ordinal) != below {
			p.waitForSet(WaitBudget)
			return
		}
		if slices.Contains(targets, s) && !p.isReplaced(s) {
			p.deleteWithin(1, []slot{s})
			return
		}
		if !p.isServing(s.pod) {
			p.waitForSet(WaitBudget)
			return
		}
	}
}

// budget is how many more pods may become unavailable. It counts all pods of the range, those that are missing and those
// below the partition too, and may be negative.
func (p *planner) budget() int {
	unavailable := p.span.Count
	for _, s := range p.live {
		if p.isServing(s.pod) {
			unavailable--
		}
	}
	return MaxUnavailable(p.Set) - unavailable
}

// MaxUnavailable is how many pods of set an update may make unavailable at once, at least 1. A share is rounded down.
func MaxUnavailable(set *appsv1.StatefulSet) int {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil || set.Spec.Replicas == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, int(*set.Spec.Replicas), false)
	if err != nil {
		return 1
	}
	return max(1, n)
}

// recreate deletes all outdated pods at once, and is true when none is left.
func (p *planner) recreate() bool {
	if !p.Options.Recreate {
		p.waitForSet(WaitRecreateDisabled)
		return false
	}
	if p.rollout.stopped {
		return true
	}
	var chains []Chain
	done := true
	for pod := range p.pods() {
		if !p.isOutdated(pod) {
			continue
		}
		done = false
		if podstate.IsTerminating(pod) {
			p.wait(Wait{Reason: WaitTerminating, On: refPod(pod)})
			continue
		}
		chains = append(chains, p.remove(slot{pod: pod}, ReasonRecreate))
	}
	p.step(Step{Mode: SlowStart}, chains...)
	switch {
	case !done:
		p.plan.Recreate = RecreateDeleting
	case p.resolved.Current.Name != p.resolved.Update.Name:
		p.plan.Recreate = RecreateCreating
	}
	return done
}
