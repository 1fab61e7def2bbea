// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// Conditions of a set, beside Progressing, which Kubernetes names.
const (
	// Available tells whether enough pods serve: all, or, while they are updated, all but as many as may be unavailable.
	Available appsv1.StatefulSetConditionType = "Available"
	// Degraded tells whether something needs a look: a pod that fails, a refusal, a name or claim that is taken.
	Degraded appsv1.StatefulSetConditionType = "Degraded"
)

// Reasons of conditions. Degraded has those of waits and of troubles of pods, too.
const (
	// ReasonAllAvailable means that all pods are available.
	ReasonAllAvailable = "AllAvailable"
	// ReasonEnoughAvailable means that all but as many are as maxUnavailable allows during an update, and at least one.
	ReasonEnoughAvailable = "EnoughAvailable"
	// ReasonTooFewAvailable means that fewer are.
	ReasonTooFewAvailable = "TooFewAvailable"
	// ReasonComplete means that all is done.
	ReasonComplete = "Complete"
	// ReasonScaling means that pods are made or removed; the message tells which one that waits for.
	ReasonScaling = "Scaling"
	// ReasonUpdating means that pods are replaced by ones of a new template; the message tells how many are done.
	ReasonUpdating = "Updating"
	// ReasonPaused means that the policy pauses the rollout.
	ReasonPaused = "RolloutPaused"
	// ReasonDeadlineExceeded means that the rollout made no progress within the policy's deadline and is left as it is.
	ReasonDeadlineExceeded = "ProgressDeadlineExceeded"
	// ReasonRollingBack means that the rollout failed and its pods are brought back.
	ReasonRollingBack = "RollingBack"
	// ReasonRolledBack means that the rollout failed and its pods are back.
	ReasonRolledBack = "RolledBack"
	// ReasonOnDelete means that pods of an earlier template wait to be deleted by somebody.
	ReasonOnDelete = "OnDelete"
	// ReasonFailedCreate means that the API server refuses a pod or a claim; the message is its answer.
	ReasonFailedCreate = "FailedCreate"
	// ReasonAsExpected means that nothing needs a look.
	ReasonAsExpected = "AsExpected"
)

// longestMessage is how many bytes of a refusal a condition tells.
const longestMessage = 512

// scene is what conditions are told from.
type scene struct {
	snapshot plan.Snapshot
	plan     plan.Plan
	outcomes []plan.Outcome
	members  []member
	next     *appsv1.StatefulSetStatus
}

// setConditions sets the conditions of a set. Their messages are the same from one moment to the next while nothing changes,
// so that they cause no writes of their own.
func (c scene) setConditions() {
	if c.snapshot.Set.DeletionTimestamp != nil {
		return
	}
	if c.snapshot.Options.Strict {
		c.next.Conditions = slices.DeleteFunc(c.next.Conditions, c.isStale)
		return
	}
	c.set(c.available())
	c.set(c.progressing())
	c.set(c.degraded())
}

// isStale tells if a condition was set before this controller was told to set none: nobody keeps it true any more.
func (c scene) isStale(condition appsv1.StatefulSetCondition) bool {
	isTheirs := c.snapshot.Set.Spec.UpdateStrategy.Type == appsv1.RecreateStatefulSetStrategyType
	return condition.Type == Available || condition.Type == Degraded || (condition.Type == appsv1.StatefulSetProgressing && !isTheirs)
}

func (c scene) set(condition appsv1.StatefulSetCondition) {
	set(c.next, condition, c.snapshot.Now)
}

// available counts the pods of the range that serve and are to stay.
func (c scene) available() appsv1.StatefulSetCondition {
	wanted, serving := c.plan.Span.Count, 0
	for _, m := range c.members {
		if n, ok := ordinal.Of(c.snapshot.Set.Name, m.Name); ok && c.plan.Span.Contains(n) && c.serves(m) {
			serving++
		}
	}
	condition := appsv1.StatefulSetCondition{
		Type:    Available,
		Status:  corev1.ConditionTrue,
		Reason:  ReasonAllAvailable,
		Message: fmt.Sprintf("%d of %d pods are available", serving, wanted),
	}
	switch {
	case serving >= wanted:
	case c.isUpdating() && serving >= max(1, wanted-plan.MaxUnavailable(c.snapshot.Set)):
		condition.Reason = ReasonEnoughAvailable
	default:
		condition.Status, condition.Reason = corev1.ConditionFalse, ReasonTooFewAvailable
	}
	return condition
}

