// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

const (
	// badImage is one that never starts.
	badImage = "bad"
	// strangerUID is the owner of what belongs to somebody else.
	strangerUID types.UID = "stranger"
	// holdFinalizer is how people hold a pod.
	holdFinalizer = "example.com/hold"
)

// right is what people have allowed to happen to claims.
type right struct {
	// deletes means that a policy let claims be deleted at some time.
	deletes bool
	// deleted are the claims that people deleted.
	deleted map[types.UID]bool
}

// do lets a step happen.
func (w *World) do(s Step) {
	for _, try := range []func(Step) bool{w.doFault, w.doCache, w.doController, w.doNode, w.doSet, w.doObject} {
		if try(s) {
			return
		}
	}
}

func (w *World) doFault(s Step) bool {
	switch s.Kind {
	case Conflict, Throttled, ServerError, TimeoutBefore, TimeoutAfter, TimeoutLate, SlowWrite:
		w.faults = append(w.faults, s.Kind)
	case Refuse:
		w.refusing = !w.refusing
		w.stats.Faults[Refuse]++
	case Pass:
		w.pass([]time.Duration{time.Second, 5 * time.Second, 40 * time.Second, 5 * time.Minute}[s.A%4])
	case ClockJump:
		w.jump([]time.Duration{-10 * time.Minute, -20 * time.Second, 20 * time.Second, 10 * time.Minute}[s.A%4])
		w.stats.Faults[ClockJump]++
	default:
		return false
	}
	return true
}

// jump lets the clock of the server and the nodes jump.
func (w *World) jump(by time.Duration) {
	w.server.offset += by
	w.jumped = max(w.jumped, w.server.offset.Abs())
}

func (w *World) doCache(s Step) bool {
	switch s.Kind {
	case Stall, Flow, Deliver, Relist:
	default:
		return false
	}
	if len(w.running) == 0 {
		return true
	}
	i := w.running[s.B%len(w.running)]
	k := kinds()[s.A%4]
	switch s.Kind {
	case Stall:
		i.caches[k].stalled = true
		w.stats.Faults[Stall]++
	case Flow:
		i.caches[k].stalled = false
	case Deliver:
		for range 1 + s.B/4 {
			w.deliver(i, k)
			w.collect()
		}
	default:
		if w.relist(i, k) {
			w.pass(relistTime)
		}
	}
	return true
}

// relistTime is how long it takes at most until a cache lists anew.
const relistTime = 65 * time.Second

func (w *World) doController(s Step) bool {
	switch s.Kind {
	case Crash, CrashBefore, CrashAfter, Start, Retire:
	default:
		return false
	}
	if s.Kind == Start {
		if len(w.running) < 2 {
			w.start(s.A % 4 * (s.B % 3))
			w.stats.Overlaps += len(w.running) - 1
		}
		return true
	}
	if len(w.running) == 0 {
		return true
	}
	i := w.running[s.B%len(w.running)]
	switch s.Kind {
	case Crash:
		w.kill(i)
	case CrashBefore:
		i.crash = crashBefore
	case CrashAfter:
		i.crash = crashAfter
	default:
		w.retire(i)
	}
	return true
}

func (w *World) doNode(s Step) bool {
	switch s.Kind {
	case Work:
		w.work()
	case PodFails, PodEnds, PodUnready, PodHangs, PodNever:
		w.happen(s.Kind, w.choose(s.A))
		w.stats.Faults[s.Kind]++
	case NodeLost:
		w.nodes.lost[nodeName(s.A)] = true
		w.stats.Faults[NodeLost]++
	case NodeBack:
		delete(w.nodes.lost, nodeName(s.A))
	case NodeDrained:
		w.drain(nodeName(s.A))
	default:
		return false
	}
	return true
}

// choose is one of the pods; nil if there are none.
func (w *World) choose(n int) *corev1.Pod {
	pods := w.server.pods()
	if len(pods) == 0 {
		return nil
	}
	return pods[n%len(pods)]
}

// createSet creates the set as it was in the beginning.
func (w *World) createSet() {
	c := w.config
	set := sim.NewSet(setName, int32(c.Replicas), func(s *appsv1.StatefulSet) {
		s.Spec.MinReadySeconds = int32(c.MinReady)
		s.Spec.VolumeClaimTemplates = s.Spec.VolumeClaimTemplates[:c.Claims]
		s.Spec.RevisionHistoryLimit = new(int32(2))
		if c.Parallel {
			s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		}
	})
	if _, err := w.server.create(plan.KindSet, set); err == nil {
		w.say("the set is created")
	}
}

// edit changes the set's spec.
func (w *World) edit(how func(*appsv1.StatefulSetSpec)) {
	change(w.server, plan.KindSet, setName, func(s *appsv1.StatefulSet) {
		how(&s.Spec)
		s.Generation++
	})
}

func (w *World) doSet(s Step) bool {
	switch s.Kind {
	case Scale:
		w.edit(func(spec *appsv1.StatefulSetSpec) { spec.Replicas = new(int32(s.A % 6)) })
	case Image:
		image := []string{"one", "two", "three", badImage}[s.A%4]
		w.edit(func(spec *appsv1.StatefulSetSpec) { spec.Template.Spec.Containers[0].Image = image })
	case Strategy:
		w.edit(func(spec *appsv1.StatefulSetSpec) { spec.UpdateStrategy = strategy(s) })
	case Retention:
		w.retain(s)
	case HistoryLimit:
		w.edit(func(spec *appsv1.StatefulSetSpec) { spec.RevisionHistoryLimit = new(int32(s.A % 3)) })
	case Ordinals:
		w.edit(func(spec *appsv1.StatefulSetSpec) {
			spec.Ordinals = nil
			if start := s.A % 3; start > 0 {
				spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(start)}
			}
		})
	case CreateSet:
		w.createSet()
	case DeleteSet:
		w.deleteSet(s.A)
	default:
		return false
	}
	return true
}

