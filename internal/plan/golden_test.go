// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// story is a world that writes down what the controller does in it.
type story struct {
	*sim.World
	t   *testing.T
	log strings.Builder
	// last is what was waited for last, with the status.
	last string
	// tells means that conditions and policies are written down too, told are their lines so far.
	tells bool
	told  map[string]string
}

func newStory(t *testing.T, replicas int32, changes ...func(*appsv1.StatefulSet)) *story {
	t.Helper()
	s := &story{World: sim.New(sim.NewSet("web", replicas, changes...)), t: t}
	begin := s.Now
	s.Observe = func(p plan.Plan, outcomes []plan.Outcome) {
		st := s.Set.Status
		numbers := fmt.Sprintf("status: %d pods, %d ready, %d available; %d at %s, %d at %s\n", st.Replicas, st.ReadyReplicas,
			st.AvailableReplicas, st.CurrentReplicas, st.CurrentRevision, st.UpdatedReplicas, st.UpdateRevision)
		news := s.news()
		last := fmt.Sprint(p.Waits) + numbers
		if len(outcomes) == 0 && last == s.last && news == "" {
			return
		}
		s.last = last
		fmt.Fprintf(&s.log, "\nat %s\n%s", s.Now.Sub(begin), p.String(s.Now))
		for _, o := range outcomes {
			if o.Result != plan.ResultDone {
				fmt.Fprintf(&s.log, "but %s: %s\n", o.Action.Target(), o.Result)
			}
		}
		s.log.WriteString(numbers + news)
	}
	return s
}

// newTold is a story in which conditions and policies are written down too.
func newTold(t *testing.T, replicas int32, changes ...func(*appsv1.StatefulSet)) *story {
	t.Helper()
	s := newStory(t, replicas, append(changes, withoutClaims)...)
	s.tells, s.told = true, map[string]string{}
	return s
}

// news are the lines of conditions and policies that have changed.
func (s *story) news() string {
	if !s.tells {
		return ""
	}
	var b strings.Builder
	add := func(key, line string) {
		if s.told[key] != line {
			s.told[key] = line
			b.WriteString(line + "\n")
		}
	}
	for _, c := range s.Set.Status.Conditions {
		line := fmt.Sprintf("%s: %s, %s", c.Type, c.Status, c.Reason)
		if c.Message != "" {
			line += ": " + c.Message
		}
		add(string(c.Type), line)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Policies)) {
		st := s.Policies[name].Status
		for _, c := range st.Conditions {
			add(name+c.Type, fmt.Sprintf("policy %s, %s: %s, %s: %s", name, c.Type, c.Status, c.Reason, c.Message))
		}
		if r := st.Rollout; r != nil {
			line := fmt.Sprintf("policy %s: %s %s, %d of %d, progress at %s", name, r.Revision, r.Phase, r.AvailableReplicas, r.Replicas,
				r.LastProgressTime.UTC().Format(time.RFC3339))
			if st.FailedRevision != "" {
				line += ", " + st.FailedRevision + " failed at " + st.FailedTime.UTC().Format(time.RFC3339)
			}
			add(name, line)
		}
	}
	return b.String()
}

// say writes a headline, and lets the world settle after what was done.
func (s *story) say(headline string) {
	s.t.Helper()
	s.log.WriteString("\n== " + headline + "\n")
	if err := s.Settle(); err != nil {
		s.t.Fatal(err)
	}
}

// quietly lets the world settle without writing it down.
func (s *story) quietly() {
	s.t.Helper()
	s.say("")
	s.log.Reset()
}

func (s *story) image(image string) {
	s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = image })
}

func (s *story) replicas(n int32) {
	s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n })
}

func (s *story) partition(n int32) {
	s.Edit(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n })
}

func parallel(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func withoutClaims(set *appsv1.StatefulSet) { set.Spec.VolumeClaimTemplates = nil }

func strategy(kind appsv1.StatefulSetUpdateStrategyType) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: kind} }
}

func maxUnavailable(n intstr.IntOrString) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &n }
}

func retention(whenScaled, whenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: whenScaled, WhenDeleted: whenDeleted,
		}
	}
}

// fates lets pods with these images fare otherwise than well.
func (s *story) fates(byImage map[string]sim.Fate) {
	s.Fate = func(p *corev1.Pod) sim.Fate { return byImage[p.Spec.Containers[0].Image] }
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func ready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }

