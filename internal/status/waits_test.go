// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// What is part of any update or scaling is told by the pod alone, and what does not end by itself needs a look.
func TestWaits(t *testing.T) {
	const pod, wait, both = "pod", "wait", "wait, and needs a look"
	tests := map[plan.Reason]string{
		plan.WaitStarting: pod, plan.WaitNotReady: pod, plan.WaitNotAvailable: pod, plan.WaitTerminating: pod, plan.WaitFinished: pod,
		plan.WaitBudget: pod, plan.WaitPartition: pod, plan.WaitOnDelete: pod, plan.WaitVolumes: pod, plan.WaitClaimConflict: pod,
		plan.WaitPaused: pod, plan.WaitLeader: pod, plan.WaitBatch: pod,
		plan.WaitBackoff: "pod, and needs a look", plan.WaitDeadline: "pod, and needs a look", plan.WaitRolledBack: "pod, and needs a look",
		plan.WaitSetTerminating: wait, plan.WaitClaimStale: wait, plan.WaitDisruption: wait, plan.WaitDraining: wait,
		plan.WaitBadSelector: both, plan.WaitBadTemplate: both, plan.WaitBadRevision: both, plan.WaitNameTaken: both,
		plan.WaitClaimTerminating: both, plan.WaitClaimShared: both, plan.WaitBadName: both, plan.WaitPolicyConflict: both,
		plan.WaitRecreateDisabled: "needs a look",
	}
	for reason, want := range tests {
		t.Run(string(reason), func(t *testing.T) {
			w := settled(t)
			w.Kill("web-1")
			s := w.Snapshot()
			p := plan.Make(s)
			told := plan.Wait{Reason: reason, On: plan.Ref{Kind: plan.KindSet, Name: "web"}}
			p.Waits = []plan.Wait{told}
			next, _ := status.Settle(s, p, nil)
			progressing, degraded := next.Conditions[1], next.Conditions[2]
			var got []string
			switch {
			case strings.Contains(progressing.Message, "waits for pod web-1 to be available"):
				got = append(got, "pod")
			case strings.Contains(progressing.Message, told.Sentence()):
				got = append(got, "wait")
			}
			if degraded.Status == corev1.ConditionTrue && degraded.Reason == string(reason) && strings.HasPrefix(degraded.Message, told.Sentence()) {
				got = append(got, "needs a look")
			}
			if strings.Join(got, ", and ") != want {
				t.Errorf("told is %q, want %s; conditions are\n%s", got, want, tell(next))
			}
		})
	}
}

// What was not created because it was there, or is asked for later, is no refusal.
func TestOnlyFailuresAreRefusals(t *testing.T) {
	w := settled(t)
	delete(w.Pods, "web-1")
	s := w.Snapshot()
	p := plan.Make(s)
	for _, result := range []plan.Result{plan.ResultFailed, plan.ResultConflict, plan.ResultGone} {
		outcomes := []plan.Outcome{{Action: p.Actions()[0], Result: result, Err: errors.New("no")}}
		next, _ := status.Settle(s, p, outcomes)
		if got, want := next.Conditions[2].Reason, status.ReasonFailedCreate; (got == want) != (result == plan.ResultFailed) {
			t.Errorf("after %s, Degraded is %s", result, got)
		}
	}
}

// Of pods in trouble the lowest is told: web-2 comes before web-10.
func TestTroubleIsOrderedByNumber(t *testing.T) {
	w := settled(t, replicas(11))
	for _, name := range []string{"web-10", "web-2"} {
		w.Change(name, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	}
	s, _ := settle(w)
	if got := s.Conditions[2].Message; !strings.HasPrefix(got, "pod web-2: ") {
		t.Errorf("told is %q", got)
	}
}

// Of pods to be gone the highest is told, also when it is not the last that is listed.
func TestHighestCondemnedPodIsTold(t *testing.T) {
	w := settled(t, func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1} })
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(1)) })
	s, _ := settle(w)
	if got := s.Conditions[1].Message; !strings.Contains(got, "waits for pod web-3 to be gone") {
		t.Errorf("told is %q", got)
	}
}

// The condition of Recreate, which Kubernetes has too, is not set in two ways that take turns.
func TestRecreateThatIsRolledBackRests(t *testing.T) {
	w := sim.New(sim.NewSet("web", 3, withoutClaims, func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RecreateStatefulSetStrategyType}
	}))
	w.Options.Recreate = true
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) {
		deadline(30, v1alpha1.RollBack)(p)
		p.Status.CompleteRevision = w.Set.Status.CurrentRevision
	})
	w.Fate = badIsStuck
	w.Edit(image("bad"))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	before := tell(w.Set.Status)
	if !strings.Contains(before, "Progressing False RolledBack") {
		t.Fatalf("conditions are\n%s", before)
	}
	w.Now = w.Now.Add(time.Hour)
	if s, changed := settle(w); changed {
		t.Errorf("an hour later, conditions are\n%+v", s.Conditions)
	}
}

// What is refused comes before what is in the way, that before a pod in trouble, and that before a rollout that failed.
func TestWhatNeedsALookFirst(t *testing.T) {
	w := settled(t)
	w.Change("web-0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	s := w.Snapshot()
	p := plan.Make(s)
	set := plan.Ref{Kind: plan.KindSet, Name: "web"}
	waits := []plan.Wait{{Reason: plan.WaitRolledBack, On: set}, {Reason: plan.WaitNameTaken, On: set}}
	create := plan.CreatePod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}}
	refused := []plan.Outcome{{Action: create, Result: plan.ResultFailed, Err: errors.New("no")}}
	for _, test := range []struct {
		waits    []plan.Wait
		outcomes []plan.Outcome
		want     string
	}{
		{waits, refused, "FailedCreate"}, {waits, nil, "NameTaken"}, {waits[:1], nil, "Failed"},
	} {
		p.Waits = test.waits
		if next, _ := status.Settle(s, p, test.outcomes); next.Conditions[2].Reason != test.want {
			t.Errorf("Degraded is %s, want %s", next.Conditions[2].Reason, test.want)
		}
	}
}

// Why a rollout failed is not what let another one fail, nor what is wrong with pods of another revision.
func TestFailureIsOfItsRollout(t *testing.T) {
	w := settled(t)
	obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) {
		deadline(30, v1alpha1.RollBack)(p)
		p.Status.FailedRevision, p.Status.FailedMessage = "web-x", "what let web-x fail"
	})
	w.Change("web-0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	s := w.Snapshot()
	p := plan.Make(s)
	p.Rollout = plan.Rollout{Revision: "web-y", Phase: v1alpha1.RolloutRollingBack, Failed: true}
	next := status.Policies(s, p, nil)
	if got, want := next[0].Status.FailedMessage, "no progress for 30s"; got != want {
		t.Errorf("told is %q, want %q", got, want)
	}
}
