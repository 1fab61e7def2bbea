// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/policy"
)

// rollout is what may be done for the sake of the set's template.
type rollout struct {
	// target is the revision that pods are to have: the update revision, or the current one when the update has failed.
	target *appsv1.ControllerRevision
	// stopped means that no pod may be replaced.
	stopped bool
	// frozen means that even a pod that comes back must not have the update revision.
	frozen bool
	// room is how many more pods the batch may take.
	room int
}

// judge finds out how the rollout of the template fares, before anything is planned for it.
func (p *planner) judge() {
	p.rollout = rollout{target: p.resolved.Update, room: math.MaxInt}
	r := &p.plan.Rollout
	r.Revision = p.resolved.Update.Name
	p.count(r)
	r.Since = p.progressTime()
	switch {
	case p.rules.Failed == r.Revision && r.Revision != p.resolved.Current.Name:
		p.fail()
	case p.rules.Conflict:
		p.halt(WaitPolicyConflict, v1alpha1.RolloutPaused)
	case p.rules.Paused:
		p.halt(WaitPaused, v1alpha1.RolloutPaused)
	case p.isRolledOut():
		r.Phase = v1alpha1.RolloutComplete
	case p.isBetweenBatches():
		r.Phase = v1alpha1.RolloutPaused
	case p.isOverdue() && p.rules.RollBack && p.hasFormer():
		p.fail()
	case p.isOverdue():
		p.halt(WaitDeadline, v1alpha1.RolloutHeld)
	default:
		r.Phase = v1alpha1.RolloutProgressing
		p.lookAgainAtDeadline()
	}
}

func (p *planner) lookAgainAtDeadline() {
	if p.hasDeadline() {
		p.lookAgain(p.plan.Rollout.Since.Add(p.rules.Deadline))
	}
}

// halt lets no pod be replaced, nor come back with the update revision. Where nothing is left to roll out, nothing waits.
func (p *planner) halt(why Reason, phase v1alpha1.RolloutPhase) {
	p.rollout.stopped, p.rollout.frozen = true, true
	p.plan.Rollout.Phase = phase
	if p.isRolledOut() {
		p.plan.Rollout.Phase = v1alpha1.RolloutComplete
		return
	}
	p.waitForSet(why)
}

// fail brings the pods back to the current revision.
func (p *planner) fail() {
	p.rollout.target = p.resolved.Current
	p.plan.Rollout.Failed = true
	p.plan.Rollout.Phase = v1alpha1.RolloutRolledBack
	isLeft := func(s slot) bool { return p.isOutdated(s.pod) || !p.isServing(s.pod) }
	if len(p.live) < p.span.Count || slices.ContainsFunc(p.live, isLeft) {
		p.plan.Rollout.Phase = v1alpha1.RolloutRollingBack
	}
	p.waitForSet(WaitRolledBack)
	switch {
	case p.rules.Conflict:
		p.rollout.stopped = true
		p.waitForSet(WaitPolicyConflict)
	case p.rules.Paused:
		p.rollout.stopped = true
		p.waitForSet(WaitPaused)
	}
}

// hasFormer tells if there is a revision to go back to: the current one, if it was ever rolled out to its end. Of the first
// revision that a policy sees this is not known, unless a pod of it serves.
func (p *planner) hasFormer() bool {
	current := p.resolved.Current.Name
	if current == p.resolved.Update.Name {
		return false
	}
	if p.rules.Policy != nil && p.rules.Policy.Status.CompleteRevision == current {
		return true
	}
	return slices.ContainsFunc(p.live, func(s slot) bool {
		return podstate.Revision(s.pod) == current && p.isServing(s.pod)
	})
}

// count counts the pods that the rollout may take, and those of them that have its revision and are available.
func (p *planner) count(r *Rollout) {
	r.Wanted = p.span.Count - p.span.Below(p.firstUpdated())
	for _, s := range p.live {
		switch {
		case s.ordinal < p.firstUpdated():
		case !p.hasUpdate(s.pod):
			r.Outdated = true
		case p.isServing(s.pod):
			r.Available++
		}
	}
}

// FirstUpdated is the lowest ordinal that a rollout of a set with these ordinals may take.
func FirstUpdated(set *appsv1.StatefulSet, span ordinal.Range) int {
	if set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		return span.Start
	}
	return span.Start + Partition(set)
}

func (p *planner) firstUpdated() int { return FirstUpdated(p.Set, p.span) }

func (p *planner) hasUpdate(pod *corev1.Pod) bool {
	return podstate.Revision(pod) == p.resolved.Update.Name
}

