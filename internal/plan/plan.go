// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// Plan is what a set needs now, and what it waits for.
type Plan struct {
	// Blind means that it cannot be told what belongs to the set. Nothing is planned then, and its status stays.
	Blind bool
	// Steps are carried out one after the other.
	Steps []Step
	// Members are the pods that count as the set's own: those that it owns and that match, and those that it adopts.
	Members []*corev1.Pod
	// Waits tell why no more is done now.
	Waits []Wait
	// Requeue is the earliest moment at which a new plan may differ although no object has changed; zero for never.
	Requeue time.Time
	// Revisions are the names that the set's status has to tell. They are unknown when the template could not be recorded.
	Revisions Revisions
	// Found is to be given along with the next snapshot of the set.
	Found revision.Found
	// Recreate tells how far the Recreate strategy has come.
	Recreate RecreatePhase
	// Rollout tells how far the rollout of the set's template has come.
	Rollout Rollout
	// Span are the ordinals that should run.
	Span ordinal.Range
}

// Rollout is how far the rollout of a set's template has come.
type Rollout struct {
	// Revision is the name of what is rolled out; empty when it is not known.
	Revision string
	// Phase is how it fares.
	Phase v1alpha1.RolloutPhase
	// Wanted is how many pods are to have the revision, and Available is how many of them have it and are available.
	Wanted, Available int
	// Outdated means that pods that the rollout may take have another revision.
	Outdated bool
	// Failed means that the rollout has failed and is brought back.
	Failed bool
	// Since is when the rollout made progress last, as far as the policy's status tells; zero if it does not.
	Since time.Time
}

// Revisions are the names of the two revisions of a set.
type Revisions struct {
	Current, Update string
	// Known is false when the set's template has no revision, and none is planned.
	Known bool
}

// RecreatePhase is how far the Recreate strategy has come with an update.
type RecreatePhase int

// The phases of the Recreate strategy.
const (
	// RecreateIdle means that no update goes on, or that the strategy is another.
	RecreateIdle RecreatePhase = iota
	// RecreateDeleting means that pods of other revisions go.
	RecreateDeleting
	// RecreateCreating means that pods of the update revision come.
	RecreateCreating
)

// Mode is how the chains of a step are carried out.
type Mode int

const (
	// Serial runs one chain after the other, and stops at the first that fails.
	Serial Mode = iota
	// SlowStart runs chains in batches of 1, 2, 4, …, each batch at once, and stops after the first batch with a failure.
	SlowStart
)

// Chain is a row of actions, each of which needs the one before it.
type Chain []Action

// Step is a part of a plan. When a step fails, those after it are left out, unless they are marked with Always.
type Step struct {
	Mode   Mode
	Chains []Chain
	// Essential means that its failure leaves out even the steps that are marked with Always.
	Essential bool
	// Always means that the step does not depend on those before it.
	Always bool
}

// Wait is a reason for which something is not done now.
type Wait struct {
	Reason Reason
	// On is the object that has to change.
	On Ref
	// For is the pod that is held up; empty when it is On itself, or the whole set.
	For string
	// Until is the moment at which the wait ends by itself; zero if it does not.
	Until time.Time
	// Detail is what else there is to say: who holds a claim, which limit a name exceeds.
	Detail string
}

// Actions are all actions of the plan in order.
func (p Plan) Actions() []Action {
	var all []Action
	for _, s := range p.Steps {
		for _, c := range s.Chains {
			all = append(all, c...)
		}
	}
	return all
}

// Result is how an action ended.
type Result string

// The results of actions.
const (
	// ResultDone means that the write was made.
	ResultDone Result = "Done"
	// ResultGone means that the object was gone, so that nothing had to be done.
	ResultGone Result = "Gone"
	// ResultConflict means that the object is no longer what was planned for. It will wake the set.
	ResultConflict Result = "Conflict"
	// ResultCollision means that a revision's name is taken by other data.
	ResultCollision Result = "Collision"
	// ResultBlocked means that an eviction was refused for now, because of a PodDisruptionBudget.
	ResultBlocked Result = "Blocked"
	// ResultFailed means that the write was refused or that its end is unknown.
	ResultFailed Result = "Failed"
)

