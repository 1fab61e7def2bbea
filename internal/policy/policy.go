// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy turns the StatefulSetPolicies of a set into rules for the planner. It is pure.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
)

// Rules are what the policy of a set asks for. The zero value asks for nothing.
type Rules struct {
	// Policy is the policy that is obeyed; nil for none.
	Policy *v1alpha1.StatefulSetPolicy
	// Conflict means that it cannot be told what is asked for: there are two policies, or one that cannot be read. Then
	// nothing is replaced or scaled down.
	Conflict bool
	// Reserved are the ordinals that do not run. In a conflict they are those that any of the policies reserves, and
	// no pod is created for them.
	Reserved []ordinal.Interval

	// Deadline is how long a rollout may make no progress; zero for ever.
	Deadline time.Duration
	// RollBack means that a rollout that failed is brought back, and not left as it is.
	RollBack bool
	// Paused means that no pod is replaced because of the template.
	Paused bool
	// Batch says when the rollout is held up; nil for never.
	Batch *v1alpha1.PauseAfter
	// Leader matches the pods that a rollout takes last; nil for none.
	Leader labels.Selector
	// Evict means that a rollout removes pods by eviction.
	Evict bool

	// Drain is how long a pod that is scaled away is told so before.
	Drain time.Duration
	// Tell means that each pod that is removed is told why.
	Tell bool

	// Failed is the revision that is not tried again; empty for none.
	Failed string
	// RetriedAt and ResumedAt are when somebody asked for another try, and for the next batch; zero for never.
	RetriedAt, ResumedAt time.Time
}

// Of gives the rules of the policies that name a set. Policies that are being deleted count until they are gone.
func Of(policies []*v1alpha1.StatefulSetPolicy) Rules {
	switch len(policies) {
	case 0:
		return Rules{}
	case 1:
		rules, err := read(policies[0])
		if err != nil {
			return Rules{Policy: policies[0], Conflict: true, Reserved: rules.Reserved, Failed: rules.Failed}
		}
		return rules
	}
	conflict := Rules{Conflict: true}
	for _, p := range policies {
		rules, _ := read(p)
		conflict.Reserved = append(conflict.Reserved, rules.Reserved...)
	}
	return conflict
}

// Range are the ordinals that should run. In a conflict it cannot be told which are reserved, so that none counts as such.
func (r Rules) Range(set *appsv1.StatefulSet) ordinal.Range {
	if r.Conflict {
		return ordinal.RangeOf(set)
	}
	return ordinal.RangeOf(set, r.Reserved...)
}

// IsResumed tells if somebody asked for the next batch after the last was done.
func (r Rules) IsResumed(doneAt time.Time) bool {
	return !r.ResumedAt.IsZero() && !r.ResumedAt.Before(doneAt)
}

// Check tells why a policy cannot be obeyed although the API server accepted it; nil if it can.
func Check(p *v1alpha1.StatefulSetPolicy) error {
	_, err := read(p)
	return err
}

func read(p *v1alpha1.StatefulSetPolicy) (Rules, error) {
	r := Rules{Policy: p, Failed: p.Status.FailedRevision}
	if err := readScaling(&r, p.Spec.Scaling); err != nil {
		return r, err
	}
	if err := readRollout(&r, p.Spec.Rollout); err != nil {
		return r, err
	}
	var err error
	if r.RetriedAt, err = timeOf(p, v1alpha1.RetryAtAnnotation); err != nil {
		return r, err
	}
	if r.ResumedAt, err = timeOf(p, v1alpha1.ResumeAtAnnotation); err != nil {
		return r, err
	}
	if f := p.Status.FailedTime; f == nil || !r.RetriedAt.Before(f.Time) {
		r.Failed = ""
	}
	return r, nil
}

func readScaling(r *Rules, s *v1alpha1.ScalingPolicy) error {
	if s == nil {
		return nil
	}
	if s.ScaleDown != nil {
		r.Drain = time.Duration(max(0, s.ScaleDown.DrainSeconds)) * time.Second
		r.Tell = s.ScaleDown.ReasonAnnotation
	}
	for _, text := range s.ReservedOrdinals {
		interval, ok := ordinal.ParseInterval(text.String())
		if !ok {
			return fmt.Errorf("spec.scaling.reservedOrdinals: %q is neither a number nor a range such as 5-7", text.String())
		}
		r.Reserved = append(r.Reserved, interval)
	}
	return nil
}

func readRollout(r *Rules, s *v1alpha1.RolloutPolicy) error {
	if s == nil {
		return nil
	}
	if s.ProgressDeadlineSeconds != nil {
		r.Deadline = time.Duration(*s.ProgressDeadlineSeconds) * time.Second
	}
	r.RollBack = s.OnDeadline == v1alpha1.RollBack
	r.Paused = s.Paused
	r.Batch = s.PauseAfter
	r.Evict = s.Disruption == v1alpha1.Evict
	if s.Order != v1alpha1.LeaderLast {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.LeaderSelector)
	if err != nil {
		return fmt.Errorf("spec.rollout.leaderSelector: %w", err)
	}
	r.Leader = selector
	return nil
}

func timeOf(p *v1alpha1.StatefulSetPolicy, annotation string) (time.Time, error) {
	text := p.Annotations[annotation]
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("annotation %s: %q is no time such as 2006-01-02T15:04:05Z", annotation, text)
	}
	return at, nil
}

// BatchSize is how many pods of a set with that many replicas make a batch.
func BatchSize(p *v1alpha1.PauseAfter, replicas int) int {
	if p.Ordinals != nil {
		return max(1, int(*p.Ordinals))
	}
	if p.Percent != nil {
		return max(1, (replicas*int(*p.Percent)+99)/100)
	}
	return max(1, replicas)
}

// Sorted puts policies in the order of their age, and of their names if they are equally old.
func Sorted(policies []*v1alpha1.StatefulSetPolicy) []*v1alpha1.StatefulSetPolicy {
	return slices.SortedFunc(slices.Values(policies), func(a, b *v1alpha1.StatefulSetPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}
