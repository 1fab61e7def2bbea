// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// obey gives a set a policy, or changes the one of that name.
func obey(w *sim.World, name string, changes ...func(*v1alpha1.StatefulSetPolicy)) {
	p := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	p.Spec.TargetRef.Name = w.Set.Name
	p.Spec.Rollout, p.Spec.Scaling = &v1alpha1.RolloutPolicy{}, &v1alpha1.ScalingPolicy{}
	if old := w.Policies[name]; old != nil {
		p = old.DeepCopy()
	}
	for _, change := range changes {
		change(p)
	}
	w.AddPolicy(p)
}

func paused(is bool) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Paused = is }
}

func deadline(seconds int32, then v1alpha1.OnDeadline) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) {
		p.Spec.Rollout.ProgressDeadlineSeconds, p.Spec.Rollout.OnDeadline = &seconds, then
	}
}

func batches(b v1alpha1.PauseAfter) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.PauseAfter = &b }
}

func leaderLast(p *v1alpha1.StatefulSetPolicy) {
	p.Spec.Rollout.Order = v1alpha1.LeaderLast
	p.Spec.Rollout.LeaderSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "leader"}}
}

func evict(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Disruption = v1alpha1.Evict }

func scaleDown(d v1alpha1.ScaleDown) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Scaling.ScaleDown = &d }
}

func reserve(values ...intstr.IntOrString) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Scaling.ReservedOrdinals = values }
}

func annotate(key, value string) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) { p.Annotations = map[string]string{key: value} }
}

func leads(p *corev1.Pod) { p.Labels["role"] = "leader" }

func follows(p *corev1.Pod) { delete(p.Labels, "role") }

func (s *story) now() string { return s.Now.UTC().Format(time.RFC3339) }

// until lets the world go on until something is the case, which it has to be sooner or later.
func until(t *testing.T, w *sim.World, is func() bool) {
	t.Helper()
	for range 1000 {
		if is() {
			return
		}
		if !w.Sync() && !w.Advance() {
			break
		}
	}
	p := plan.Make(w.Snapshot())
	t.Fatalf("it is never so; in the end, the plan is\n%s", p.String(w.Now))
}

// isUpdated tells if a pod is there with an image, and is ready.
func isUpdated(p *corev1.Pod, image string) bool {
	return p != nil && p.Spec.Containers[0].Image == image && podstate.IsReady(p)
}

// phase is how the rollout of policy a fares; empty if that is not known.
func phase(w *sim.World) v1alpha1.RolloutPhase {
	if r := w.Policies["a"].Status.Rollout; r != nil {
		return r.Phase
	}
	return ""
}

