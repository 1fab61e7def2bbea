// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// MaxCreates is how many places without a pod one plan looks at, so that a huge set does not hold a worker for long. Those
// beyond have their turn when the ones before have their pods.
const MaxCreates = 1000

// fillInOrder makes each ordinal of the range have its pod, from the lowest on, and goes to the next only when the pod is
// available. It is true when all are.
func (p *planner) fillInOrder() bool {
	var chains []Chain
	complete := true
	for s := range p.slots() {
		if p.isStuck(s) {
			chains = append(chains, p.remove(s, ReasonStuck))
			complete = false
			break
		}
		if s.pod == nil && p.isReservedByAny(s) {
			continue
		}
		c, ok := p.fill(s)
		chains = append(chains, c)
		if !ok || s.pod == nil || !p.isPassed(s.pod) {
			complete = false
			break
		}
	}
	p.step(Step{Mode: Serial}, chains...)
	return complete
}

// fillAtOnce makes each ordinal of the range have its pod, all at once. It is true when nothing forbids to go on with the
// rest; pods that are not available do not.
func (p *planner) fillAtOnce() bool {
	var chains []Chain
	complete, empty := true, 0
	for s := range p.slots() {
		c, ok := p.fill(s)
		chains = append(chains, c)
		complete = complete && ok
		if s.pod != nil {
			p.isPassed(s.pod)
			continue
		}
		if empty++; empty == MaxCreates {
			complete = false
			break
		}
	}
	p.step(Step{Mode: SlowStart}, chains...)
	return complete
}

// fill gives the work that a slot needs. It is false when the work, or the lack of it, has to hold up what follows.
func (p *planner) fill(s slot) (Chain, bool) {
	switch {
	case s.pod == nil:
		return p.create(s)
	case podstate.IsFinished(s.pod):
		return p.replace(s), true
	case podstate.IsPending(s.pod) && !podstate.IsTerminating(s.pod):
		return p.complete(s)
	default:
		return p.repair(s), true
	}
}

// isPassed tells if a pod lets its successors go on, and waits for it if not.
func (p *planner) isPassed(pod *corev1.Pod) bool {
	w := Wait{On: refPod(pod)}
	switch {
	case podstate.IsTerminating(pod):
		w.Reason = WaitTerminating
	case podstate.IsFinished(pod):
		w.Reason = WaitFinished
	case pod.Status.Phase != corev1.PodRunning:
		w.Reason = WaitStarting
	case !podstate.IsReady(pod):
		w.Reason = WaitNotReady
	case !podstate.IsAvailable(pod, p.Set.Spec.MinReadySeconds, p.Now):
		w.Reason = WaitNotAvailable
		w.Until, _ = podstate.AvailableAt(pod, p.Set.Spec.MinReadySeconds)
	default:
		return true
	}
	p.wait(w)
	return false
}

// create gives the actions that make a pod and its claims. In order, nothing follows a pod that has yet to be created.
func (p *planner) create(s slot) (Chain, bool) {
	if s.taken != nil {
		p.wait(Wait{Reason: WaitNameTaken, On: refPod(s.taken), For: p.podName(s)})
		return nil, true
	}
	if p.isUnnameable(s) || p.isReservedByAny(s) || p.sharesClaim(s) {
		return nil, true
	}
	if p.backsOff(s, p.CreateAfter) || p.isHeldUp(s) || p.waitsForStaleClaim(s) {
		return nil, true
	}
	claims, ok := p.createClaims(s)
	if !ok {
		return claims, false
	}
	pod, ok := p.newPod(s.ordinal)
	if !ok {
		return nil, false
	}
	if p.isOrdered() {
		p.wait(Wait{Reason: WaitStarting, On: Ref{Kind: KindPod, Name: pod.Name}})
	}
	return append(append(claims, CreatePod{Pod: pod}), p.ownClaims(s)...), true
}

// replace gives the action that removes a pod that ended. Its successor is created when it is gone.
func (p *planner) replace(s slot) Chain {
	if podstate.IsTerminating(s.pod) || p.backsOff(s, p.ReplaceAfter) {
		return nil
	}
	why := ReasonFailed
	switch {
	case p.comesBackAtCurrent(s.ordinal) && p.isOutdated(s.pod) && !p.Options.Strict:
		// It would end again, over and over, and never have the revision that may be its cure.
		why = ReasonStuck
	case s.pod.Status.Phase == corev1.PodSucceeded:
		why = ReasonSucceeded
	}
	return Chain{DeletePod{Pod: refPod(s.pod), Reason: why}}
}

// complete gives the actions that make the claims that a pending pod lacks, which may be why it is pending.
func (p *planner) complete(s slot) (Chain, bool) {
	if p.backsOff(s, p.CreateAfter) {
		return p.repair(s), true
	}
	missing, ok := p.createClaims(s)
	if !ok {
		return missing, false
	}
	return append(missing, p.repair(s)...), true
}

func (p *planner) backsOff(s slot, after map[string]time.Time) bool {
	until := after[p.podName(s)]
	if !until.After(p.Now) {
		return false
	}
	p.wait(Wait{Reason: WaitBackoff, On: Ref{Kind: KindPod, Name: p.podName(s)}, Until: until})
	return true
}

