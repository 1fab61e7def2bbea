// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/policy"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/status"
)

func oneOf[T any](t *rapid.T, label string, values ...T) T {
	return values[rapid.IntRange(0, len(values)-1).Draw(t, label)]
}

// drawPolicies gives the set of a snapshot none, one or two policies in any state, and its pods what policies look at.
func drawPolicies(t *rapid.T, s *plan.Snapshot) {
	n := oneOf(t, "policies", 0, 1, 1, 1, 1, 2)
	for i := range n {
		p := drawPolicy(t, *s)
		p.Name = []string{"a", "b"}[i]
		s.Policies = append(s.Policies, p)
	}
	if n == 0 {
		return
	}
	for _, p := range s.Pods {
		if rapid.IntRange(0, 3).Draw(t, "leads") == 3 {
			p.Labels["role"] = "leader"
		}
		p.Annotations = oneOf(t, "told", nil, nil, nil, map[string]string{v1alpha1.StopReasonAnnotation: v1alpha1.StopUpdate},
			map[string]string{
				v1alpha1.StopReasonAnnotation: v1alpha1.StopScaleDown,
				v1alpha1.StopAtAnnotation:     s.Now.Add(time.Duration(oneOf(t, "stop", -1, 0, 20)) * time.Second).Format(time.RFC3339),
			})
		if rapid.IntRange(0, 9).Draw(t, "blocked") == 9 {
			s.EvictAfter = map[string]time.Time{p.Name: s.Now.Add(2 * time.Second)}
		}
		if rapid.IntRange(0, 9).Draw(t, "unstuck") == 9 {
			s.Unstuck = map[string]bool{p.Name: true}
		}
	}
}

func drawPolicy(t *rapid.T, s plan.Snapshot) *v1alpha1.StatefulSetPolicy {
	p := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.Set.Namespace, Generation: 1}}
	p.Spec.TargetRef.Name = s.Set.Name
	p.Spec.Rollout, p.Spec.Scaling = drawRollout(t), &v1alpha1.ScalingPolicy{
		ReservedOrdinals: oneOf(t, "reserved", nil, nil, nil, []intstr.IntOrString{intstr.FromInt32(1)},
			[]intstr.IntOrString{intstr.FromString("0-1")}, []intstr.IntOrString{intstr.FromInt32(4), intstr.FromInt32(2)}),
		ScaleDown: oneOf(t, "scale down", nil, nil, &v1alpha1.ScaleDown{DrainSeconds: 30}, &v1alpha1.ScaleDown{ReasonAnnotation: true}),
	}
	at := func(ago time.Duration) string { return s.Now.Add(-ago).Format(time.RFC3339) }
	p.Annotations = oneOf(t, "annotation", nil, nil, nil, nil,
		map[string]string{v1alpha1.RetryAtAnnotation: at(0)}, map[string]string{v1alpha1.RetryAtAnnotation: at(time.Hour)},
		map[string]string{v1alpha1.ResumeAtAnnotation: at(0)}, map[string]string{v1alpha1.ResumeAtAnnotation: "now"})
	names := []string{"", s.Set.Status.CurrentRevision, plan.Make(s).Revisions.Update}
	p.Status.CompleteRevision = oneOf(t, "complete", names...)
	if p.Status.FailedRevision = oneOf(t, "failed", "", "", names[1], names[2]); p.Status.FailedRevision != "" {
		p.Status.FailedTime = &metav1.Time{Time: s.Now.Add(-time.Minute)}
	}
	if name := oneOf(t, "rollout", names...); name != "" {
		p.Status.Rollout = &v1alpha1.RolloutStatus{
			Revision: name,
			Phase: oneOf(t, "phase", v1alpha1.RolloutProgressing, v1alpha1.RolloutProgressing, v1alpha1.RolloutPaused, v1alpha1.RolloutHeld,
				v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack, v1alpha1.RolloutComplete),
			Replicas:          oneOf(t, "replicas", *s.Set.Spec.Replicas, 0, 3),
			AvailableReplicas: rapid.Int32Range(0, 3).Draw(t, "available"),
			LastProgressTime:  metav1.NewTime(s.Now.Add(-time.Duration(oneOf(t, "ago", 0, 30, 90)) * time.Second)),
		}
	}
	return p
}

