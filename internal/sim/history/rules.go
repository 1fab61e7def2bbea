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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// The rules that no write may break. A controller is held to what its caches showed when the sync began that made the write, and
// to what the API server has answered it since. What it could not know is not held against it.
const (
	RuleOneLive     = "there are never two live pods of one name"
	RuleOrder       = "in order, a pod is created only when all before it serve"
	RuleRange       = "a pod is created only under a name that the set wants"
	RuleRevision    = "a pod is created from the revision that the partition says"
	RulePartition   = "an update takes no pod below the partition, nor one that is as it should be"
	RuleBudget      = "an update takes no pod that serves while as many as may be unavailable are"
	RuleShrink      = "in order, a set shrinks from the top, one by one, while all that stay serve"
	RuleGrace       = "a pod is given the time to end that its spec says"
	RuleClaims      = "a claim is never deleted by a controller"
	RuleClaimOwners = "a claim gets only owners with which the retention policy lets it go, and loses none of others"
	RuleClaimKept   = "a claim that no policy and nobody gave up is never lost"
	RuleRevisions   = "a revision is deleted only beyond the history limit, and never while it is in use"
	RuleForeign     = "nothing is written that is not the set's, and each write names the very object"
	RuleAdopt       = "nothing is adopted for a set that is gone or going"
	RuleCounters    = "every published counter is true of what the controller saw"
	RuleLoop        = "a controller that sees nothing new does not write for ever"
	RuleSettled     = "without faults, a set settles in bounded time"
	RuleAtRest      = "a set at rest is not written to"
	RuleEnd         = "in the end, the set is as its spec says"
)

// verdict is why a call breaks a rule at a sight; empty if it does not.
type verdict struct{ rule, how string }

// judge holds a call against the rules. It breaks one only if it does for all that the controller may have seen.
func (w *World) judge(c *call) {
	if !c.isWrite() {
		return
	}
	var last []verdict
	for _, s := range c.by.ledger.sights {
		if last = w.judgeAt(c, s); len(last) == 0 {
			return
		}
	}
	for _, v := range last {
		w.breaks(v.rule, fmt.Sprintf("%s: %s", c, v.how))
	}
}

// judgeAt holds a call against the rules at one sight.
func (w *World) judgeAt(c *call, s sight) []verdict {
	j := &judging{call: c, sight: s}
	if s.set == nil {
		j.breaks(RuleForeign, "its cache shows no set")
		return j.found
	}
	j.span = ordinal.RangeOf(s.set)
	j.known = c.by.ledger.known(s)
	switch {
	case c.verb == verbStatus:
		j.status()
	case c.kind == plan.KindPod:
		j.pod()
	case c.kind == plan.KindClaim:
		j.claim()
	case c.kind == plan.KindRevision:
		j.revision()
	default:
		j.breaks(RuleForeign, "only the status of a set is written")
	}
	return j.found
}

// judging is one call at one sight.
type judging struct {
	*call
	sight

	span  ordinal.Range
	known map[string]*corev1.Pod
	found []verdict
}

func (j *judging) breaks(rule, format string, args ...any) {
	j.found = append(j.found, verdict{rule, fmt.Sprintf(format, args...)})
}

// isMember tells if a pod is the set's own.
func (j *judging) isMember(p *corev1.Pod) bool {
	_, named := ordinal.Of(setName, p.Name)
	owner := metav1.GetControllerOfNoCopy(p)
	if adopted := j.by.ledger.written[p.UID]; owner == nil && adopted != nil && versionOf(adopted) > versionOf(p) {
		owner = metav1.GetControllerOfNoCopy(adopted)
	}
	return named && owner != nil && owner.UID == j.set.UID && p.Labels["app"] == setName
}

func (j *judging) member(n int) *corev1.Pod {
	if p := j.known[ordinal.PodName(setName, n)]; p != nil && j.isMember(p) {
		return p
	}
	return nil
}

func (j *judging) isLeaving(p *corev1.Pod) bool {
	return podstate.IsTerminating(p) || j.by.ledger.leaving[p.UID]
}

// serves tells if the set's pod of an ordinal serves.
func (j *judging) serves(n int) bool {
	p := j.member(n)
	return p != nil && !j.isLeaving(p) && podstate.IsAvailable(p, j.set.Spec.MinReadySeconds, j.now)
}