// isHeldUp tells if a pod that was not refused itself is not created because others were.
func (p *planner) isHeldUp(s slot) bool {
	until := p.CreateAfter[AnyPod]
	if _, known := p.CreateAfter[p.podName(s)]; known || !until.After(p.Now) {
		return false
	}
	p.wait(Wait{Reason: WaitBackoff, On: Ref{Kind: KindPod, Name: p.podName(s)}, Until: until})
	return true
}

// waitsForStaleClaim tells if a claim of the slot is about to go with the pod that had the name before.
func (p *planner) waitsForStaleClaim(s slot) bool {
	if !claim.DeletesWhenScaled(p.Set) {
		return false
	}
	for _, name := range claim.Names(p.Set, s.ordinal) {
		c := p.claims[name]
		if c != nil && claim.OwnedByEarlierPod(c, p.holder(s)) {
			p.wait(Wait{Reason: WaitClaimStale, On: refClaim(c), For: p.podName(s)})
			return true
		}
	}
	return false
}

// isUnnameable tells if no pod can have the name, or the label, that follows from the set's name.
func (p *planner) isUnnameable(s slot) bool {
	if p.Options.Strict {
		return false
	}
	fault := nameFault(p.Set, p.revisionFor(s.ordinal).Name, s.ordinal)
	if fault != "" {
		p.wait(Wait{Reason: WaitBadName, On: refSet(p.Set), For: p.podName(s), Detail: fault})
	}
	return fault != ""
}

// isReservedByAny tells if one of several policies that contradict each other lets the ordinal not run.
func (p *planner) isReservedByAny(s slot) bool {
	if !p.rules.Conflict || !ordinal.IsIn(p.rules.Reserved, s.ordinal) {
		return false
	}
	p.wait(Wait{Reason: WaitPolicyConflict, On: refSet(p.Set), For: p.podName(s)})
	return true
}

// sharesClaim tells if a claim of the slot belongs to another set, so that no pod may be started on it.
func (p *planner) sharesClaim(s slot) bool {
	for t := range claim.Templates(p.Set) {
		if p.isOfRival(s, t.Name) {
			return true
		}
	}
	return false
}

// isOfRival tells if the claim of a template belongs to another set whose claims have the same names.
func (p *planner) isOfRival(s slot, template string) bool {
	if p.Options.Strict || len(p.Rivals) == 0 {
		return false
	}
	name := ordinal.ClaimName(template, p.Set.Name, s.ordinal)
	rival, held := claim.HeldBy(p.Set, p.claims[name], template, s.ordinal, s.pod != nil, p.Rivals)
	if held {
		p.wait(Wait{
			Reason: WaitClaimShared,
			On:     Ref{Kind: KindClaim, Name: name},
			For:    p.podName(s),
			Detail: "StatefulSet " + rival,
		})
	}
	return held
}

// createClaims gives the actions that make the claims that a slot lacks. It is false when one of them is going: it has to
// be gone before it can be made anew.
func (p *planner) createClaims(s slot) (Chain, bool) {
	var chain Chain
	ok := true
	for t := range claim.Templates(p.Set) {
		wanted := claim.New(p.Set, t, s.ordinal)
		switch c := p.claims[wanted.Name]; {
		case c == nil && s.pod != nil && p.isOfRival(s, t.Name):
		case c == nil:
			chain = append(chain, CreateClaim{Claim: wanted, Pod: p.podName(s)})
		case c.DeletionTimestamp != nil:
			p.wait(Wait{Reason: WaitClaimTerminating, On: refClaim(c), For: p.podName(s)})
			ok = false
		}
	}
	return chain, ok
}

// ownClaims gives the actions that let the slot's claims have the owners that the retention policy wants.
func (p *planner) ownClaims(s slot) Chain {
	var chain Chain
	for t := range claim.Templates(p.Set) {
		c := p.claims[ordinal.ClaimName(t.Name, p.Set.Name, s.ordinal)]
		if c == nil || p.isOfRival(s, t.Name) {
			continue
		}
		v := claim.Owners(p.Set, p.holder(s), c)
		if v.Conflict {
			p.wait(Wait{Reason: WaitClaimConflict, On: refClaim(c), For: p.podName(s)})
		}
		if v.Change {
			chain = append(chain, OwnClaim{Claim: refClaim(c), Owners: v.Refs, Pod: p.podName(s)})
		}
	}
	return chain
}

// repair gives the actions that restore what a pod of the set has to have. In order, only pods that serve are repaired, and
// the claims of those that are pending.
func (p *planner) repair(s slot) Chain {
	serves := p.isServing(s.pod)
	if p.isOrdered() && !serves && !podstate.IsPending(s.pod) {
		return nil
	}
	chain := p.ownClaims(s)
	if podstate.IsTerminating(s.pod) || (p.isOrdered() && !serves) {
		return chain
	}
	if !claim.IsMounted(p.Set, s.pod, s.ordinal) {
		p.wait(Wait{Reason: WaitVolumes, On: refPod(s.pod)})
	}
	chain = append(chain, p.stays(s)...)
	if lost := lostIdentity(s.pod, s.ordinal); len(lost) > 0 {
		chain = append(chain, LabelPod{Pod: refPod(s.pod), Labels: lost})
	}
	return chain
}
