// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// planner builds a plan from a world.
type planner struct {
	*world
	plan     Plan
	resolved revision.Answer
	rollout  rollout
	// current and update are the templates of the two revisions; nil until they are needed.
	current, update *corev1.PodTemplateSpec
}

// Make decides what the set of a snapshot needs.
func Make(s Snapshot) Plan {
	w, err := newWorld(s)
	if err != nil {
		return Plan{Blind: true, Waits: []Wait{{Reason: WaitBadSelector, On: refSet(s.Set)}}}
	}
	p := &planner{world: w}
	p.plan.Span = w.span
	p.plan.Members = slices.Collect(p.pods())
	if p.resolve() {
		p.steps()
	}
	p.requeue()
	return p.plan
}

// resolve finds the set's revisions, and is false when there is nothing more to plan.
func (p *planner) resolve() bool {
	answer, err := revision.Resolve(revision.Question{
		Set:       p.Set,
		Revisions: p.revisions,
		Defaulter: p.Options.Defaulter,
		Bytewise:  p.Options.BytewiseRevisions,
		Found:     p.Found,
	})
	if err != nil {
		p.waitForSet(WaitBadTemplate)
		return false
	}
	p.resolved, p.plan.Found = answer, answer.Found
	if answer.Exact {
		p.update = &p.Set.Spec.Template
	}
	p.judge()
	going := p.Set.DeletionTimestamp != nil
	if !going || answer.Change != revision.Create {
		p.plan.Revisions = Revisions{Current: answer.Current.Name, Update: answer.Update.Name, Known: true}
	}
	if going {
		p.waitForSet(WaitSetTerminating)
		return false
	}
	return true
}

func (p *planner) steps() {
	p.own()
	p.record()
	p.work()
	p.trim()
}

// work plans the work on pods and claims. Each phase begins only when the one before has nothing to wait for.
func (p *planner) work() {
	if p.strategy() == appsv1.RecreateStatefulSetStrategyType && !p.recreate() {
		return
	}
	if p.isOrdered() {
		if p.fillInOrder() && p.shrinkInOrder() {
			p.roll()
		}
		return
	}
	if p.fillAtOnce() {
		p.shrinkAtOnce()
		p.roll()
	}
}

// own adopts and releases. Nothing else may be done before it is known what belongs to the set.
func (p *planner) own() {
	var c Chain
	for _, r := range p.adoptedRevisions {
		c = append(c, AdoptRevision{Revision: refRevision(r)})
	}
	for _, pod := range p.released {
		c = append(c, ReleasePod{Pod: refPod(pod)})
	}
	for _, pod := range p.adopted {
		c = append(c, AdoptPod{Pod: refPod(pod)})
	}
	p.step(Step{Essential: true}, c)
}

// record makes the update revision exist and be the newest.
func (p *planner) record() {
	switch p.resolved.Change {
	case revision.Create:
		p.step(Step{Essential: true}, Chain{CreateRevision{Revision: p.resolved.Update}})
	case revision.Bump:
		bump := BumpRevision{Revision: refRevision(p.resolved.Update), Number: p.resolved.Number}
		p.step(Step{Essential: true}, Chain{bump})
	case revision.Keep:
	}
}

// trim deletes history. It does not depend on how the pods fare: a set whose pods are refused must not pile up revisions.
func (p *planner) trim() {
	live := map[string]bool{p.resolved.Current.Name: true, p.resolved.Update.Name: true}
	for pod := range p.pods() {
		live[podstate.Revision(pod)] = true
	}
	limit := int32(10)
	if p.Set.Spec.RevisionHistoryLimit != nil {
		limit = *p.Set.Spec.RevisionHistoryLimit
	}
	var c Chain
	for _, r := range revision.Trim(p.revisions, live, limit) {
		c = append(c, DeleteRevision{Revision: refRevision(r)})
	}
	p.step(Step{Always: true}, c)
}

// requeue finds the earliest moment at which time alone changes something.
func (p *planner) requeue() {
	for _, w := range p.plan.Waits {
		p.lookAgain(w.Until)
	}
	if p.Set.Spec.MinReadySeconds == 0 {
		return
	}
	for pod := range p.pods() {
		if at, ok := podstate.AvailableAt(pod, p.Set.Spec.MinReadySeconds); ok {
			p.lookAgain(at)
		}
	}
}

func (p *planner) lookAgain(at time.Time) {
	if at.After(p.Now) && (p.plan.Requeue.IsZero() || at.Before(p.plan.Requeue)) {
		p.plan.Requeue = at
	}
}

// step adds a step with those of the chains that hold anything.
func (p *planner) step(s Step, chains ...Chain) {
	for _, c := range chains {
		if len(c) > 0 {
			s.Chains = append(s.Chains, c)
		}
	}
	if len(s.Chains) > 0 {
		p.plan.Steps = append(p.plan.Steps, s)
	}
}

func (p *planner) wait(w Wait) {
	p.plan.Waits = append(p.plan.Waits, w)
}

// waitForSet adds a wait of the whole set, unless it is told already.
func (p *planner) waitForSet(r Reason) {
	if w := (Wait{Reason: r, On: refSet(p.Set)}); !slices.Contains(p.plan.Waits, w) {
		p.wait(w)
	}
}

func (p *planner) isOrdered() bool {
	return p.Set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

func (p *planner) strategy() appsv1.StatefulSetUpdateStrategyType {
	return p.Set.Spec.UpdateStrategy.Type
}

func (p *planner) isServing(pod *corev1.Pod) bool {
	return podstate.IsServing(pod, p.Set.Spec.MinReadySeconds, p.Now)
}

// isOutdated tells if a pod was made from another revision than the one that is to be rolled out.
func (p *planner) isOutdated(pod *corev1.Pod) bool {
	return podstate.Revision(pod) != p.rollout.target.Name
}

func refSet(set *appsv1.StatefulSet) Ref {
	return Ref{Kind: KindSet, Name: set.Name, UID: set.UID, ResourceVersion: set.ResourceVersion}
}