// recorded is what the policy's status tells of this rollout; nil if nothing.
func (p *planner) recorded() *v1alpha1.RolloutStatus {
	if p.rules.Policy == nil {
		return nil
	}
	r := p.rules.Policy.Status.Rollout
	if r == nil || r.Revision != p.resolved.Update.Name {
		return nil
	}
	return r
}

// isRolledOut tells if nothing is left to do. A rollout that was done once stays so while no pod has another revision, even
// if one is not available for a while.
func (p *planner) isRolledOut() bool {
	r := p.plan.Rollout
	if r.Available == r.Wanted {
		return true
	}
	before := p.recorded()
	if before == nil || before.Phase != v1alpha1.RolloutComplete {
		return false
	}
	return !r.Outdated
}

// progressTime is when the rollout made progress last.
func (p *planner) progressTime() time.Time {
	before := p.recorded()
	switch {
	case p.rules.Policy == nil:
		return time.Time{}
	case before == nil, int(before.AvailableReplicas) < p.plan.Rollout.Available, before.Phase == v1alpha1.RolloutPaused,
		before.Phase == v1alpha1.RolloutComplete, int(before.Replicas) != p.plan.Rollout.Wanted:
		return p.Now
	case p.rules.RetriedAt.After(before.LastProgressTime.Time):
		return p.rules.RetriedAt
	default:
		return before.LastProgressTime.Time
	}
}

// hasDeadline tells if the rollout may take only so long. What waits for people to delete pods may take for ever.
func (p *planner) hasDeadline() bool {
	return p.rules.Deadline > 0 && p.strategy() != appsv1.OnDeleteStatefulSetStrategyType
}

func (p *planner) isOverdue() bool {
	return p.hasDeadline() && !p.Now.Before(p.plan.Rollout.Since.Add(p.rules.Deadline))
}

// isBetweenBatches tells if a batch is done and the next must not begin yet. If not, it counts how many more pods may be
// taken. Pods that are on their way, out or in, belong to the batch.
func (p *planner) isBetweenBatches() bool {
	if p.rules.Batch == nil || p.strategy() != appsv1.RollingUpdateStatefulSetStrategyType {
		return false
	}
	size := policy.BatchSize(p.rules.Batch, p.span.Count)
	begun, settled, doneAt := p.batches()
	p.rollout.room = size - begun%size
	if begun == 0 || begun%size != 0 {
		return false
	}
	if !settled {
		p.rollout.room = 0
		return false
	}
	wait := Wait{Reason: WaitBatch, On: refSet(p.Set)}
	if p.rules.Batch.Seconds != nil {
		wait.Until = doneAt.Add(time.Duration(*p.rules.Batch.Seconds) * time.Second)
	}
	isOver := !wait.Until.IsZero() && !wait.Until.After(p.Now)
	if isOver || p.rules.IsResumed(doneAt) {
		return false
	}
	p.rollout.stopped = true
	p.wait(wait)
	return true
}

// batches counts the pods that the rollout has taken, and tells if all of them are available, and since when.
func (p *planner) batches() (begun int, settled bool, doneAt time.Time) {
	missing := p.plan.Rollout.Wanted
	settled = true
	for _, s := range p.live {
		if s.ordinal < p.firstUpdated() {
			continue
		}
		missing--
		switch {
		case podstate.IsTerminating(s.pod):
			begun++
			settled = false
		case p.hasUpdate(s.pod):
			begun++
			settled = settled && p.isServing(s.pod)
			if at, ok := podstate.AvailableAt(s.pod, p.Set.Spec.MinReadySeconds); ok && at.After(doneAt) {
				doneAt = at
			}
		}
	}
	return begun + missing, settled && missing == 0, doneAt
}

// wanted is the name of the revision that a pod of ordinal n should have in the end.
func (p *planner) wanted(n int) string {
	if n < p.firstUpdated() {
		return p.resolved.Current.Name
	}
	return p.rollout.target.Name
}

// isStuck tells if a pod serves nobody and never has to: it is not ready, and its revision is not the one that it should have
// (kubernetes#67250). Where people delete pods themselves, it is theirs to do so.
func (p *planner) isStuck(s slot) bool {
	if p.Options.Strict || p.rollout.stopped || p.strategy() != appsv1.RollingUpdateStatefulSetStrategyType {
		return false
	}
	pod := s.pod
	if pod == nil || podstate.IsTerminating(pod) || podstate.IsFinished(pod) || podstate.IsReady(pod) {
		return false
	}
	revision := podstate.Revision(pod)
	if revision == p.resolved.Current.Name && p.comesBackAtCurrent(s.ordinal) {
		// It may have come back like that just now, and start well.
		p.lookAgain(podstate.TroubleAt(pod))
		return revision != p.wanted(s.ordinal) && podstate.TroubleOf(pod, p.Now) != nil
	}
	return revision != p.wanted(s.ordinal)
}

