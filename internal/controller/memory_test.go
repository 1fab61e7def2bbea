// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

func TestBackoff(t *testing.T) {
	b := backoff{}
	now := time.Unix(1000, 0)
	var delays []time.Duration
	for range 8 {
		b.note("web-0", true, now)
		delay := b.until()["web-0"].Sub(now)
		delays = append(delays, delay)
		now = now.Add(delay)
	}
	s := time.Second
	if want := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, maxDelay, maxDelay, maxDelay}; !slices.Equal(delays, want) {
		t.Errorf("delays are %v, want %v", delays, want)
	}
	now = now.Add(calm + s)
	b.note("web-0", true, now)
	if got := b.until()["web-0"].Sub(now); got != firstDelay {
		t.Errorf("after a calm time the delay is %v", got)
	}
	b.note("web-0", false, now)
	if len(b.until()) != 0 {
		t.Errorf("after a success there is %v", b.until())
	}
}

func TestLearn(t *testing.T) {
	now := time.Unix(1000, 0)
	create := plan.CreatePod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}}
	claim := plan.CreateClaim{Claim: &corev1.PersistentVolumeClaim{}, Pod: "web-0"}
	remove := func(r plan.Reason) plan.DeletePod { return plan.DeletePod{Pod: plan.Ref{Name: "web-0"}, Reason: r} }
	tests := map[string]struct {
		outcome           plan.Outcome
		creates, replaces int
	}{
		"refused pod":       {plan.Outcome{Action: create, Result: plan.ResultFailed}, 2, 0},
		"refused claim":     {plan.Outcome{Action: claim, Result: plan.ResultFailed}, 2, 0},
		"created claim":     {plan.Outcome{Action: claim, Result: plan.ResultDone}, 0, 0},
		"taken name":        {plan.Outcome{Action: create, Result: plan.ResultConflict}, 0, 0},
		"failed pod":        {plan.Outcome{Action: remove(plan.ReasonFailed), Result: plan.ResultDone}, 0, 1},
		"ended pod":         {plan.Outcome{Action: remove(plan.ReasonSucceeded), Result: plan.ResultGone}, 0, 1},
		"refused deletion":  {plan.Outcome{Action: remove(plan.ReasonFailed), Result: plan.ResultFailed}, 0, 0},
		"updated pod":       {plan.Outcome{Action: remove(plan.ReasonOutdated), Result: plan.ResultDone}, 0, 0},
		"anything else":     {plan.Outcome{Action: plan.AdoptPod{}, Result: plan.ResultFailed}, 0, 0},
		"pod that was made": {plan.Outcome{Action: create, Result: plan.ResultDone}, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := &memory{creates: backoff{}, replaces: backoff{}}
			m.learn([]plan.Outcome{test.outcome}, now)
			if len(m.creates) != test.creates || len(m.replaces) != test.replaces {
				t.Errorf("learned are %v and %v", m.creates, m.replaces)
			}
		})
	}
}

// When nothing can be created, all pods wait, but less long than the one that was refused.
func TestLearnOfAll(t *testing.T) {
	now := time.Unix(1000, 0)
	create := func(name string, r plan.Result) plan.Outcome {
		return plan.Outcome{Action: plan.CreatePod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}}, Result: r}
	}
	m := &memory{creates: backoff{}, replaces: backoff{}}
	m.learn([]plan.Outcome{create("web-0", plan.ResultFailed)}, now)
	if until := m.creates.until(); until[plan.AnyPod].Sub(now) != firstDelay/2 || until["web-0"].Sub(now) != firstDelay {
		t.Errorf("delays are until %v", until)
	}
	m.learn([]plan.Outcome{create("web-1", plan.ResultDone), create("web-2", plan.ResultFailed)}, now)
	if until := m.creates.until(); len(until) != 2 || !until[plan.AnyPod].IsZero() {
		t.Errorf("after a success, delays are until %v", until)
	}
}

func TestNews(t *testing.T) {
	m := &memory{}
	going := plan.Wait{Reason: plan.WaitClaimTerminating, On: plan.Ref{Name: "c", UID: "1", ResourceVersion: "1"}, For: "web-0"}
	changed := going
	changed.On.ResourceVersion = "2"
	other := going
	other.On.UID = "2"
	for i, step := range []struct {
		waits []plan.Wait
		want  int
	}{
		{[]plan.Wait{going, going}, 1},
		{[]plan.Wait{changed}, 0},
		{[]plan.Wait{changed, other}, 1},
		{nil, 0},
		{[]plan.Wait{going}, 1},
	} {
		if got := m.news(step.waits); len(got) != step.want {
			t.Errorf("in step %d there are %d news, want %d", i, len(got), step.want)
		}
	}
}

func TestMemoriesAreForgotten(t *testing.T) {
	var m memories
	key := observe.Key{Namespace: "a", Name: "b"}
	first := m.of(key)
	if m.of(key) != first {
		t.Error("a set has two memories")
	}
	m.forget(key)
	if m.of(key) == first {
		t.Error("a set that is gone is remembered")
	}
}