func strategy(s Step) appsv1.StatefulSetUpdateStrategy {
	if s.A == 0 {
		return appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	}
	u := appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType}
	if s.A == 1 {
		return u
	}
	u.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{
		Partition:      new(int32([]int{0, 0, 1, 2}[s.A%4])),
		MaxUnavailable: []*intstr.IntOrString{nil, new(intstr.FromInt32(1)), new(intstr.FromInt32(2)), new(intstr.FromString("50%"))}[s.B%4],
	}
	return u
}

func (w *World) retain(s Step) {
	policies := []appsv1.PersistentVolumeClaimRetentionPolicyType{"Retain", "Delete"}
	w.right.deletes = w.right.deletes || s.A%2 == 1 || s.B%2 == 1
	w.edit(func(spec *appsv1.StatefulSetSpec) {
		spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: policies[s.A%2], WhenDeleted: policies[s.B%2],
		}
	})
}

// deleteSet deletes the set in one of the three ways.
func (w *World) deleteSet(how int) {
	set := w.server.set()
	if set == nil {
		return
	}
	if set.DeletionTimestamp == nil && how%3 > 0 {
		finalizer := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}[how%3-1]
		change(w.server, plan.KindSet, setName, func(s *appsv1.StatefulSet) { s.Finalizers = []string{finalizer} })
	}
	w.remove(plan.KindSet, setName)
}

// orphanAll takes all that a set owns from it.
func (w *World) orphanAll(uid types.UID) {
	for _, k := range []plan.Kind{plan.KindPod, plan.KindClaim, plan.KindRevision} {
		for _, o := range w.server.all(k) {
			if isOwned(o, uid) {
				disown(w.server, k, o.GetName(), uid)
			}
		}
	}
}

func disown(s *server, k plan.Kind, name string, uid types.UID) {
	change(s, k, name, func(o object) {
		o.SetOwnerReferences(slices.DeleteFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid }))
	})
}

func isOwned(o object, uid types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
}

func (w *World) doObject(s Step) bool {
	switch s.Kind {
	case Stranger, BarePod:
		w.intrude(s)
		return true
	case DeleteClaim:
		w.deleteClaim(s.A)
		return true
	case DeleteRevision, OrphanRevision:
		w.meddle(s)
		return true
	default:
	}
	pod := w.choose(s.A)
	if pod == nil {
		return true
	}
	switch s.Kind {
	case DeletePod:
		w.server.end(pod.DeepCopy(), nil)
	case ForcePod:
		w.force(pod)
	case OrphanPod:
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.UID != strangerUID {
			disown(w.server, plan.KindPod, pod.Name, owner.UID)
		}
	case Relabel, StripPod, HoldPod:
		w.server.changePod(pod.Name, func(p *corev1.Pod) { edit(s.Kind, p) })
	default:
		return false
	}
	return true
}

// edit changes a pod as people do.
func edit(kind Kind, p *corev1.Pod) {
	switch kind {
	case Relabel:
		if p.Labels["app"] == setName {
			p.Labels["app"] = "lab"
		} else {
			p.Labels["app"] = setName
		}
	case StripPod:
		delete(p.Labels, appsv1.StatefulSetPodNameLabel)
		delete(p.Labels, appsv1.PodIndexLabel)
	default:
		if len(p.Finalizers) > 0 {
			p.Finalizers = nil
		} else if p.DeletionTimestamp == nil {
			p.Finalizers = []string{holdFinalizer}
		}
	}
}

// intrude creates a pod under a name of the set.
func (w *World) intrude(s Step) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: ordinal.PodName(setName, s.A%5), Labels: map[string]string{"app": setName}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "one"}}},
	}
	if s.Kind == Stranger {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "other", UID: strangerUID, Controller: new(true),
		}}
	}
	if _, err := w.server.create(plan.KindPod, pod); err == nil {
		w.say("%s is created by somebody else", pod.Name)
	}
}

func (w *World) deleteClaim(n int) {
	claims := w.server.all(plan.KindClaim)
	if len(claims) == 0 {
		return
	}
	c := claims[n%len(claims)]
	w.right.allow(c.GetUID())
	w.remove(plan.KindClaim, c.GetName())
}

func (r *right) allow(uid types.UID) {
	if r.deleted == nil {
		r.deleted = map[types.UID]bool{}
	}
	r.deleted[uid] = true
}

// meddle deletes a revision, or takes it from its owner.
func (w *World) meddle(s Step) {
	all := w.server.all(plan.KindRevision)
	if len(all) == 0 {
		return
	}
	r := all[s.A%len(all)]
	if s.Kind == DeleteRevision {
		w.remove(plan.KindRevision, r.GetName())
		return
	}
	for _, ref := range r.GetOwnerReferences() {
		disown(w.server, plan.KindRevision, r.GetName(), ref.UID)
	}
}

func image(p *corev1.Pod) string {
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return p.Spec.Containers[0].Image
}