// remove gives the actions that remove a pod for the sake of the template, or nothing while its eviction has to wait.
func (p *planner) remove(s slot, why Reason) Chain {
	if until := p.EvictAfter[s.pod.Name]; p.rules.Evict && until.After(p.Now) {
		p.wait(Wait{Reason: WaitDisruption, On: refPod(s.pod), Until: until})
		return nil
	}
	removal := DeletePod{Pod: refPod(s.pod), Reason: why, Evict: p.rules.Evict}
	if s.pod.Annotations[v1alpha1.StopReasonAnnotation] != "" {
		p.unsay(removal.Pod)
	}
	if !p.rules.Tell || s.pod.Annotations[v1alpha1.StopReasonAnnotation] == v1alpha1.StopUpdate {
		return Chain{removal}
	}
	return Chain{TellPod{Pod: removal.Pod, Stop: v1alpha1.StopUpdate}, removal}
}

// dismiss gives the actions that remove a pod that is scaled away. If it has time to drain, it is told so first.
func (p *planner) dismiss(s slot) Chain {
	removal := DeletePod{Pod: refPod(s.pod), Reason: ReasonScaledDown}
	if !p.rules.Tell && p.rules.Drain == 0 {
		return Chain{removal}
	}
	tell := TellPod{Pod: removal.Pod, Stop: v1alpha1.StopScaleDown}
	told := s.pod.Annotations[v1alpha1.StopReasonAnnotation] == v1alpha1.StopScaleDown
	if p.rules.Drain == 0 {
		if told {
			return Chain{removal}
		}
		return Chain{tell, removal}
	}
	until, err := time.Parse(time.RFC3339, s.pod.Annotations[v1alpha1.StopAtAnnotation])
	if !told || err != nil {
		// The annotation tells whole seconds.
		tell.At = p.Now.Add(p.rules.Drain + time.Second - 1).Truncate(time.Second)
		p.wait(Wait{Reason: WaitDraining, On: removal.Pod, Until: tell.At})
		return Chain{tell}
	}
	if until.After(p.Now) {
		p.wait(Wait{Reason: WaitDraining, On: removal.Pod, Until: until})
		return nil
	}
	return Chain{removal}
}

// stays takes back what a pod was told that is not removed after all.
func (p *planner) stays(s slot) Chain {
	told := s.pod.Annotations[v1alpha1.StopReasonAnnotation]
	isUpdated := podstate.Revision(s.pod) == p.wanted(s.ordinal)
	if told == v1alpha1.StopScaleDown || (told == v1alpha1.StopUpdate && isUpdated) {
		return Chain{TellPod{Pod: refPod(s.pod)}}
	}
	return nil
}

// unsay leaves out that a pod is told that it stays, as it goes for another reason.
func (p *planner) unsay(pod Ref) {
	isTold := func(a Action) bool {
		told, ok := a.(TellPod)
		return ok && told.Stop == "" && told.Pod == pod
	}
	for i := range p.plan.Steps {
		for j, c := range p.plan.Steps[i].Chains {
			p.plan.Steps[i].Chains[j] = slices.DeleteFunc(c, isTold)
		}
	}
}

// leadersLast leaves out the pods that lead until all others have their revision and serve.
func (p *planner) leadersLast(targets []slot) []slot {
	if p.rules.Leader == nil {
		return targets
	}
	var followers, leaders []slot
	for _, s := range targets {
		if p.leads(s.pod) {
			leaders = append(leaders, s)
		} else {
			followers = append(followers, s)
		}
	}
	if len(leaders) == 0 || (len(followers) == 0 && p.areFollowersDone()) {
		return append(followers, leaders...)
	}
	p.wait(Wait{Reason: WaitLeader, On: refPod(leaders[0].pod)})
	return followers
}

// areFollowersDone tells if all pods that do not lead are there and serve, and those that the rollout may take have its
// revision.
func (p *planner) areFollowersDone() bool {
	isLeft := func(s slot) bool {
		return !p.isServing(s.pod) || (s.ordinal >= p.firstUpdated() && !p.leads(s.pod) && p.isOutdated(s.pod))
	}
	return len(p.live) == p.span.Count && !slices.ContainsFunc(p.live, isLeft)
}

// leads tells if a pod leads. One that serves nobody leads nobody.
func (p *planner) leads(pod *corev1.Pod) bool {
	return p.rules.Leader != nil && p.rules.Leader.Matches(labels.Set(pod.Labels)) && p.isServing(pod)
}
