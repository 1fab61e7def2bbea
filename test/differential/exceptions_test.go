// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// exception is an intended difference. Where it applies, the worlds are allowed to differ.
type exception struct {
	name    string
	applies func(comparison) bool
}

// exceptions are all intended differences in what is written. Those in counters are told by TestOneSync.
var exceptions = []exception{
	{
		// A pod that is not ready and has a revision that its ordinal should not have is replaced. Theirs waits for it for ever.
		"unstuck", func(c comparison) bool { return unsticks(c.plan) && !c.before.Options.Strict },
	},
	{
		// Scaling down takes the highest pod although it is not available. Theirs waits for it, unless it is the lowest such pod.
		"unavailable pod scaled down", func(c comparison) bool {
			return passesBroken(c.before, c.plan) && !c.before.Options.Strict
		},
	},
	{
		// A set that is being deleted changes nothing. Theirs still writes and trims revisions.
		"set is going", func(c comparison) bool { return c.before.Set.DeletionTimestamp != nil },
	},
	{
		// Pods are told by names that the set would give. Theirs takes web-01 for web-1 too, tries to rename it for ever, and
		// counts pods whose ordinal is beyond 32 bits.
		"odd pod name", func(c comparison) bool {
			return slices.ContainsFunc(c.before.Pods, func(p *corev1.Pod) bool {
				_, ok := ordinal.ParsePod(p.Name)
				return !ok && strings.Trim(p.Name[strings.LastIndexByte(p.Name, '-')+1:], "0123456789") == ""
			})
		},
	},
	{
		// A pod that does not mount the set's claims cannot be made to: volumes do not change. Ours goes on, and the pod gets
		// them when it is made again. Theirs writes it all the same, is refused, and stops.
		"claims not mounted", func(c comparison) bool { return c.isRefused("spec") || c.waits(plan.WaitVolumes) },
	},
	{
		// Under a name that is taken nothing is created, not even claims. In a Parallel set, the others go on.
		"name taken", func(c comparison) bool { return c.waits(plan.WaitNameTaken) },
	},
	{
		// In a Parallel set, a claim that is going holds up its own pod only. Theirs ends the batch with an error.
		"claim going", func(c comparison) bool { return !c.isOrdered() && c.waits(plan.WaitClaimTerminating) },
	},
	{
		// A claim is created with the owner that the retention policy wants. Theirs sets it when the pod is created, which is
		// later if another claim of the pod is going.
		"claim owned from the first moment on", func(c comparison) bool {
			policy := c.before.Set.Spec.PersistentVolumeClaimRetentionPolicy
			return policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType && c.waits(plan.WaitClaimTerminating)
		},
	},
	{
		// A pod that is going gets no claims any more, even if it is pending or does not mount them, and no labels.
		"pod going", func(c comparison) bool {
			return slices.ContainsFunc(c.before.Pods, func(p *corev1.Pod) bool {
				n, _ := ordinal.Of(c.before.Set.Name, p.Name)
				lost := p.Labels[appsv1.StatefulSetPodNameLabel] != p.Name || !claim.IsMounted(c.before.Set, p, n)
				return podstate.IsTerminating(p) && (podstate.IsPending(p) || (lost && !c.isOrdered()))
			})
		},
	},
	{
		// Theirs lets a Parallel set without a rollingUpdate block create pods at the current revision and delete them in the
		// same sync, over and over.
		"Parallel without a rollingUpdate block", func(c comparison) bool {
			s := c.before.Set.Spec.UpdateStrategy
			isRolling := s.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.RollingUpdate == nil
			return isRolling && !c.isOrdered()
		},
	},
	{
		// Theirs subtracts deletions from counters that did not count the pods, and is refused.
		"counters refused", func(c comparison) bool { return c.isRefused("counters") },
	},
	{
		// Theirs takes an update for complete when as many pods as wanted have it, although one of them is beyond the range, and
		// one within it is missing. With a partition, the current revision is then lost.
		"complete too early", func(c comparison) bool { return isEarly(c.before.Set.Status, c.theirs) },
	},
}

// unsticks tells if a plan replaces a pod that is stuck.
func unsticks(p plan.Plan) bool {
	return slices.ContainsFunc(p.Actions(), func(a plan.Action) bool { return a.Why() == plan.ReasonStuck })
}

// passesBroken tells if a plan for an ordered set removes a pod beyond its range that does not serve.
func passesBroken(s plan.Snapshot, p plan.Plan) bool {
	if s.Set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		return false
	}
	return slices.ContainsFunc(p.Actions(), func(a plan.Action) bool {
		return a.Why() == plan.ReasonScaledDown && slices.ContainsFunc(s.Pods, func(pod *corev1.Pod) bool {
			return pod.Name == a.Target().Name && !podstate.IsServing(pod, s.Set.Spec.MinReadySeconds, s.Now)
		})
	})
}

// exception names the intended difference that applies; empty if there is none.
func (c comparison) exception() string {
	for _, e := range exceptions {
		if e.applies(c) {
			return e.name
		}
	}
	return ""
}

func (c comparison) isRefused(what string) bool {
	return slices.ContainsFunc(c.refusals, func(r string) bool { return strings.HasPrefix(r, what) })
}

func (c comparison) waits(reason plan.Reason) bool {
	return slices.ContainsFunc(c.plan.Waits, func(w plan.Wait) bool { return w.Reason == reason })
}