func drawRollout(t *rapid.T) *v1alpha1.RolloutPolicy {
	r := &v1alpha1.RolloutPolicy{
		ProgressDeadlineSeconds: oneOf(t, "deadline", nil, nil, new(int32(60)), new(int32(3600))),
		OnDeadline:              oneOf(t, "on deadline", v1alpha1.Hold, v1alpha1.RollBack),
		Paused:                  rapid.IntRange(0, 4).Draw(t, "paused") == 4,
		PauseAfter: oneOf(t, "batch", nil, nil, nil, &v1alpha1.PauseAfter{Ordinals: new(int32(1))},
			&v1alpha1.PauseAfter{Ordinals: new(int32(2)), Seconds: new(int32(60))}, &v1alpha1.PauseAfter{Percent: new(int32(50)), Seconds: new(int32(1))}),
		Disruption: oneOf(t, "disruption", v1alpha1.Delete, v1alpha1.Evict),
	}
	if rapid.Bool().Draw(t, "leader last") {
		r.Order, r.LeaderSelector = v1alpha1.LeaderLast, &metav1.LabelSelector{MatchLabels: map[string]string{"role": "leader"}}
	}
	return r
}

func isUnreadable(p *v1alpha1.StatefulSetPolicy) bool {
	return p.Annotations[v1alpha1.ResumeAtAnnotation] == "now"
}

// reservedBy reads what a policy of drawPolicy reserves.
func reservedBy(p *v1alpha1.StatefulSetPolicy) []ordinal.Interval {
	var all []ordinal.Interval
	for _, r := range p.Spec.Scaling.ReservedOrdinals {
		i, _ := ordinal.ParseInterval(r.String())
		all = append(all, i)
	}
	return all
}

func (d drawn) isReservedByAny(n int) bool {
	return slices.ContainsFunc(d.Policies, func(p *v1alpha1.StatefulSetPolicy) bool { return ordinal.IsIn(reservedBy(p), n) })
}

// rests tells if nothing may be done for the template.
func (d drawn) rests() bool {
	isPaused := d.policy != nil && d.policy.Spec.Rollout.Paused
	return d.conflict || isPaused || d.plan.Rollout.Phase == v1alpha1.RolloutHeld
}

// wanted is the revision that a pod should have in the end.
func (d drawn) wanted(n int) string {
	if n < d.partition() || d.plan.Rollout.Failed {
		return d.plan.Revisions.Current
	}
	return d.plan.Revisions.Update
}

// isForTheTemplate tells if a pod is removed so that it gets another revision.
func isForTheTemplate(a plan.DeletePod) bool {
	return slices.Contains([]plan.Reason{
		plan.ReasonOutdated, plan.ReasonOutdatedBroken, plan.ReasonStuck, plan.ReasonRecreate,
	}, a.Reason)
}

// A pod that ended is replaced in any case; that it is stuck only tells where it comes back.
func (d drawn) isEnded(a plan.DeletePod) bool {
	n, _ := ordinal.Of(d.Set.Name, a.Pod.Name)
	return podstate.IsFinished(d.members()[n])
}

// While a rollout rests, nothing is removed for its sake; in a conflict of policies, nothing is scaled down either.
func TestRestIsRest(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		for _, a := range of[plan.DeletePod](d.plan) {
			if d.rests() && isForTheTemplate(a) && !d.isEnded(a) {
				t.Fatalf("the rollout rests, and the plan is\n%s", d.plan.String(d.Now))
			}
			if d.conflict && a.Reason == plan.ReasonScaledDown {
				t.Fatalf("policies contradict each other, and the plan is\n%s", d.plan.String(d.Now))
			}
		}
	})
}

func TestReservedOrdinalsGetNoPods(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		for _, a := range of[plan.CreatePod](d.plan) {
			if n, _ := ordinal.Of(d.Set.Name, a.Pod.Name); d.isReservedByAny(n) {
				t.Fatalf("%d is reserved, and the plan is\n%s", n, d.plan.String(d.Now))
			}
		}
	})
}