// Outcome is what became of an action. An action that was left out has none.
type Outcome struct {
	Action Action
	Result Result
	// Err is why the result is not Done or Gone.
	Err error
	// Object is the object as the server returned it; nil if it returned none.
	Object runtime.Object
}

// String describes the plan in sentences. Times are told relative to now.
func (p Plan) String(now time.Time) string {
	var b strings.Builder
	for _, s := range p.Steps {
		s.describe(&b)
	}
	for _, w := range p.Waits {
		b.WriteString(w.describe(now) + "\n")
	}
	if !p.Requeue.IsZero() {
		fmt.Fprintf(&b, "look again in %s\n", p.Requeue.Sub(now))
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}

func (s Step) describe(b *strings.Builder) {
	indent := ""
	if s.Mode == SlowStart && len(s.Chains) > 1 {
		b.WriteString("in growing batches:\n")
		indent = "  "
	}
	for _, c := range s.Chains {
		for i, a := range c {
			if i > 0 {
				b.WriteString(indent + "  then ")
			} else {
				b.WriteString(indent)
			}
			b.WriteString(a.String() + "\n")
		}
	}
}

// Because is why the wait is, without on what. It stays the same while the wait lasts, so it does not tell the end of a pause
// that grows.
func (w Wait) Because() string {
	text := w.Reason.explain()
	if w.Detail != "" {
		text += " (" + w.Detail + ")"
	}
	if !w.Until.IsZero() && w.Reason != WaitBackoff && w.Reason != WaitDisruption {
		text += ", until " + w.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// Sentence is the wait in words that stay the same while it lasts.
func (w Wait) Sentence() string {
	who := "the set"
	if w.For != "" && w.For != w.On.Name {
		who = "pod " + w.For
	}
	if w.On.Kind == KindSet {
		return who + " waits: " + w.Because()
	}
	return who + " waits for " + w.On.String() + ": " + w.Because()
}

func (w Wait) describe(now time.Time) string {
	text := "wait for " + w.On.String()
	if w.For != "" && w.For != w.On.Name {
		text = w.For + " waits for " + w.On.String()
	}
	text += ": " + w.Reason.explain()
	if w.Detail != "" {
		text += " (" + w.Detail + ")"
	}
	if !w.Until.IsZero() {
		text += fmt.Sprintf(", %s more", w.Until.Sub(now))
	}
	return text
}

// explain is the reason for a wait as the end of a sentence.
func (r Reason) explain() string {
	text, ok := map[Reason]string{
		WaitSetTerminating:   "it is being deleted",
		WaitBadSelector:      "its selector cannot be read",
		WaitBadTemplate:      "its template cannot be recorded",
		WaitBadRevision:      "it holds no template",
		WaitRecreateDisabled: "its strategy Recreate is switched off",
		WaitStarting:         "it starts",
		WaitNotReady:         "it is not ready",
		WaitNotAvailable:     "it is ready, but not for long enough",
		WaitTerminating:      "it is going",
		WaitFinished:         "it ended and is being replaced",
		WaitBackoff:          "it keeps failing",
		WaitNameTaken:        "it has the name and belongs to somebody else",
		WaitClaimTerminating: "it is being deleted",
		WaitClaimStale:       "it will go with the former pod",
		WaitClaimConflict:    "another controller owns it, so the retention policy is not applied",
		WaitVolumes:          "it does not mount the claims of the set until it is made again",
		WaitBudget:           "as many pods as may be unavailable are unavailable",
		WaitPartition:        "its partition keeps pods of another revision",
		WaitOnDelete:         "its strategy keeps pods of another revision until they are deleted",
		WaitClaimShared:      "it belongs to another set whose claims have the same names",
		WaitBadName:          "no pod can have the name that follows from the set's",
		WaitPaused:           "its policy pauses the rollout",
		WaitBatch:            "its rollout goes in batches, and the next has to wait",
		WaitDeadline:         "its rollout made no progress for too long and is left as it is",
		WaitRolledBack:       "its rollout failed, and its template is not tried again until it changes",
		WaitPolicyConflict:   "its policies contradict each other or cannot be read",
		WaitLeader:           "it leads, and goes last",
		WaitDisruption:       "a PodDisruptionBudget forbids its eviction",
		WaitDraining:         "it is told to drain before it goes",
	}[r]
	if !ok {
		return string(r)
	}
	return text
}
