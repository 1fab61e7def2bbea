// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/policy"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// Commands, for after the name of the program and before that of the set.
const (
	commandResume = "rollout resume sts/"
	commandRetry  = "rollout retry sts/"
)

// maxNames is how many names one sentence has.
const maxNames = 5

// Verdict is how a rollout fares.
type Verdict struct {
	// Text tells it in one sentence.
	Text string
	// Over means that waiting is over: the rollout is done, or will not go on by itself.
	Over bool
	// Failed means that it will not go on by itself.
	Failed bool
	// Command is what lets it go on, for after the name of the program; or for after kubectl if Kubectl is set. It is empty if
	// there is none.
	Command string
	// Kubectl means that the command is one of kubectl.
	Kubectl bool
	// Next is the moment at which the verdict may be another although no object has changed; zero for never.
	Next time.Time
}

// Judge tells how the rollout of the set's template fares.
func (s Subject) Judge() Verdict {
	set := s.Set
	update := set.Status.UpdateRevision
	switch {
	case set.DeletionTimestamp != nil:
		return failure(fmt.Sprintf("%s is being deleted", set.Name))
	case set.Status.ObservedGeneration < set.Generation || update == "":
		return Verdict{Text: fmt.Sprintf("waiting for the controller to see %s as it is now", set.Name)}
	}
	if v, failed := s.failed(); failed {
		return v
	}
	p := s.Measure(update)
	if p.IsDone() {
		return Verdict{Text: s.done(p, update), Over: true}
	}
	if v, stopped := s.stopped(p); stopped {
		return v
	}
	return Verdict{Text: s.progress(p, update), Next: s.nextAvailable(p)}
}

func failure(text string) Verdict {
	return Verdict{Text: text, Over: true, Failed: true}
}

// failed tells if the set's status says that the rollout has failed, unless another try was asked for since.
func (s Subject) failed() (Verdict, bool) {
	i := slices.IndexFunc(s.Set.Status.Conditions, func(c appsv1.StatefulSetCondition) bool {
		return c.Type == appsv1.StatefulSetProgressing
	})
	if i < 0 {
		return Verdict{}, false
	}
	c := s.Set.Status.Conditions[i]
	if policy.Of(s.Policies).RetriedAt.After(c.LastTransitionTime.Time) {
		return Verdict{}, false
	}
	var v Verdict
	switch c.Reason {
	case status.ReasonDeadlineExceeded:
		v = failure(fmt.Sprintf("the rollout of %s made no progress for too long", s.Set.Name))
	case status.ReasonRolledBack:
		v = failure(fmt.Sprintf("the rollout of %s failed and was rolled back", s.Set.Name))
	case status.ReasonRollingBack:
		v = Verdict{Text: fmt.Sprintf("the rollout of %s failed and is being rolled back", s.Set.Name)}
	default:
		return Verdict{}, false
	}
	if c.Message != "" {
		v.Text += ": " + c.Message
	}
	if v.Failed {
		v.Command = commandRetry + s.Set.Name
	}
	return v, true
}

// stopped tells if somebody has to do something before the rollout can go on.
func (s Subject) stopped(p Progress) (Verdict, bool) {
	if s.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		if len(p.Old) == 0 {
			return Verdict{}, false
		}
		v := failure(fmt.Sprintf("%s has the update strategy OnDelete, and %s an earlier template until somebody deletes %s",
			s.Set.Name, have(p.Old), them(p.Old)))
		v.Command, v.Kubectl = "delete pod "+strings.Join(p.Old, " "), true
		return v, true
	}
	if len(s.Policies) == 0 || len(p.Old) == 0 {
		return Verdict{}, false
	}
	return s.stoppedByPolicy()
}

func (s Subject) stoppedByPolicy() (Verdict, bool) {
	rules := policy.Of(s.Policies)
	switch {
	case rules.Conflict && len(s.Policies) > 1:
		return failure(fmt.Sprintf("%s has several policies, so that none is obeyed: %s", s.Set.Name, join(policyNames(s.Policies)))), true
	case rules.Conflict:
		return failure(fmt.Sprintf("the policy %s of %s cannot be read: %v", rules.Policy.Name, s.Set.Name, policy.Check(rules.Policy))), true
	case rules.Paused:
		v := failure(fmt.Sprintf("the rollout of %s is paused by its policy %s", s.Set.Name, rules.Policy.Name))
		v.Command = commandResume + s.Set.Name
		return v, true
	case s.isBetweenBatches(rules) && rules.Batch.Seconds == nil:
		v := failure(fmt.Sprintf("the rollout of %s is paused after a batch by its policy %s", s.Set.Name, rules.Policy.Name))
		v.Command = commandResume + s.Set.Name
		return v, true
	}
	return Verdict{}, false
}

// isBetweenBatches tells if the policy's status says that a batch is done, unless somebody has asked for the next one since.
func (s Subject) isBetweenBatches(rules policy.Rules) bool {
	if rules.Batch == nil || rules.Paused {
		return false
	}
	r := rules.Policy.Status.Rollout
	if r == nil || r.Revision != s.Set.Status.UpdateRevision || r.Phase != v1alpha1.RolloutPaused {
		return false
	}
	return rules.Policy.Status.ObservedGeneration == rules.Policy.Generation && !rules.ResumedAt.After(r.LastProgressTime.Time)
}

func (s Subject) done(p Progress, update string) string {
	text := fmt.Sprintf("%s is rolled out: %s %s and available", s.Set.Name, count(p.Wanted, "pod"), at(p.Wanted, update))
	if p.Count == 0 {
		return fmt.Sprintf("%s is rolled out: it is scaled to 0", s.Set.Name)
	}
	if len(p.Kept) > 0 {
		text += fmt.Sprintf("; %s an earlier template because of the partition %d", have(p.Kept), plan.Partition(s.Set))
	}
	return text
}

func (s Subject) progress(p Progress, update string) string {
	text := fmt.Sprintf("rolling out %s: %d of %s updated, %d available", update, p.Updated, count(p.Wanted, "pod"), p.Available)
	if rules := policy.Of(s.Policies); len(s.Policies) > 0 && s.isBetweenBatches(rules) {
		return text + "; paused between batches for a while"
	}
	for _, pod := range p.Unavailable {
		if t := podstate.TroubleOf(pod, s.Now); t != nil {
			return fmt.Sprintf("%s; pod %s: %s", text, pod.Name, t.Message)
		}
	}
	return text
}

// nextAvailable is when the first of the pods that are ready is available.
func (s Subject) nextAvailable(p Progress) time.Time {
	var next time.Time
	for _, pod := range p.Unavailable {
		at, ok := podstate.AvailableAt(pod, s.Set.Spec.MinReadySeconds)
		if ok && at.After(s.Now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

func policyNames(policies []*v1alpha1.StatefulSetPolicy) []string {
	names := make([]string, len(policies))
	for i, p := range policy.Sorted(policies) {
		names[i] = p.Name
	}
	return names
}

func at(n int, revision string) string {
	if n == 1 {
		return "is at " + revision
	}
	return "are at " + revision
}

// have names pods as the subject of a sentence with its verb.
func have(names []string) string {
	if len(names) == 1 {
		return "pod " + names[0] + " has"
	}
	return "pods " + join(names) + " have"
}

func them(names []string) string {
	if len(names) == 1 {
		return "it"
	}
	return "them"
}

// join puts names in a row, and says how many there are instead of naming very many.
func join(names []string) string {
	if len(names) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