// No pod that leads and serves is replaced while another pod has yet to be, or does not serve.
func TestLeadersGoLast(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		if d.policy == nil || d.policy.Spec.Rollout.Order != v1alpha1.LeaderLast {
			return
		}
		members := d.members()
		leads := func(p *corev1.Pod) bool { return p != nil && p.Labels["role"] == "leader" && d.isServing(p) }
		for _, a := range of[plan.DeletePod](d.plan) {
			n, _ := ordinal.Of(d.Set.Name, a.Pod.Name)
			if a.Reason != plan.ReasonOutdated || !leads(members[n]) {
				continue
			}
			for other := range d.span.All() {
				p := members[other]
				isOutdated := other >= d.partition() && podstate.Revision(orNone(p)) != d.wanted(other) && orNone(p).Labels["role"] != "leader"
				if !d.isServing(p) || isOutdated {
					t.Fatalf("%d leads, and goes before %d\n%s", n, other, d.plan.String(d.Now))
				}
			}
		}
	})
}

func orNone(p *corev1.Pod) *corev1.Pod {
	if p == nil {
		return &corev1.Pod{}
	}
	return p
}

// The pods that serve and are taken do not exceed what is left of the batch, and none are taken before all that were taken
// serve, nor before the pause is over.
func TestBatchesAreKept(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		isRolling := d.Set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType
		if d.policy == nil || d.policy.Spec.Rollout.PauseAfter == nil || !isRolling || d.plan.Rollout.Failed {
			return
		}
		batch := d.policy.Spec.Rollout.PauseAfter
		size := policy.BatchSize(batch, d.span.Count)
		members := d.members()
		begun, settled := 0, true
		var last time.Time
		for n := range d.span.All() {
			p := members[n]
			if n < d.partition() || (p != nil && p.DeletionTimestamp == nil && podstate.Revision(p) != d.plan.Revisions.Update) {
				continue
			}
			begun++
			settled = settled && d.isServing(p)
			if p == nil {
				continue
			}
			if at, ok := podstate.AvailableAt(p, d.Set.Spec.MinReadySeconds); ok && at.After(last) {
				last = at
			}
		}
		taken := 0
		for _, a := range of[plan.DeletePod](d.plan) {
			if n, _ := ordinal.Of(d.Set.Name, a.Pod.Name); isForTheTemplate(a) && d.isServing(members[n]) {
				taken++
			}
		}
		room := size - begun%size
		isOver := batch.Seconds != nil && !last.Add(time.Duration(*batch.Seconds)*time.Second).After(d.Now)
		isResumed := d.policy.Annotations[v1alpha1.ResumeAtAnnotation] != ""
		if begun > 0 && begun%size == 0 && (!settled || (!isOver && !isResumed)) {
			room = 0
		}
		if taken > room {
			t.Fatalf("%d pods are taken, %d are left of a batch of %d after %d\n%s", taken, room, size, begun, d.plan.String(d.Now))
		}
	})
}

// A deadline is looked at when it passes.
func TestDeadlinesAreLookedAt(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		r := d.plan.Rollout
		isOnDelete := d.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
		if d.policy == nil || d.policy.Spec.Rollout.ProgressDeadlineSeconds == nil || r.Phase != v1alpha1.RolloutProgressing || isOnDelete {
			return
		}
		at := r.Since.Add(time.Duration(*d.policy.Spec.Rollout.ProgressDeadlineSeconds) * time.Second)
		if !at.After(d.Now) {
			t.Fatalf("the deadline was at %v, and the rollout goes on", at)
		}
		if d.plan.Requeue.IsZero() || d.plan.Requeue.After(at) {
			t.Fatalf("the deadline is at %v, and the plan looks again at %v", at, d.plan.Requeue)
		}
	})
}