func (j *judging) isOrdered() bool {
	return j.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

// partition is the first ordinal that an update takes.
func (j *judging) partition() int {
	if r := j.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return j.span.Start + int(*r.Partition)
	}
	return j.span.Start
}

func (j *judging) pod() {
	switch j.verb {
	case verbCreate:
		j.createPod()
	case verbDelete:
		if p := j.target(j.pods); p != nil {
			j.deletePod(p)
		}
	default:
		if p := j.target(j.pods); p != nil {
			j.patchPod(p)
		}
	}
}

// target is the object that the call means, by UID, as the cache showed it.
func (j *judging) target(shown map[string]object) object {
	uid := j.body.Metadata.UID
	if p := j.options.Preconditions; j.verb == verbDelete && p != nil && p.UID != nil {
		uid = *p.UID
	}
	o := shown[j.name]
	if written := j.by.ledger.written[uid]; written != nil && (o == nil || versionOf(written) > versionOf(o)) {
		o = written
	}
	if uid == "" || o == nil || o.GetUID() != uid {
		j.breaks(RuleForeign, "its cache does not show an object of UID %q", uid)
		return nil
	}
	return o
}

func (j *judging) createPod() {
	n, named := ordinal.Of(setName, j.name)
	if !named || !j.span.Contains(n) {
		j.breaks(RuleRange, "the set wants %d from %d on", j.span.Count, j.span.Start)
		return
	}
	for before := j.span.Start; j.isOrdered() && before < n; before++ {
		if !j.serves(before) {
			j.breaks(RuleOrder, "%d does not serve", before)
		}
	}
	pod, ok := j.object.(*corev1.Pod)
	if !ok {
		return
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != j.set.UID {
		j.breaks(RuleForeign, "the set is not its owner")
	}
	j.madeFrom(pod, n)
}

// madeFrom holds a pod to be against the partition.
func (j *judging) madeFrom(pod *corev1.Pod, n int) {
	current := j.set.Status.CurrentRevision
	_, exists := j.revisions[current]
	strategy := j.set.Spec.UpdateStrategy
	switch {
	case strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate == nil:
		// Without a block it goes by the counters.
	case n < j.partition() && exists && j.isOwn(j.revisions[current]):
		if got := podstate.Revision(pod); got != current {
			j.breaks(RuleRevision, "%d is below the partition and is made from %s, not %s", n, got, current)
		}
	case n >= j.partition() && image(pod) != j.wantedImage():
		j.breaks(RuleRevision, "%d has image %s, not %s", n, image(pod), j.wantedImage())
	}
}

func (j *judging) wantedImage() string { return j.set.Spec.Template.Spec.Containers[0].Image }

// isOwn tells if an object is the set's, or nobody's, and is selected.
func (j *judging) isOwn(o object) bool {
	owner := metav1.GetControllerOfNoCopy(o)
	return (owner == nil || owner.UID == j.set.UID) && o.GetLabels()["app"] == setName
}

func (j *judging) deletePod(o object) {
	if j.options.GracePeriodSeconds != nil {
		j.breaks(RuleGrace, "it gives %d seconds", *j.options.GracePeriodSeconds)
	}
	pod, ok := o.(*corev1.Pod)
	if ok && j.by.ledger.missed[pod.UID] {
		// What is gone comes to no harm.
		return
	}
	if !ok || !j.isMember(pod) {
		j.breaks(RuleForeign, "the pod is not the set's")
		return
	}
	n, _ := ordinal.Of(setName, pod.Name)
	switch {
	case !j.span.Contains(n):
		j.shrink(n)
	case !podstate.IsFinished(pod):
		j.update(pod, n)
	}
}

// shrink holds the removal of a pod beyond the range against the rules.
func (j *judging) shrink(n int) {
	if !j.isOrdered() {
		return
	}
	for i := range j.span.All() {
		if p := j.known[ordinal.PodName(setName, i)]; p != nil && !j.isMember(p) {
			// The name is taken, so nothing is to be had there.
			continue
		}
		if !j.serves(i) {
			j.breaks(RuleShrink, "%d does not serve", i)
		}
	}
	for _, p := range j.known {
		if m, _ := ordinal.Of(setName, p.Name); j.isMember(p) && m > n && !j.span.Contains(m) {
			j.breaks(RuleShrink, "%d is still there", m)
		}
	}
}

// update holds the removal of a pod of the range against the rules.
func (j *judging) update(pod *corev1.Pod, n int) {
	serves := j.serves(n)
	switch {
	case j.set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType:
		j.breaks(RulePartition, "the strategy is %s", j.set.Spec.UpdateStrategy.Type)
	case j.isAsWanted(pod, n):
		j.breaks(RulePartition, "the pod is at %s, as it should be", podstate.Revision(pod))
	case serves && n < j.partition():
		j.breaks(RulePartition, "the partition begins at %d", j.partition())
	}
	if !serves {
		return
	}
	unavailable := 1
	for i := range j.span.All() {
		if i != n && !j.serves(i) {
			unavailable++
		}
	}
	if limit := j.limit(); unavailable > limit {
		j.breaks(RuleBudget, "%d would be unavailable, and %d may", unavailable, limit)
	}
}

// isAsWanted tells if a pod was made from what its ordinal should be made from.
func (j *judging) isAsWanted(pod *corev1.Pod, n int) bool {
	revision := podstate.Revision(pod)
	if n >= j.partition() {
		return image(pod) == j.wantedImage() && revision != ""
	}
	// A revision of an earlier set of the name is lost to this one, and so is what the pod should be made from.
	r, exists := j.revisions[revision]
	return exists && j.isOwn(r) && revision == j.set.Status.CurrentRevision
}

// limit is how many pods may be unavailable.
func (j *judging) limit() int {
	r := j.set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, j.span.Count, false)
	if err != nil {
		return 1
	}
	return max(1, n)
}