func (c scene) serves(m member) bool {
	return !m.leaving && podstate.IsServing(m.Pod, c.snapshot.Set.Spec.MinReadySeconds, c.snapshot.Now)
}

// isUpdating tells if pods are being replaced by ones of another revision. When the last of them comes, only what was told
// before shows that it does so for an update.
func (c scene) isUpdating() bool {
	if phase := c.plan.Rollout.Phase; phase == v1alpha1.RolloutComplete || phase == v1alpha1.RolloutRolledBack {
		return false
	}
	before := find(c.snapshot.Set.Status.Conditions, appsv1.StatefulSetProgressing)
	return c.plan.Rollout.Outdated || c.next.CurrentRevision != c.next.UpdateRevision ||
		(before != nil && (before.Reason == ReasonUpdating || before.Reason == ReasonRollingBack))
}

// progressing tells what is being done and what that waits for. As in Kubernetes, it is false when all is done; it is false,
// too, when nothing more is done.
func (c scene) progressing() appsv1.StatefulSetCondition {
	condition := appsv1.StatefulSetCondition{Type: appsv1.StatefulSetProgressing, Status: corev1.ConditionFalse}
	var message string
	if condition.Reason, message = c.stopped(); condition.Reason == "" {
		condition.Reason, message = c.finished()
	}
	if condition.Reason == "" {
		condition.Status = corev1.ConditionTrue
		condition.Reason, message = c.working()
	}
	condition.Message = message
	if condition.Reason != ReasonComplete && condition.Reason != ReasonOnDelete {
		condition.Message = c.since(condition.Type, message)
	}
	return condition
}

// done tells how much of the rollout is done.
func (c scene) done() string {
	return fmt.Sprintf("revision %s: %d of %d pods", c.plan.Rollout.Revision, c.updated(), c.plan.Rollout.Wanted)
}

// stopped tells why nothing more is done although not all is; empty if something is.
func (c scene) stopped() (reason, message string) {
	switch phase := c.plan.Rollout.Phase; {
	case phase == v1alpha1.RolloutHeld:
		return ReasonDeadlineExceeded, c.done() + "; no progress within the deadline of the policy, so its rollout is held"
	case phase == v1alpha1.RolloutRolledBack:
		return ReasonRolledBack, fmt.Sprintf("revision %s failed (%s), and pods are back at %s until the template changes",
			c.plan.Rollout.Revision, failure(c.snapshot, c.plan), c.next.CurrentRevision)
	case c.waitsFor(plan.WaitRecreateDisabled):
		return string(plan.WaitRecreateDisabled), "the strategy Recreate is switched off, so pods are left as they are"
	case phase == v1alpha1.RolloutPaused && c.isWhole():
		return ReasonPaused, c.done() + then(c.pause())
	default:
		return "", ""
	}
}

// finished tells that nothing is left to do; empty if something is.
func (c scene) finished() (reason, message string) {
	switch {
	case !c.isWhole():
		return "", ""
	case c.waitsFor(plan.WaitOnDelete):
		return ReasonOnDelete, c.done() + "; the others wait to be deleted by somebody"
	case c.blocked() != "" || c.isUpdating():
		return "", ""
	case c.waitsFor(plan.WaitPartition):
		return ReasonComplete, c.done() + "; the others are kept by the partition"
	default:
		return ReasonComplete, c.done()
	}
}

// working tells what is being done.
func (c scene) working() (reason, message string) {
	switch {
	case c.plan.Rollout.Phase == v1alpha1.RolloutRollingBack:
		text := fmt.Sprintf("revision %s failed (%s), and pods go back to %s",
			c.plan.Rollout.Revision, failure(c.snapshot, c.plan), c.next.CurrentRevision)
		return ReasonRollingBack, text + then(c.blocked())
	case c.isUpdating():
		return ReasonUpdating, c.done() + then(c.blocked())
	default:
		return ReasonScaling, c.done() + then(c.blocked())
	}
}

// updated counts the pods that have the update revision and serve.
func (c scene) updated() int {
	n := 0
	for _, m := range c.members {
		if podstate.Revision(m.Pod) == c.plan.Rollout.Revision && c.serves(m) {
			n++
		}
	}
	return min(n, c.plan.Rollout.Wanted)
}