// policyStories are those of sets that have policies.
var policyStories = map[string]func(*testing.T) *story{
	"paused": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		obey(s.World, "a", paused(true))
		s.image("two")
		s.say("the template of a set changes whose policy pauses rollouts")
		s.Kill("web-1")
		s.say("web-1 is deleted by hand: it comes back as it was")
		obey(s.World, "a", paused(false))
		s.say("the policy pauses no more")
		return s
	},
	"paused amid a rollout": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		obey(s.World, "a")
		s.image("two")
		until(t, s.World, func() bool { return isUpdated(s.Pods["web-2"], "two") })
		s.Change("web-2", unready)
		obey(s.World, "a", paused(true))
		s.log.Reset()
		s.say("web-2 is updated, is no longer ready, and the rollout is paused: web-2 stays")
		s.image("one")
		s.say("the template goes back: while it is paused, nothing is replaced, though web-2 is not as it should")
		obey(s.World, "a", paused(false))
		s.say("the policy pauses no more")
		return s
	},
	"held at the deadline": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.badIsStuck()
		s.quietly()
		obey(s.World, "a", deadline(300, v1alpha1.Hold))
		s.image("bad")
		s.say("the template changes to one that does not start, and the policy holds after 5 minutes")
		s.Kill("web-0")
		s.say("web-0 is deleted by hand: it comes back as it was")
		s.image("two")
		s.say("the template changes to one that starts")
		return s
	},
	"rolled back at the deadline": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.badIsStuck()
		s.quietly()
		obey(s.World, "a", deadline(300, v1alpha1.RollBack))
		s.image("bad")
		s.say("the template changes to one that does not start, and the policy rolls back after 5 minutes")
		s.Kill("web-0")
		s.say("web-0 is deleted by hand: it comes back as it was")
		s.image("two")
		s.say("the template changes to one that starts")
		return s
	},
	"rolled back after some pods": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.Fate = func(p *corev1.Pod) sim.Fate {
			if p.Name == "web-1" && p.Spec.Containers[0].Image == "two" {
				return sim.Unready
			}
			return sim.Good
		}
		s.quietly()
		obey(s.World, "a", deadline(300, v1alpha1.RollBack))
		s.image("two")
		s.say("the template changes to one with which web-1 does not become ready: web-2 goes back too")
		return s
	},
	"rolled back and paused": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.badIsStuck()
		s.quietly()
		obey(s.World, "a", deadline(300, v1alpha1.RollBack))
		s.image("bad")
		until(t, s.World, func() bool { return s.Policies["a"].Status.FailedRevision != "" })
		s.log.Reset()
		obey(s.World, "a", paused(true))
		s.Kill("web-0")
		s.say("a rollout has failed, is paused before its pods are back, and web-0 is deleted by hand: it comes back at the current revision")
		obey(s.World, "a", paused(false))
		s.say("the policy pauses no more")
		return s
	},
	"nothing to roll back to": func(t *testing.T) *story {
		s := newTold(t, 2, func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = "bad" })
		s.badIsStuck()
		obey(s.World, "a", deadline(300, v1alpha1.RollBack))
		s.say("a set is created that does not start, and its policy rolls back after 5 minutes: there is nothing to go back to")
		s.image("worse")
		s.say("the template changes to another one that does not start: what never ran is nothing to go back to either")
		s.image("two")
		s.say("the template changes to one that starts")
		return s
	},
	"tried again": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.badIsStuck()
		s.quietly()
		obey(s.World, "a", deadline(300, v1alpha1.RollBack))
		s.image("bad")
		s.quietly()
		s.fates(nil)
		obey(s.World, "a", annotate(v1alpha1.RetryAtAnnotation, s.now()))
		s.say("a rollout was brought back, its image is there now, and somebody asks for another try")
		return s
	},
	"tried again in vain": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.badIsStuck()
		s.quietly()
		obey(s.World, "a", deadline(300, v1alpha1.RollBack))
		s.image("bad")
		s.quietly()
		obey(s.World, "a", annotate(v1alpha1.RetryAtAnnotation, s.now()))
		s.say("a rollout was brought back, and somebody asks for another try, which fails too")
		return s
	},
	"held, and tried again": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.badIsStuck()
		s.quietly()
		obey(s.World, "a", deadline(300, v1alpha1.Hold))
		s.image("bad")
		s.quietly()
		s.fates(nil)
		s.Kill("web-1")
		obey(s.World, "a", annotate(v1alpha1.RetryAtAnnotation, s.now()))
		s.say("a rollout is held, its image is there now, web-1 is deleted and somebody asks for another try")
		return s
	},
	"the deadline counts from the last progress": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		obey(s.World, "a", deadline(5, v1alpha1.Hold))
		s.image("two")
		s.say("a rollout whose pods take 3 seconds each has a deadline of 5")
		return s
	},
	"batches with a pause of a minute": func(t *testing.T) *story {
		s := newTold(t, 5)
		s.quietly()
		obey(s.World, "a", batches(v1alpha1.PauseAfter{Ordinals: new(int32(2)), Seconds: new(int32(60))}))
		s.image("two")
		s.say("the template of a set of 5 changes whose policy pauses for a minute after 2 pods")
		return s
	},
	"batches until somebody resumes": func(t *testing.T) *story {
		s := newTold(t, 4)
		s.quietly()
		obey(s.World, "a", batches(v1alpha1.PauseAfter{Percent: new(int32(50))}), deadline(60, v1alpha1.RollBack))
		s.image("two")
		s.say("the template of a set of 4 changes whose policy pauses after half of the pods")
		s.pass(time.Hour)
		obey(s.World, "a", annotate(v1alpha1.ResumeAtAnnotation, s.now()))
		s.say("after an hour, which does not count for the deadline, somebody resumes")
		return s
	},
	"batches less than what may be unavailable": func(t *testing.T) *story {
		s := newTold(t, 5, maxUnavailable(intstr.FromInt32(3)))
		s.quietly()
		obey(s.World, "a", batches(v1alpha1.PauseAfter{Ordinals: new(int32(2)), Seconds: new(int32(60))}))
		s.image("two")
		s.say("the template of a set of 5 changes, 3 of which may be unavailable, and whose policy pauses after 2")
		return s
	},
	"a batch that loses a pod": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		obey(s.World, "a", batches(v1alpha1.PauseAfter{Ordinals: new(int32(1)), Seconds: new(int32(60))}))
		s.image("two")
		until(t, s.World, func() bool { return phase(s.World) == v1alpha1.RolloutPaused })
		s.log.Reset()
		s.pass(30 * time.Second)
		s.Kill("web-2")
		s.say("half a minute into the pause after web-2, it is deleted by hand: the pause begins anew once it is back")
		return s
	},
	"leader last": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		s.Change("web-2", leads)
		obey(s.World, "a", leaderLast)
		s.image("two")
		s.say("web-2 leads and goes last: it is the last that is replaced")
		return s
	},
	"leader moves": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		s.Change("web-2", leads)
		obey(s.World, "a", leaderLast)
		s.image("two")
		until(t, s.World, func() bool { return isUpdated(s.Pods["web-1"], "two") })
		s.log.Reset()
		s.Change("web-2", follows)
		s.Change("web-0", leads)
		s.say("web-1 is updated, and then web-0 leads instead of web-2")
		return s
	},
	"two leaders": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		s.Change("web-2", leads)
		s.Change("web-0", leads)
		obey(s.World, "a", leaderLast)
		s.image("two")
		s.say("web-0 and web-2 lead: they go last, one after the other")
		return s
	},
	"nobody leads": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.quietly()
		obey(s.World, "a", leaderLast)
		s.image("two")
		s.say("nobody leads: the highest goes first")
		return s
	},
	"leader is broken": func(t *testing.T) *story {
		s := newTold(t, 3, parallel)
		s.quietly()
		s.Change("web-1", func(p *corev1.Pod) { leads(p); unready(p) })
		obey(s.World, "a", leaderLast)
		s.image("two")
		s.say("web-1 leads by its labels and is not ready: it leads nobody, and is replaced first")
		return s
	},
	"evictions": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.quietly()
		blocked := 2
		s.Blocked = func(plan.DeletePod) bool { blocked--; return blocked >= 0 }
		obey(s.World, "a", evict)
		s.image("two")
		s.say("pods are evicted, and a PodDisruptionBudget forbids it two times")
		s.replicas(1)
		s.say("the set is scaled to 1: web-1 is deleted, not evicted")
		return s
	},
	"evictions of stuck pods": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.badIsStuck()
		s.quietly()
		s.image("bad")
		s.quietly()
		obey(s.World, "a", evict)
		blocked := 1
		s.Blocked = func(plan.DeletePod) bool { blocked--; return blocked >= 0 }
		s.image("one")
		s.say("a pod that is stuck is evicted too")
		return s
	},
	"told of an update": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.quietly()
		obey(s.World, "a", scaleDown(v1alpha1.ScaleDown{ReasonAnnotation: true}))
		s.image("two")
		s.say("pods are told why they go: they are updated")
		s.replicas(1)
		s.say("web-1 is scaled away")
		return s
	},
	"told of an update that does not come": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.quietly()
		obey(s.World, "a", evict, scaleDown(v1alpha1.ScaleDown{ReasonAnnotation: true}))
		s.Blocked = func(plan.DeletePod) bool { return true }
		s.image("two")
		s.Sync()
		s.log.Reset()
		s.image("one")
		s.say("web-1 was told that it is updated, its eviction was forbidden, and the template goes back")
		return s
	},
	"drain": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		obey(s.World, "a", scaleDown(v1alpha1.ScaleDown{DrainSeconds: 30}))
		s.replicas(1)
		s.say("a set of 3 is scaled to 1, and pods have 30 seconds to drain")
		return s
	},
	"drain at once": func(t *testing.T) *story {
		s := newTold(t, 3, parallel)
		s.quietly()
		obey(s.World, "a", scaleDown(v1alpha1.ScaleDown{DrainSeconds: 30}))
		s.replicas(1)
		s.say("a Parallel set of 3 is scaled to 1, and pods have 30 seconds to drain")
		return s
	},
	"scaled up again while it drains": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.quietly()
		obey(s.World, "a", scaleDown(v1alpha1.ScaleDown{DrainSeconds: 30}))
		s.replicas(1)
		s.Sync()
		s.log.Reset()
		s.replicas(2)
		s.say("while web-1 drains, the set is scaled up again")
		s.replicas(1)
		s.say("it is scaled down again")
		return s
	},
	"scaled up with another template while it drains": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.quietly()
		obey(s.World, "a", scaleDown(v1alpha1.ScaleDown{DrainSeconds: 30, ReasonAnnotation: true}))
		s.replicas(1)
		s.Sync()
		s.log.Reset()
		s.replicas(2)
		s.image("two")
		s.say("while web-1 drains, the set is scaled up again and its template changes")
		return s
	},
	"reserved in the middle": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		obey(s.World, "a", reserve(intstr.FromInt32(1)))
		s.say("ordinal 1 of a set of 3 is reserved: web-3 comes, and then web-1 goes")
		s.image("two")
		s.say("the template changes")
		obey(s.World, "a", reserve())
		s.say("ordinal 1 is no longer reserved: web-1 comes, and then web-3 goes")
		return s
	},
	"reserved at the beginning": func(t *testing.T) *story {
		s := newTold(t, 2, parallel)
		s.quietly()
		obey(s.World, "a", reserve(intstr.FromString("0-1")))
		s.say("ordinals 0 and 1 of a Parallel set of 2 are reserved: web-2 and web-3 come, and the others go")
		s.replicas(1)
		s.say("the set is scaled to 1")
		return s
	},
	"two policies": func(t *testing.T) *story {
		s := newTold(t, 3)
		s.quietly()
		obey(s.World, "a", reserve(intstr.FromInt32(1)))
		s.quietly()
		obey(s.World, "b", evict)
		s.image("two")
		s.replicas(1)
		s.say("there is a second policy, the template changes and the set is scaled to 1: nothing is replaced or scaled down")
		s.Kill("web-0")
		s.say("web-0 is deleted by hand: it comes back as it was")
		delete(s.Policies, "a")
		s.say("the first policy is gone")
		return s
	},
	"two policies, of a Parallel set": func(t *testing.T) *story {
		s := newTold(t, 3, parallel)
		s.quietly()
		obey(s.World, "a", reserve(intstr.FromInt32(1)))
		s.quietly()
		obey(s.World, "b")
		s.image("two")
		s.say("there is a second policy, and the template changes: nothing is replaced or scaled down")
		delete(s.Policies, "b")
		s.say("the second policy is gone")
		return s
	},
	"policy with a bad annotation": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.quietly()
		obey(s.World, "a", annotate(v1alpha1.ResumeAtAnnotation, "now"))
		s.image("two")
		s.say("the policy of a set has an annotation that is no time, and the template changes")
		obey(s.World, "a", annotate(v1alpha1.ResumeAtAnnotation, s.now()))
		s.say("the annotation is corrected")
		return s
	},
	"policies are obeyed, strictly": func(t *testing.T) *story {
		s := newTold(t, 2)
		s.Options.Strict = true
		s.quietly()
		obey(s.World, "a", paused(true))
		s.image("two")
		s.say("a policy pauses the rollout, although all else is as in Kubernetes")
		return s
	},
	"recreate, paused": func(t *testing.T) *story {
		s := newTold(t, 2, strategy(appsv1.RecreateStatefulSetStrategyType))
		s.Options.Recreate = true
		s.quietly()
		obey(s.World, "a", paused(true))
		s.image("two")
		s.say("the template of a Recreate set changes whose policy pauses rollouts")
		s.Kill("web-1")
		s.say("web-1 is deleted by hand: it comes back as it was")
		obey(s.World, "a", paused(false))
		s.say("the policy pauses no more")
		return s
	},
}
