// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

const (
	// roundTime is how long a round of the end takes.
	roundTime = 2 * time.Second
	// maxRounds is how many rounds a world may take to settle.
	maxRounds = 120
	// calmTime is longer than every pause of the controller.
	calmTime = 35 * time.Second
	// idleTime is for how long nothing may be written at rest.
	idleTime = 2 * time.Minute
)

// rest ends all faults, and lets the world settle.
func (w *World) rest() {
	if w.telling {
		w.story.WriteString("    all faults end\n")
	}
	w.soothe()
	quiet := 0
	for round := 0; ; round++ {
		if round == maxRounds {
			w.breaks(RuleSettled, fmt.Sprintf("after %d rounds there are still writes", maxRounds))
			return
		}
		before := w.server.version
		w.work()
		w.pass(roundTime)
		w.check()
		if len(w.broken) > 0 {
			return
		}
		if before != w.server.version {
			quiet = 0
			continue
		}
		// Nothing happened. What is left may wait for a pause to end, or for clocks that jumped.
		if quiet++; quiet == 3 {
			break
		}
		w.pass([]time.Duration{calmTime, calmTime + w.jumped}[quiet-1])
	}
	w.checkEnd()
	w.idle()
}

// soothe ends all faults. Strangers leave, what is broken is mended, and one controller runs.
func (w *World) soothe() {
	w.calm, w.faults, w.refusing = true, nil, false
	clear(w.nodes.lost)
	clear(w.nodes.fates)
	for _, c := range w.calls {
		c.held = 0
	}
	w.ripen()
	w.leaveOne()
	for _, m := range w.running[0].caches {
		m.stalled = false
	}
	w.running[0].crash = 0
	for _, p := range w.server.pods() {
		w.mend(p)
	}
}

// leaveOne lets one controller run. One that was asked to stop is none: what it still waits for has held it up so far.
func (w *World) leaveOne() {
	for _, i := range slices.Clone(w.running) {
		if i.stopping || len(w.running) > 1 {
			w.kill(i)
		}
	}
	if len(w.running) == 0 {
		w.start(0)
	}
}

// mend lets a pod be as others: nothing holds it, and it does not belong to strangers.
func (w *World) mend(p *corev1.Pod) {
	if len(p.Finalizers) > 0 {
		w.server.changePod(p.Name, func(p *corev1.Pod) { p.Finalizers = nil })
	}
	p = w.server.pod(p.Name)
	if p == nil {
		return
	}
	if owner := metav1.GetControllerOf(p); p.Labels["app"] != setName || (owner != nil && owner.UID == strangerUID) {
		w.server.end(p.DeepCopy(), nil)
	}
}

// idle holds a world that has settled against the rule that nothing is written any more, also when caches are listed anew.
func (w *World) idle() {
	if len(w.broken) > 0 {
		return
	}
	before := w.server.version
	for _, k := range kinds() {
		w.relist(w.running[0], k)
	}
	w.pass(idleTime)
	if n := w.server.version - before; n > 0 {
		w.breaks(RuleAtRest, plural(n, "write"))
	}
}

// checkEnd holds what the world came to against the set's spec.
func (w *World) checkEnd() {
	set := w.server.set()
	if set == nil {
		w.checkGone()
		return
	}
	span := ordinal.RangeOf(set)
	var wrong []string
	for n := range span.All() {
		if fault := w.faultOf(set, n); fault != "" {
			wrong = append(wrong, fmt.Sprintf("%s %s", ordinal.PodName(setName, n), fault))
		}
	}
	members := 0
	for _, p := range w.server.pods() {
		if isOwned(p, set.UID) {
			members++
		}
	}
	if members != span.Count {
		wrong = append(wrong, fmt.Sprintf("it has %s, not %d", plural(members, "pod"), span.Count))
	}
	wrong = append(wrong, w.faultsOfStatus(set, span.Count)...)
	wrong = append(wrong, w.lostClaims()...)
	if len(wrong) > 0 {
		w.breaks(RuleEnd, strings.Join(wrong, "; "))
	}
}