// isWhole tells if the set has exactly the pods of its range.
func (c scene) isWhole() bool {
	for _, m := range c.members {
		if n, ok := ordinal.Of(c.snapshot.Set.Name, m.Name); !ok || m.leaving || !c.plan.Span.Contains(n) {
			return false
		}
	}
	return len(c.members) == c.plan.Span.Count
}

func (c scene) waitsFor(reason plan.Reason) bool {
	return slices.ContainsFunc(c.plan.Waits, func(w plan.Wait) bool { return w.Reason == reason })
}

// pause is why the rollout pauses.
func (c scene) pause() string {
	for _, w := range c.plan.Waits {
		switch w.Reason {
		case plan.WaitPaused, plan.WaitPolicyConflict, plan.WaitBatch:
			return w.Because()
		default:
		}
	}
	return ""
}

// blocked is the pod that has to change before the set goes on, and the rule by which it is waited for: a wait that is
// nothing usual, or else the lowest pod of the range that does not serve, or the highest beyond it. It is empty if there is
// none.
func (c scene) blocked() string {
	for _, o := range c.outcomes {
		if o.Result == plan.ResultBlocked {
			return plan.Wait{Reason: plan.WaitDisruption, On: o.Action.Target()}.Sentence()
		}
	}
	for _, w := range c.plan.Waits {
		if !isUsual(w.Reason) {
			return w.Sentence()
		}
	}
	pods, top := c.byOrdinal()
	for n := range c.plan.Span.All() {
		if m, ok := pods[n]; !ok || !c.serves(m) {
			return "waits for pod " + ordinal.PodName(c.snapshot.Set.Name, n) + " to be available"
		}
	}
	if top >= 0 {
		return "waits for pod " + pods[top].Name + " to be gone"
	}
	return ""
}

// byOrdinal are the pods, and the highest ordinal of those that are not to run; -1 if there is none.
func (c scene) byOrdinal() (pods map[int]member, top int) {
	pods, top = make(map[int]member, len(c.members)), -1
	for _, m := range c.members {
		n, ok := ordinal.Of(c.snapshot.Set.Name, m.Name)
		if !ok {
			continue
		}
		pods[n] = m
		if !c.plan.Span.Contains(n) {
			top = max(top, n)
		}
	}
	return pods, top
}

// isUsual tells if a wait is part of any update or scaling, so that the pod alone tells all.
func isUsual(reason plan.Reason) bool {
	switch reason {
	case plan.WaitStarting, plan.WaitNotReady, plan.WaitNotAvailable, plan.WaitTerminating, plan.WaitFinished, plan.WaitBudget,
		plan.WaitPartition, plan.WaitOnDelete, plan.WaitVolumes, plan.WaitClaimConflict, plan.WaitPaused, plan.WaitDeadline,
		plan.WaitRolledBack, plan.WaitLeader, plan.WaitBackoff, plan.WaitBatch:
		return true
	default:
		return false
	}
}

// degraded tells the first thing that needs a look.
func (c scene) degraded() appsv1.StatefulSetCondition {
	condition := appsv1.StatefulSetCondition{Type: Degraded, Status: corev1.ConditionFalse, Reason: ReasonAsExpected}
	for _, find := range []func() (string, string){c.refusal, c.obstacle, c.trouble, c.failedRollout} {
		if reason, message := find(); reason != "" {
			condition.Status, condition.Reason = corev1.ConditionTrue, reason
			condition.Message = c.since(Degraded, message)
			return condition
		}
	}
	return condition
}

// refusal is what was not created. Until a pod that was refused is there, its refusal before counts, also while it is not its
// turn. Of several pods, the one that was told of before is told of again.
func (c scene) refusal() (reason, message string) {
	old := c.toldRefusal()
	texts := map[string]string{}
	first := ""
	for _, o := range c.outcomes {
		if pod, text := refusalOf(o); pod != "" {
			texts[pod], first = text, cmp.Or(first, text)
		}
	}
	for _, w := range c.plan.Waits {
		if w.Reason == plan.WaitBackoff && old != "" {
			texts[w.On.Name] = cmp.Or(texts[w.On.Name], old)
		}
	}
	if old != "" {
		c.addMissing(texts, old)
	}
	for pod, text := range texts {
		if strings.HasPrefix(old, refused(pod)) {
			return ReasonFailedCreate, text
		}
	}
	if first == "" {
		return "", ""
	}
	return ReasonFailedCreate, first
}