// Pods are removed as the policy says: told before, evicted for an update, deleted when they are scaled away.
func TestPodsGoAsThePolicySays(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		told := map[string]string{}
		for _, p := range d.Pods {
			told[p.Name] = p.Annotations[v1alpha1.StopReasonAnnotation]
		}
		for _, a := range d.plan.Actions() {
			switch a := a.(type) {
			case plan.TellPod:
				told[a.Pod.Name] = a.Stop
			case plan.DeletePod:
				if d.isEnded(a) {
					continue
				}
				evicts := d.policy != nil && isForTheTemplate(a) && d.policy.Spec.Rollout.Disruption == v1alpha1.Evict
				if a.Evict != evicts || (evicts && d.EvictAfter[a.Pod.Name].After(d.Now)) {
					t.Fatalf("%s", a)
				}
				tells := d.policy != nil && d.policy.Spec.Scaling.ScaleDown != nil
				want := map[bool]string{true: v1alpha1.StopUpdate, false: v1alpha1.StopScaleDown}[isForTheTemplate(a)]
				if tells && (d.policy.Spec.Scaling.ScaleDown.ReasonAnnotation || a.Reason == plan.ReasonScaledDown) && told[a.Pod.Name] != want {
					t.Fatalf("%s, and it is told %q", a, told[a.Pod.Name])
				}
			default:
			}
		}
	})
}

// atRest checks that a world that has settled needs no more writes, now and later.
func atRest(t *rapid.T, w *sim.World) {
	for range 2 {
		s := w.Snapshot()
		p := plan.Make(s)
		if len(p.Steps) > 0 {
			t.Fatalf("the world is settled, and the plan is\n%s", p.String(w.Now))
		}
		next, changed := status.Settle(s, p, nil)
		if changed {
			t.Fatalf("the world is settled, and its status changes from\n%+v to\n%+v", w.Set.Status, next)
		}
		for _, next := range status.Policies(s, p, nil) {
			t.Fatalf("the world is settled, and the status of policy %s changes from\n%+v to\n%+v", next.Policy.Name, next.Policy.Status, next.Status)
		}
		w.Now = w.Now.Add(time.Second)
	}
}

// settle lets a world come to rest, within as many steps as any of those here needs.
func settle(t *rapid.T, w *sim.World) {
	for range 1000 {
		if !w.Sync() && !w.Advance() {
			return
		}
	}
	p := plan.Make(w.Snapshot())
	t.Fatalf("the world does not settle; the plan is\n%s", p.String(w.Now))
}

// broken tells the fate of pods by their image: bad ones fare badly, some of them only with odd ordinals.
func broken(p *corev1.Pod) sim.Fate {
	n, _ := ordinal.ParsePod(p.Name)
	switch image := p.Spec.Containers[0].Image; {
	case image == "stuck", image == "oddly-stuck" && n.Ordinal%2 == 1:
		return sim.Stuck
	case image == "unready", image == "oddly-unready" && n.Ordinal%2 == 1:
		return sim.Unready
	case image == "failing", image == "oddly-failing" && n.Ordinal%2 == 1:
		return sim.Failing
	default:
		return sim.Good
	}
}

// Every world comes to rest, whatever its policies are and whatever they have come through, and then nothing is written.
func TestGovernedWorldsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := healable(t)
		s.Options.Strict = rapid.Bool().Draw(t, "strict")
		drawPolicies(t, &s)
		w := sim.From(s)
		w.Blocked = func(plan.DeletePod) bool { return rapid.IntRange(0, 2).Draw(t, "blocked") == 2 }
		settle(t, w)
		atRest(t, w)
	})
}

// history lets a set go through edits, losses and moves of all kinds, each of which has some time.
func history(t *rapid.T, w *sim.World) {
	for range rapid.IntRange(1, 8).Draw(t, "events") {
		event(t, w)
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			if !w.Sync() && !w.Advance() {
				break
			}
		}
	}
}

var badImages = []string{"stuck", "unready", "failing", "oddly-stuck", "oddly-unready", "oddly-failing"}

