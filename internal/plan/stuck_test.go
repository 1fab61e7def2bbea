// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// pass lets time go by.
func (s *story) pass(d time.Duration) {
	s.Now = s.Now.Add(d)
	s.Kubelet()
}

// badIsStuck lets pods with the images bad and worse never run.
func (s *story) badIsStuck() {
	s.fates(map[string]sim.Fate{"bad": sim.Stuck, "worse": sim.Stuck})
}

// stuckStories are those of rollouts that would get stuck in Kubernetes.
var stuckStories = map[string]func(*testing.T) *story{
	"unstuck by an undo": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.badIsStuck()
		s.quietly()
		s.image("bad")
		s.say("the template of a set of 3 changes to one that does not start")
		s.pass(time.Minute)
		s.say("a minute goes by")
		s.image("one")
		s.say("the template goes back to the former one")
		return s
	},
	"unstuck by another template": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.badIsStuck()
		s.quietly()
		s.image("bad")
		s.quietly()
		s.image("worse")
		s.say("after a template that does not start comes another one")
		s.image("two")
		s.say("it changes to one that does")
		return s
	},
	"unstuck at the first pod": func(t *testing.T) *story {
		s := newTold(t, 2, func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = "bad" })
		s.badIsStuck()
		s.quietly()
		s.image("two")
		s.say("no pod of a set of 2 ever ran, and its image is corrected")
		return s
	},
	"unstuck where a pod is missing": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.badIsStuck()
		s.quietly()
		s.image("bad")
		s.quietly()
		s.Kill("web-0")
		s.image("one")
		s.say("web-2 is stuck, the template goes back, and web-0 is deleted by hand: first it comes back, and then web-2 is replaced")
		return s
	},
	"an unready pod at the wanted revision stays": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		s.Change("web-1", unready)
		s.pass(time.Hour)
		s.say("web-1 is not ready for an hour: it is left alone")
		s.image("two")
		s.say("the template changes: it is replaced first")
		return s
	},
	"partition raised over a broken canary": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.badIsStuck()
		s.quietly()
		s.partition(2)
		s.image("bad")
		s.say("the template changes to one that does not start, with partition 2")
		s.partition(3)
		s.say("the partition is raised to 3: web-2 goes back")
		return s
	},
	"partition raised over a broken canary of a Parallel set": func(t *testing.T) *story {
		s := newTold(t, 3, parallel)
		s.badIsStuck()
		s.quietly()
		s.partition(2)
		s.image("bad")
		s.quietly()
		s.partition(3)
		s.say("the partition is raised to 3 over a canary that does not start: web-2 goes back")
		return s
	},
	"on delete leaves broken pods alone": func(t *testing.T) *story {
		s := newTold(t, 2, strategy(appsv1.OnDeleteStatefulSetStrategyType))
		s.badIsStuck()
		s.quietly()
		s.image("bad")
		s.Kill("web-1")
		s.say("the template of an OnDelete set changes to one that does not start, and web-1 is deleted by hand")
		s.image("one")
		s.say("the template goes back: web-1 stays as it is until somebody deletes it")
		s.Kill("web-1")
		s.say("somebody does")
		return s
	},
	"broken at the current revision, without a rollingUpdate block": func(t *testing.T) *story {
		s := newTold(t, 3, strategy(appsv1.RollingUpdateStatefulSetStrategyType))
		s.Fate = func(p *corev1.Pod) sim.Fate {
			if p.Name == "web-0" && p.Spec.Containers[0].Image == "one" {
				return sim.Unready
			}
			return sim.Good
		}
		s.Sync()
		s.pass(sim.StartTime)
		s.Change("web-0", ready)
		s.quietly()
		s.Kill("web-0")
		s.image("two")
		s.say("web-0 does not become ready any more, and the template changes: it comes back as it was, and is replaced when it is not ready for a minute")
		return s
	},
	"ending at the current revision, without a rollingUpdate block": func(t *testing.T) *story {
		s := newTold(t, 2, strategy(appsv1.RollingUpdateStatefulSetStrategyType))
		s.quietly()
		s.fates(map[string]sim.Fate{"one": sim.Failing})
		s.Kill("web-0")
		s.image("two")
		s.say("web-0 fails whenever it starts, and the template changes: it is replaced by the update")
		return s
	},
	"stuck at a bad template, strictly": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.Options.Strict = true
		s.badIsStuck()
		s.quietly()
		s.image("bad")
		s.quietly()
		s.image("one")
		s.say("as in Kubernetes, a pod that is stuck stays so although the template has gone back")
		s.Kill("web-1")
		s.say("somebody deletes it")
		return s
	},
	"ending at the current revision, strictly": func(t *testing.T) *story {
		s := newTold(t, 2, strategy(appsv1.RollingUpdateStatefulSetStrategyType))
		s.Options.Strict = true
		s.quietly()
		s.Change("web-0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		s.image("two")
		s.say("as in Kubernetes, a pod that failed comes back at the current revision")
		return s
	},
	"claims of two sets": func(t *testing.T) *story {
		s := newStory(t, 2, func(set *appsv1.StatefulSet) { set.Spec.VolumeClaimTemplates[0].Name = "data-a" })
		s.tells, s.told = true, map[string]string{}
		other := sim.NewSet("a-web", 2)
		other.CreationTimestamp = metav1.NewTime(s.Now.Add(-time.Hour))
		s.Rivals = []claim.Rival{{Set: other, Template: "data-a", Ordinals: map[int]bool{1: true}}}
		s.say("a set web with claims data-a is created beside an older set a-web with claims data: the names are the same")
		s.Rivals = nil
		s.say("the other set is gone")
		return s
	},
	"claims of two sets, strictly": func(t *testing.T) *story {
		s := newStory(t, 1, func(set *appsv1.StatefulSet) { set.Spec.VolumeClaimTemplates[0].Name = "data-a" })
		s.Options.Strict = true
		other := sim.NewSet("a-web", 2)
		other.CreationTimestamp = metav1.NewTime(s.Now.Add(-time.Hour))
		s.Rivals = []claim.Rival{{Set: other, Template: "data-a"}}
		s.say("as in Kubernetes, nobody cares that the claims have the names of another set's")
		return s
	},
	"claim handed to another set": func(t *testing.T) *story {
		s := newStory(t, 2, func(set *appsv1.StatefulSet) { set.Spec.VolumeClaimTemplates[0].Name = "data-a" }, retention("Delete", "Delete"))
		s.quietly()
		c := s.Claims["data-a-web-1"].DeepCopy()
		c.Labels = map[string]string{"app": "a-web"}
		c.OwnerReferences = nil
		s.Claims[c.Name] = c
		s.Rivals = []claim.Rival{{Set: sim.NewSet("a-web", 2), Template: "data-a"}}
		s.say("somebody gives the claim of web-1 to another set: it is not taken back")
		s.Change("web-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
		delete(s.Claims, "data-a-web-1")
		s.Rivals[0].Ordinals = map[int]bool{1: true}
		s.Rivals[0].Set.CreationTimestamp = metav1.NewTime(s.Now.Add(-time.Hour))
		s.say("the claim is gone, web-1 is pending, and the other set has a pod too: the older one makes it")
		return s
	},
}

// No pod is made whose name, or whose label, the API server would refuse; which one that is, and what the limit is, is told.
func TestNames(t *testing.T) {
	tests := map[string]struct {
		set  func(*appsv1.StatefulSet)
		name string
		want string
	}{
		"short":   {nil, "web", ""},
		"longest": {nil, strings.Repeat("x", 52), ""},
		"longest, with the longest ordinal": {
			func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1e9} }, strings.Repeat("x", 52), "",
		},
		"too long for a label": {
			nil, strings.Repeat("x", 53), "would have 64 characters, and a label has at most 63: name the set with at most 52",
		},
		"too long for a host name": {
			func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 10} }, strings.Repeat("x", 61),
			"its name " + strings.Repeat("x", 61) + "-10 has 64 characters, and a host name has at most 63",
		},
		"with a dot":      {nil, "a.b", "its name a.b-0 is no host name: "},
		"bad service":     {func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "a.b" }, "web", "serviceName a.b is no host name: "},
		"without service": {func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "" }, "web", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := sim.New(sim.NewSet(test.name, 1, withoutClaims, func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "db" }))
			if test.set != nil {
				w.Edit(test.set)
			}
			p := plan.Make(w.Snapshot())
			detail := ""
			for _, wait := range p.Waits {
				if wait.Reason == plan.WaitBadName {
					detail = wait.Detail
				}
			}
			if !strings.Contains(detail, test.want) || (detail == "") != (test.want == "") {
				t.Errorf("told is %q, want %q", detail, test.want)
			}
			if made := len(of[plan.CreatePod](p)) == 1; made != (test.want == "") {
				t.Errorf("a pod is made: %t", made)
			}
			w.Options.Strict = true
			if n := len(of[plan.CreatePod](plan.Make(w.Snapshot()))); n != 1 {
				t.Errorf("as in Kubernetes, %d pods are made", n)
			}
		})
	}
}