// toldRefusal is the refusal that the set's status tells; empty if it tells none.
func (c scene) toldRefusal() string {
	d := find(c.snapshot.Set.Status.Conditions, Degraded)
	if d == nil || d.Reason != ReasonFailedCreate {
		return ""
	}
	return withoutSince(d.Message)
}

// addMissing gives a text to the pods that were refused before and are still not there.
func (c scene) addMissing(texts map[string]string, text string) {
	for pod := range c.snapshot.CreateAfter {
		if !slices.ContainsFunc(c.members, func(m member) bool { return m.Name == pod }) {
			texts[pod] = cmp.Or(texts[pod], text)
		}
	}
}

// refusalOf is the pod that a failed creation is for, and what there is to tell of it; empty for other outcomes.
func refusalOf(o plan.Outcome) (pod, text string) {
	if o.Result != plan.ResultFailed {
		return "", ""
	}
	switch a := o.Action.(type) {
	case plan.CreatePod:
		return a.Pod.Name, refused(a.Pod.Name) + ": " + shortened(o.Err.Error())
	case plan.CreateClaim:
		return a.Pod, fmt.Sprintf("%s for want of claim %s: %s", refused(a.Pod), a.Claim.Name, shortened(o.Err.Error()))
	default:
		return "", ""
	}
}

func refused(pod string) string {
	return "pod " + pod + " is refused"
}

// obstacle is a wait that does not end by itself.
func (c scene) obstacle() (reason, message string) {
	for _, w := range c.plan.Waits {
		switch w.Reason {
		case plan.WaitBadSelector, plan.WaitBadTemplate, plan.WaitBadRevision, plan.WaitBadName, plan.WaitNameTaken,
			plan.WaitClaimShared, plan.WaitPolicyConflict, plan.WaitRecreateDisabled, plan.WaitClaimTerminating, plan.WaitBackoff:
			return string(w.Reason), w.Sentence()
		default:
		}
	}
	return "", ""
}

// failedRollout tells of a rollout that failed, where no pod shows why.
func (c scene) failedRollout() (reason, message string) {
	for _, w := range c.plan.Waits {
		if w.Reason == plan.WaitDeadline || w.Reason == plan.WaitRolledBack {
			return string(w.Reason), w.Sentence()
		}
	}
	return "", ""
}

// trouble is what is wrong with the lowest pod with which something is.
func (c scene) trouble() (reason, message string) {
	byOrdinal := func(a, b member) int {
		m, _ := ordinal.Of(c.snapshot.Set.Name, a.Name)
		n, _ := ordinal.Of(c.snapshot.Set.Name, b.Name)
		return m - n
	}
	for _, m := range slices.SortedFunc(slices.Values(c.members), byOrdinal) {
		if t := podstate.TroubleOf(m.Pod, c.snapshot.Now); t != nil {
			return t.Reason, "pod " + m.Name + ": " + shortened(t.Message)
		}
	}
	return "", ""
}

const sinceMark = ", since "

// since adds to a message since when it holds: since now, or since when the condition tells it already.
func (c scene) since(kind appsv1.StatefulSetConditionType, message string) string {
	if old := find(c.snapshot.Set.Status.Conditions, kind); old != nil && withoutSince(old.Message) == message {
		return old.Message
	}
	return message + sinceMark + c.snapshot.Now.UTC().Format(time.RFC3339)
}

// Since is since when what the condition tells holds: since its message is the same, or, where that tells no time, since its status is.
func Since(condition appsv1.StatefulSetCondition) time.Time {
	_, text := cutLast(condition.Message, sinceMark)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return condition.LastTransitionTime.Time
	}
	return at
}

func withoutSince(message string) string {
	before, _ := cutLast(message, sinceMark)
	return before
}

func cutLast(s, separator string) (before, after string) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):]
	}
	return s, ""
}

// then is a text as the second part of a message.
func then(text string) string {
	if text == "" {
		return ""
	}
	return "; " + text
}

func shortened(text string) string {
	if len(text) <= longestMessage {
		return text
	}
	return strings.ToValidUTF8(text[:longestMessage], "") + "…"
}

// LookAgain is the earliest moment at which a condition changes although no object has; zero for never.
func LookAgain(s plan.Snapshot, p plan.Plan) time.Time {
	var next time.Time
	if s.Options.Strict {
		return next
	}
	for _, pod := range p.Members {
		at := podstate.TroubleAt(pod)
		if at.After(s.Now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