// event is one thing that somebody does, or that happens.
func event(t *rapid.T, w *sim.World) {
	name := ordinal.PodName(w.Set.Name, rapid.IntRange(0, 5).Draw(t, "pod"))
	switch rapid.IntRange(0, 9).Draw(t, "event") {
	case 0, 1, 2:
		image := oneOf(t, "bad image", badImages...)
		w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = image })
	case 3:
		image := oneOf(t, "image", "one", "two", "three")
		w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = image })
	case 4:
		n := rapid.Int32Range(0, 5).Draw(t, "replicas")
		w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Replicas = &n })
	case 5:
		w.Kill(name)
	case 6:
		w.Change(name, func(p *corev1.Pod) {
			if len(p.Status.Conditions) > 0 {
				p.Status.Conditions[0].Status = oneOf(t, "ready", corev1.ConditionFalse, corev1.ConditionTrue)
				p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.Now)
			}
		})
	case 7:
		n := rapid.Int32Range(0, 4).Draw(t, "partition")
		w.Edit(func(s *appsv1.StatefulSet) {
			if s.Spec.UpdateStrategy.RollingUpdate != nil {
				s.Spec.UpdateStrategy.RollingUpdate.Partition = &n
			}
		})
	default:
		p := drawPolicy(t, w.Snapshot())
		p.Name = oneOf(t, "policy", "a", "a", "b")
		p.Status = v1alpha1.StatefulSetPolicyStatus{}
		w.AddPolicy(p)
	}
}

// Whatever a set has come through, once a good template is there, it reaches it without a human. Its pods serve, and it says
// that all is well. Only policies and partitions that say otherwise are taken back.
func TestGoodTemplateIsReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := sim.NewSet("web", rapid.Int32Range(0, 4).Draw(t, "replicas"), withoutClaims, func(s *appsv1.StatefulSet) {
			s.Spec.PodManagementPolicy = oneOf(t, "management", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)
			s.Spec.Template.Spec.Containers[0].Image = oneOf(t, "first image", append([]string{"one", "one"}, badImages...)...)
			s.Spec.MinReadySeconds = oneOf(t, "minimum", int32(0), 0, 5)
			if rapid.IntRange(0, 2).Draw(t, "no block") == 2 {
				s.Spec.UpdateStrategy.RollingUpdate = nil
				return
			}
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = oneOf(t, "maxUnavailable", nil, new(intstr.FromInt32(2)))
		})
		w := sim.New(set)
		w.Fate = broken
		history(t, w)
		delete(w.Policies, "b")
		if p := w.Policies["a"]; p != nil {
			obey(w, "a", allowed)
		}
		image := oneOf(t, "good image", "one", "good")
		w.Edit(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].Image = image
			if s.Spec.UpdateStrategy.RollingUpdate != nil {
				s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(0))
			}
		})
		// What is not ready although its template is good is not for the controller to mend: it becomes ready by itself.
		for name, p := range w.Pods {
			if p.Status.Phase == corev1.PodRunning && broken(p) == sim.Good {
				w.Change(name, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
			}
		}
		settle(t, w)
		reached(t, w, image)
		atRest(t, w)
	})
}

// allowed takes back what keeps a policy from letting a rollout come to its end.
func allowed(p *v1alpha1.StatefulSetPolicy) {
	p.Annotations = nil
	p.Spec.Rollout.Paused = false
	p.Spec.Rollout.ProgressDeadlineSeconds = nil
	if b := p.Spec.Rollout.PauseAfter; b != nil {
		b.Seconds = new(int32(60))
	}
}

// reached checks that a set has all its pods with an image, and says so.
func reached(t *rapid.T, w *sim.World, image string) {
	p := plan.Make(w.Snapshot())
	if len(w.Pods) != int(*w.Set.Spec.Replicas) {
		t.Fatalf("there are %d pods, not %d\n%s", len(w.Pods), *w.Set.Spec.Replicas, p.String(w.Now))
	}
	for name, pod := range w.Pods {
		if !isUpdated(pod, image) {
			t.Fatalf("%s has image %s and is %s\n%s", name, pod.Spec.Containers[0].Image, pod.Status.Phase, p.String(w.Now))
		}
	}
	want := map[appsv1.StatefulSetConditionType]string{
		status.Available: "True AllAvailable", appsv1.StatefulSetProgressing: "False Complete", status.Degraded: "False AsExpected",
	}
	for _, c := range w.Set.Status.Conditions {
		if got := string(c.Status) + " " + c.Reason; got != want[c.Type] {
			t.Fatalf("%s is %s: %s\n%s", c.Type, got, c.Message, p.String(w.Now))
		}
	}
}