var stories = map[string]func(*testing.T) *story{
	"create in order": func(t *testing.T) *story {
		s := newStory(t, 3)
		s.say("a set of 3 is created")
		return s
	},
	"create at once": func(t *testing.T) *story {
		s := newStory(t, 4, parallel)
		s.say("a Parallel set of 4 is created")
		return s
	},
	"minimum time ready": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims, func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 10 })
		s.say("a set of 2 is created whose pods have to be ready for 10 seconds")
		s.image("two")
		s.say("its template changes")
		return s
	},
	"scale in order": func(t *testing.T) *story {
		s := newStory(t, 2)
		s.quietly()
		s.replicas(4)
		s.say("a set of 2 is scaled to 4")
		s.replicas(1)
		s.say("it is scaled to 1")
		s.replicas(0)
		s.say("it is scaled to 0")
		return s
	},
	"scale at once": func(t *testing.T) *story {
		s := newStory(t, 1, parallel)
		s.quietly()
		s.replicas(4)
		s.say("a Parallel set of 1 is scaled to 4")
		s.replicas(0)
		s.say("it is scaled to 0")
		return s
	},
	"scale down past an unready pod": func(t *testing.T) *story {
		s := newStory(t, 4, withoutClaims)
		s.quietly()
		s.Change("web-1", unready)
		s.Change("web-2", unready)
		s.replicas(1)
		s.say("web-1 and web-2 are not ready, and the set is scaled to 1: web-3 goes, and web-2 has half a minute to become ready again")
		return s
	},
	"scale down past an unready pod that recovers": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims)
		s.quietly()
		s.Change("web-1", unready)
		s.Change("web-2", unready)
		s.replicas(0)
		s.Sync()
		s.Change("web-2", ready)
		s.say("web-1 and web-2 are not ready, the set is scaled to 0, and web-2 becomes ready: it goes at once, and then the others")
		return s
	},
	"scale down past an unready pod, strictly": func(t *testing.T) *story {
		s := newStory(t, 4, withoutClaims)
		s.Options.Strict = true
		s.quietly()
		s.Change("web-2", unready)
		s.Change("web-3", unready)
		s.replicas(1)
		s.say("web-2 and web-3 are not ready, and the set is scaled to 1: web-3 has to wait, as web-2 is the lowest")
		s.Change("web-3", ready)
		s.say("web-3 is ready again: it goes, and then web-2 as the lowest that is not ready, and then web-1")
		return s
	},
	"scale down waits for an unready pod that stays": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims)
		s.quietly()
		s.Change("web-0", unready)
		s.replicas(1)
		s.say("web-0 is not ready, and the set is scaled to 1")
		s.Change("web-0", ready)
		s.say("web-0 is ready again")
		return s
	},
	"start ordinal": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims, func(set *appsv1.StatefulSet) { set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 3} })
		s.say("a set of 2 from ordinal 3 on is created")
		s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Ordinals.Start = 2 })
		s.say("its ordinals start at 2")
		return s
	},
	"rolling update": func(t *testing.T) *story {
		s := newStory(t, 3)
		s.quietly()
		s.image("two")
		s.say("the template of a set of 3 changes")
		return s
	},
	"rolling update of a Parallel set": func(t *testing.T) *story {
		s := newStory(t, 3, parallel)
		s.quietly()
		s.image("two")
		s.say("the template of a Parallel set of 3 changes")
		return s
	},
	"update several in order": func(t *testing.T) *story {
		s := newStory(t, 5, withoutClaims, maxUnavailable(intstr.FromString("50%")))
		s.quietly()
		s.image("two")
		s.say("the template of a set of 5 changes, half of which may be unavailable")
		return s
	},
	"update several at once": func(t *testing.T) *story {
		s := newStory(t, 5, withoutClaims, parallel, maxUnavailable(intstr.FromInt32(2)))
		s.quietly()
		s.Change("web-1", unready)
		s.image("two")
		s.say("web-1 is not ready, and the template of a Parallel set of 5 changes, 2 of which may be unavailable")
		return s
	},
	"mend a Parallel set that is broken": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims, parallel)
		s.fates(map[string]sim.Fate{"one": sim.Stuck})
		s.quietly()
		s.image("two")
		s.say("no pod of a Parallel set of 3 ever ran, and its image is corrected")
		return s
	},
	"partition": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims)
		s.quietly()
		s.partition(2)
		s.image("two")
		s.say("the template of a set of 3 with partition 2 changes")
		s.Kill("web-0")
		s.Kill("web-2")
		s.say("web-0 and web-2 are deleted by hand")
		s.partition(9)
		s.image("three")
		s.say("the template changes with a partition beyond all pods")
		s.partition(0)
		s.say("the partition is 0")
		return s
	},
	"deleted during an update, with a partition of 0": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims)
		s.quietly()
		s.image("two")
		s.Sync()
		s.log.Reset()
		s.Kill("web-0")
		s.say("web-0 is deleted by hand while web-2 is updated: it comes back updated")
		return s
	},
	"deleted during an update, without a rollingUpdate block": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims, strategy(appsv1.RollingUpdateStatefulSetStrategyType))
		s.quietly()
		s.image("two")
		s.Sync()
		s.log.Reset()
		s.Kill("web-0")
		s.say("web-0 is deleted by hand while web-2 is updated: it comes back as it was, and is updated in its turn")
		return s
	},
	"deleted during an update of a Parallel set without a rollingUpdate block": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims, parallel, strategy(appsv1.RollingUpdateStatefulSetStrategyType))
		s.quietly()
		s.image("two")
		s.Sync()
		s.log.Reset()
		s.Kill("web-0")
		s.say("web-0 is deleted by hand while web-2 is updated: it comes back updated, as it would be deleted again if it were not")
		return s
	},
	"on delete": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims, strategy(appsv1.OnDeleteStatefulSetStrategyType))
		s.quietly()
		s.image("two")
		s.say("the template of an OnDelete set of 2 changes")
		s.Kill("web-0")
		s.say("web-0 is deleted by hand")
		return s
	},
	"recreate": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims, strategy(appsv1.RecreateStatefulSetStrategyType))
		s.Options.Recreate = true
		s.fates(map[string]sim.Fate{"two": sim.Stuck})
		s.quietly()
		s.image("two")
		s.say("the template of a Recreate set of 3 changes to one that does not start")
		s.image("three")
		s.say("it changes to one that does")
		return s
	},
	"recreate without its gate": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims, strategy(appsv1.RecreateStatefulSetStrategyType))
		s.say("a Recreate set is created where that is switched off")
		return s
	},
	"one by one without the gate of maxUnavailable": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims, parallel, maxUnavailable(intstr.FromInt32(2)))
		s.Options.IgnoreMaxUnavailable = true
		s.quietly()
		s.image("two")
		s.say("the template of a Parallel set of 3 changes")
		return s
	},
	"undo": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims)
		s.quietly()
		s.image("two")
		s.quietly()
		s.image("one")
		s.say("the template goes back to an earlier one")
		return s
	},
	"history limit": func(t *testing.T) *story {
		s := newStory(t, 1, withoutClaims, func(set *appsv1.StatefulSet) { set.Spec.RevisionHistoryLimit = new(int32(1)) })
		s.quietly()
		s.image("two")
		s.quietly()
		s.image("three")
		s.say("the template of a set that keeps 1 past revision changes for the second time")
		return s
	},
	"hash collision": func(t *testing.T) *story {
		s := newStory(t, 1, withoutClaims)
		p := plan.Make(s.Snapshot())
		stranger := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: p.Revisions.Update, UID: "stranger"}}
		stranger.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "x", UID: "y", Controller: new(true)}}
		stranger.Labels = map[string]string{"app": "other"}
		s.Revisions[stranger.Name] = stranger
		s.say("the name of the set's revision is taken by somebody else")
		return s
	},
	"adopt after orphaning": func(t *testing.T) *story {
		s := newStory(t, 2)
		s.quietly()
		s.Orphan()
		s.say("a set was deleted without its pods, and is created anew")
		return s
	},
	"release a pod that matches no more": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims)
		s.quietly()
		s.Change("web-1", func(p *corev1.Pod) { p.Labels["app"] = "lab" })
		s.say("web-1 gets another label: it is let go, and its name stays taken")
		s.Change("web-1", func(p *corev1.Pod) { p.Labels["app"] = "web" })
		s.say("web-1 gets its label back")
		return s
	},
	"a stranger that fits": func(t *testing.T) *story {
		s := newStory(t, 2)
		s.quietly()
		s.replicas(3)
		stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-2", Namespace: "default", Labels: map[string]string{"app": "web"}}}
		s.AddPod(stranger)
		s.say("before a set of 2 is scaled to 3, somebody makes a pod web-2 that fits: it is adopted and then replaced")
		return s
	},
	"lost identity": func(t *testing.T) *story {
		s := newStory(t, 1, withoutClaims)
		s.quietly()
		s.Change("web-0", func(p *corev1.Pod) { delete(p.Labels, appsv1.PodIndexLabel) })
		s.say("web-0 has no label of its ordinal, as if it was made by an old controller")
		return s
	},
	"failed pod": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims)
		s.quietly()
		s.Change("web-0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		s.say("web-0 fails")
		s.Change("web-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		s.say("web-1 ends")
		return s
	},
	"unready predecessor": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims)
		s.quietly()
		s.Change("web-0", unready)
		s.Kill("web-1")
		s.say("web-0 is not ready, and web-1 is deleted by hand: it has to wait")
		s.Change("web-0", ready)
		s.say("web-0 is ready again")
		s.Change("web-2", unready)
		s.Kill("web-0")
		s.say("web-2 is not ready, and web-0 is deleted by hand: it comes back at once")
		return s
	},
	"stuck with a bad image": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims)
		s.fates(map[string]sim.Fate{"bad": sim.Stuck})
		s.quietly()
		s.image("bad")
		s.say("the template of a set of 2 changes to one that does not start")
		return s
	},
	"lost claim": func(t *testing.T) *story {
		s := newStory(t, 1)
		s.fates(map[string]sim.Fate{"one": sim.Stuck})
		s.quietly()
		delete(s.Claims, "data-web-0")
		s.say("the claim of a pending pod is gone")
		return s
	},
	"claim being deleted": func(t *testing.T) *story {
		s := newStory(t, 2, parallel)
		s.quietly()
		going := s.Claims["data-web-1"].DeepCopy()
		going.DeletionTimestamp = &metav1.Time{Time: s.Now}
		s.Claims["data-web-1"] = going
		s.Kill("web-1")
		s.say("web-1 and its claim are deleted, and the claim takes its time")
		delete(s.Claims, "data-web-1")
		s.say("the claim is gone")
		return s
	},
	"retention": func(t *testing.T) *story {
		const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		s := newStory(t, 2, retention(retain, remove))
		s.say("a set is created whose claims go with it")
		s.Edit(retention(remove, remove))
		s.replicas(1)
		s.say("its claims go also when it is scaled down, and it is")
		s.Edit(retention(remove, retain))
		s.say("its claims go only when it is scaled down")
		s.Edit(retention(retain, retain))
		s.say("its claims stay")
		return s
	},
	"scaled up before the claims are gone": func(t *testing.T) *story {
		s := newStory(t, 2, retention(appsv1.DeletePersistentVolumeClaimRetentionPolicyType, appsv1.RetainPersistentVolumeClaimRetentionPolicyType))
		s.quietly()
		s.replicas(1)
		s.Sync()
		s.log.Reset()
		s.replicas(2)
		delete(s.Pods, "web-1")
		s.log.WriteString("\n== the set is scaled up again before the collector took the claim of web-1\n")
		s.Sync()
		s.Collect()
		s.say("the collector took it")
		return s
	},
	"claim of another controller": func(t *testing.T) *story {
		s := newStory(t, 1, retention(appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType))
		s.quietly()
		c := s.Claims["data-web-0"].DeepCopy()
		c.OwnerReferences[0].Controller = nil
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{Kind: "Backup", Name: "b", UID: "b", Controller: new(true)})
		s.Claims[c.Name] = c
		s.say("another controller owns the claim of web-0")
		return s
	},
	"being deleted": func(t *testing.T) *story {
		s := newStory(t, 3, withoutClaims)
		s.quietly()
		s.Edit(func(set *appsv1.StatefulSet) { set.DeletionTimestamp = &metav1.Time{Time: s.Now} })
		s.Kill("web-0")
		s.image("two")
		s.say("the set is being deleted, loses a pod and is edited: nothing is done")
		return s
	},
	"refused pods": func(t *testing.T) *story {
		s := newStory(t, 6, parallel)
		s.Refuse = func(a plan.Action) error {
			if c, ok := a.(plan.CreatePod); ok && c.Pod.Name == "web-2" {
				return errors.New("no")
			}
			return nil
		}
		s.Sync()
		s.log.WriteString("\n(from here on all is accepted)\n")
		s.Refuse = nil
		s.say("")
		return s
	},
	"bad revision": func(t *testing.T) *story {
		s := newStory(t, 2, withoutClaims)
		s.quietly()
		s.partition(1)
		s.image("two")
		s.quietly()
		r := s.Revisions[s.Set.Status.CurrentRevision].DeepCopy()
		r.Data.Raw = []byte("{")
		s.Revisions[r.Name] = r
		s.Kill("web-0")
		s.say("the current revision is not readable, and web-0 needs it")
		return s
	},
	"bad selector": func(t *testing.T) *story {
		s := newStory(t, 1, withoutClaims)
		s.quietly()
		s.Edit(func(set *appsv1.StatefulSet) {
			set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}
		})
		s.say("the selector cannot be read")
		s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Selector = nil })
		s.say("there is no selector")
		return s
	},
}

func TestStories(t *testing.T) {
	for _, some := range []map[string]func(*testing.T) *story{stories, stuckStories, policyStories} {
		for name, tell := range some {
			t.Run(name, func(t *testing.T) {
				s := tell(t)
				golden(t, name, strings.TrimPrefix(s.log.String(), "\n"))
			})
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-")+".golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s tells another story; if it is right, run the test with -rewrite. It is now:\n%s", path, got)
	}
}