// faultOf is what is wrong with the pod of an ordinal.
func (w *World) faultOf(set *appsv1.StatefulSet, n int) string {
	p := w.server.pod(ordinal.PodName(setName, n))
	switch {
	case p == nil:
		return "is missing"
	case !isOwned(p, set.UID):
		return "is not the set's"
	case !podstate.IsReady(p) || podstate.IsTerminating(p):
		return "is not ready"
	case p.Labels[appsv1.StatefulSetPodNameLabel] != p.Name:
		return "has lost its identity"
	case isUpdated(set, n) && image(p) != set.Spec.Template.Spec.Containers[0].Image:
		return "is not updated"
	}
	for i := range p.Spec.Volumes {
		if v := p.Spec.Volumes[i].PersistentVolumeClaim; v != nil && w.server.get(plan.KindClaim, v.ClaimName) == nil {
			return "has lost claim " + v.ClaimName
		}
	}
	return ""
}

// isUpdated tells if the pod of an ordinal has to be updated.
func isUpdated(set *appsv1.StatefulSet, n int) bool {
	strategy := set.Spec.UpdateStrategy
	first := ordinal.RangeOf(set).Start
	if r := strategy.RollingUpdate; r != nil && r.Partition != nil {
		first += int(*r.Partition)
	}
	return strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && n >= first
}

// faultsOfStatus are what is wrong with the status of a set that is at rest.
func (w *World) faultsOfStatus(set *appsv1.StatefulSet, replicas int) []string {
	var members []*corev1.Pod
	for _, p := range w.server.pods() {
		if isOwned(p, set.UID) {
			members = append(members, p)
		}
	}
	var wrong []string
	s := &set.Status
	told := counters{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas}
	want := count(members, s, set, time.Now(), podstate.IsTerminating)
	if told != want || int(s.AvailableReplicas) != replicas {
		wrong = append(wrong, fmt.Sprintf("the status tells %+v, and %+v is true", told, want))
	}
	if s.ObservedGeneration != set.Generation {
		wrong = append(wrong, fmt.Sprintf("the status tells of generation %d of %d", s.ObservedGeneration, set.Generation))
	}
	return wrong
}

// checkGone holds what a set left behind against the rules.
func (w *World) checkGone() {
	for _, k := range []plan.Kind{plan.KindPod, plan.KindRevision} {
		for _, o := range w.server.all(k) {
			if owner := metav1.GetControllerOf(o); owner != nil && !w.server.owns(owner.UID) {
				w.breaks(RuleEnd, fmt.Sprintf("%s %s is left of a set that is gone", k, o.GetName()))
			}
		}
	}
	if lost := w.lostClaims(); len(lost) > 0 {
		w.breaks(RuleClaimKept, strings.Join(lost, "; "))
	}
}

// lostClaims are the claims that went although nobody wanted it.
func (w *World) lostClaims() []string {
	if w.right.deletes {
		return nil
	}
	var lost []string
	for _, e := range w.server.shelves[plan.KindClaim].log {
		c := e.object
		now := w.server.get(plan.KindClaim, c.GetName())
		if (now == nil || now.GetUID() != c.GetUID()) && !w.right.deleted[c.GetUID()] {
			lost = append(lost, "claim "+c.GetName()+" is lost")
		}
	}
	return lost
}

// describeEnd is what there is, without what differs between two runs that end alike.
func (w *World) describeEnd() string {
	var b strings.Builder
	if w.server.set() != nil {
		b.WriteString("a set\n")
	}
	for _, p := range w.server.pods() {
		fmt.Fprintf(&b, "pod %s with image %s\n", p.Name, image(p))
	}
	for _, c := range w.server.all(plan.KindClaim) {
		fmt.Fprintf(&b, "claim %s\n", c.GetName())
	}
	return b.String()
}
