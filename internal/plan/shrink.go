// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

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
	// In Kubernetes, only the lowest pod that does not serve may go although it is not available, so that two of them hold up
	// the set for good (kubernetes#36333).
	if p.Options.Strict && top != p.lowestBroken() && !p.isPassed(top) {
		return false
	}
	p.step(Step{Mode: Serial}, p.dismiss(p.condemned[0]))
	return false
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
