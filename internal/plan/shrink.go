// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// handOver lets the claims of the condemned pods have the owners that the retention policy wants. It has to be done before
// the pods are deleted: their deletion is what the garbage collector acts on.
func (p *planner) handOver(mode Mode) {
	chains := make([]Chain, 0, len(p.condemned))
	for _, s := range p.condemned {
		chains = append(chains, p.ownClaims(s))
	}
	p.step(Step{Mode: mode}, chains...)
}

// shrinkInOrder deletes the highest of the pods beyond the range, and is true when there are none. All pods within the
// range are available by then.
func (p *planner) shrinkInOrder() bool {
	if len(p.condemned) == 0 {
		return true
	}
	if p.rules.Conflict {
		p.waitForSet(WaitPolicyConflict)
		return false
	}
	p.handOver(Serial)
	top := p.condemned[0].pod
	if podstate.IsTerminating(top) {
		p.wait(Wait{Reason: WaitTerminating, On: refPod(top)})
		return false
	}
	if top != p.lowestBroken() && p.mayRecover(top) {
		return false
	}
	p.step(Step{Mode: Serial}, p.dismiss(p.condemned[0]))
	return false
}

// recovery is how long a pod that is to go, and is not ready for no visible reason, is given to become ready, while others below
// it are not available either. Whoever scales down a set that is in the midst of a failover loses no member by it.
const recovery = 30 * time.Second

// mayRecover tells if a condemned pod that is not the lowest broken one is waited for before it goes. In Kubernetes that has no
// end, so that two broken pods hold up the set for good (kubernetes#36333).
func (p *planner) mayRecover(pod *corev1.Pod) bool {
	if p.Options.Strict {
		return !p.isPassed(pod)
	}
	until := podstate.UnreadySince(pod).Add(recovery)
	if podstate.IsReady(pod) || podstate.IsFinished(pod) || podstate.TroubleOf(pod, p.Now) != nil || !until.After(p.Now) {
		return false
	}
	p.wait(Wait{Reason: WaitNotReady, On: refPod(pod), Until: until})
	return true
}

// shrinkAtOnce deletes all pods beyond the range.
func (p *planner) shrinkAtOnce() {
	if len(p.condemned) > 0 && p.rules.Conflict {
		p.waitForSet(WaitPolicyConflict)
		return
	}
	p.handOver(SlowStart)
	var chains []Chain
	for _, s := range p.condemned {
		if podstate.IsTerminating(s.pod) {
			p.wait(Wait{Reason: WaitTerminating, On: refPod(s.pod)})
			continue
		}
		chains = append(chains, p.dismiss(s))
	}
	p.step(Step{Mode: SlowStart}, chains...)
}

// lowestBroken is the lowest condemned pod that does not serve; nil if all do.
func (p *planner) lowestBroken() *corev1.Pod {
	for _, s := range slices.Backward(p.condemned) {
		if !p.isServing(s.pod) {
			return s.pod
		}
	}
	return nil
}