// patchPod holds a change of a pod against the rules: it is of the set, or becomes so.
func (j *judging) patchPod(o object) {
	owner := metav1.GetControllerOf(o)
	_, named := ordinal.Of(setName, o.GetName())
	switch {
	case owner != nil && owner.UID != j.set.UID:
		j.breaks(RuleForeign, "%s %s owns the pod", owner.Kind, owner.Name)
	case owner == nil && !(named && o.GetLabels()["app"] == setName):
		j.breaks(RuleForeign, "the pod does not match the set")
	case owner == nil:
		j.adopt()
	}
	for _, p := range owned(j.body) {
		if p.UID != j.set.UID {
			j.breaks(RuleForeign, "it makes %s %s an owner", p.Kind, p.Name)
		}
	}
}

func owned(b body) []ownerPatch {
	if b.Metadata.OwnerReferences == nil {
		return nil
	}
	return *b.Metadata.OwnerReferences
}

func (j *judging) adopt() {
	if !j.live {
		j.breaks(RuleAdopt, "when the sync began, the API server had no such set, or one that is being deleted")
	}
}

func (j *judging) claim() {
	if j.verb == verbDelete {
		j.breaks(RuleClaims, "it is deleted")
		return
	}
	n, isOurs := j.claimOrdinal()
	if !isOurs {
		j.breaks(RuleForeign, "the set has no such claim")
		return
	}
	var before, after []metav1.OwnerReference
	if j.verb == verbCreate {
		after = j.object.GetOwnerReferences()
	} else {
		o := j.target(j.claims)
		if o == nil {
			return
		}
		before = o.GetOwnerReferences()
		after = owners(before, owned(j.body), types.MergePatchType)
	}
	j.owners(n, before, after)
}

// claimOrdinal is the ordinal of the set's claim that the call is about.
func (j *judging) claimOrdinal() (int, bool) {
	for i := range j.set.Spec.VolumeClaimTemplates {
		prefix := j.set.Spec.VolumeClaimTemplates[i].Name + "-"
		if rest, ok := strings.CutPrefix(j.name, prefix); ok {
			return ordinal.Of(setName, rest)
		}
	}
	return 0, false
}

// owners holds a change of a claim's owners against the retention policy.
func (j *judging) owners(n int, before, after []metav1.OwnerReference) {
	for _, r := range after {
		if !names(before, r.UID) && !j.mayOwn(n, r) {
			j.breaks(RuleClaimOwners, "%s %s becomes an owner", r.Kind, r.Name)
		}
	}
	for _, r := range before {
		isOther := r.Kind != "Pod" && r.Kind != string(plan.KindSet)
		if isOther && !names(after, r.UID) {
			j.breaks(RuleClaimOwners, "%s %s is an owner no more", r.Kind, r.Name)
		}
	}
}

// mayOwn tells if the retention policy makes somebody an owner of a claim of an ordinal.
func (j *judging) mayOwn(n int, r metav1.OwnerReference) bool {
	p := j.set.Spec.PersistentVolumeClaimRetentionPolicy
	switch {
	case p == nil:
		return false
	case r.UID == j.set.UID:
		return p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	default:
		return r.Kind == "Pod" && !j.span.Contains(n) && p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
}

func names(refs []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == uid })
}

func (j *judging) revision() {
	if j.verb == verbCreate {
		return
	}
	o := j.target(j.revisions)
	if o == nil {
		return
	}
	if !j.isOwn(o) {
		j.breaks(RuleForeign, "the revision is not the set's")
	}
	switch {
	case j.verb == verbDelete:
		j.deleteRevision()
	case len(owned(j.body)) > 0:
		j.adopt()
	}
}

// deleteRevision holds the removal of a revision against the history limit.
func (j *judging) deleteRevision() {
	live := map[string]bool{j.set.Status.CurrentRevision: true, j.set.Status.UpdateRevision: true}
	if j.set.Status.ObservedGeneration != j.set.Generation {
		// The template may have changed, and with it what is the update.
		delete(live, j.set.Status.UpdateRevision)
	}
	for _, p := range j.known {
		if j.isMember(p) {
			live[podstate.Revision(p)] = true
		}
	}
	if live[j.name] {
		j.breaks(RuleRevisions, "the revision is in use")
	}
	past := 0
	for name, r := range j.revisions {
		if j.isOwn(r) && !live[name] && !j.by.ledger.leaving[r.GetUID()] {
			past++
		}
	}
	if limit := int(*j.set.Spec.RevisionHistoryLimit); past <= limit {
		j.breaks(RuleRevisions, "there are %d of history, and %d may be kept", past, limit)
	}
}

// counters are the numbers that a status tells.
type counters struct{ replicas, ready, available, current, updated int32 }

// status holds a status to be against the pods.
func (j *judging) status() {
	if j.body.Metadata.UID != j.set.UID || j.body.Metadata.ResourceVersion == "" {
		j.breaks(RuleForeign, "the status is not for the set that the cache showed")
	}
	s := j.body.Status
	told := counters{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas}
	want := count(j.members(false), s, j.set, j.now, j.isLeaving)
	if told != want && told != count(j.members(true), s, j.set, j.now, j.isLeaving) {
		j.breaks(RuleCounters, "it tells %+v, and %+v is true", told, want)
	}
	if s.ObservedGeneration > j.set.Generation {
		j.breaks(RuleCounters, "it tells of generation %d, and %d is the newest", s.ObservedGeneration, j.set.Generation)
	}
}

// members are the set's own pods as the cache shows them, with those that the controller has created since. Those that it was told
// to be gone may be among them as long as the cache shows them.
func (j *judging) members(withGone bool) []*corev1.Pod {
	var members []*corev1.Pod
	for _, p := range j.known {
		if j.isMember(p) {
			members = append(members, p)
		}
	}
	for name, o := range j.pods {
		if p, ok := o.(*corev1.Pod); ok && withGone && j.known[name] == nil && j.isMember(p) {
			members = append(members, p)
		}
	}
	return members
}

// count counts pods for a status.
func count(
	members []*corev1.Pod, s *appsv1.StatefulSetStatus, set *appsv1.StatefulSet, now time.Time, isLeaving func(*corev1.Pod) bool,
) counters {
	var n counters
	add := func(to *int32, is bool) {
		if is {
			*to++
		}
	}
	for _, p := range members {
		n.replicas++
		add(&n.ready, podstate.IsReady(p))
		add(&n.available, podstate.IsAvailable(p, set.Spec.MinReadySeconds, now))
		if !isLeaving(p) {
			add(&n.current, podstate.Revision(p) == s.CurrentRevision)
			add(&n.updated, podstate.Revision(p) == s.UpdateRevision)
		}
	}
	return n
}

// check holds the world against the rules that are no write's.
func (w *World) check() {
	for uid, p := range w.nodes.processes {
		pod := w.server.pod(p.name)
		if pod == nil || pod.UID == uid || w.nodes.forced[uid] {
			continue
		}
		w.breaks(RuleOneLive, fmt.Sprintf("%s is there anew, and the one before still runs on %s", p.name, p.node))
	}
}
