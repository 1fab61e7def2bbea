// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// nodeCount is how many nodes there are.
const nodeCount = 3

// fate is what a pod does other than it should.
type fate int

const (
	good fate = iota
	neverStarts
	hangs
)

// process is what runs on a node for a pod, whether or not the API server still knows the pod.
type process struct {
	name, node string
}

// nodes are the kubelets, and the processes of the pods.
type nodes struct {
	lost      map[string]bool
	processes map[types.UID]process
	fates     map[types.UID]fate
	// forced are the pods that somebody other than a controller took from the API server while they ran.
	forced map[types.UID]bool
}

func newNodes() *nodes {
	return &nodes{
		lost: map[string]bool{}, processes: map[types.UID]process{}, fates: map[types.UID]fate{}, forced: map[types.UID]bool{},
	}
}

func nodeName(n int) string { return fmt.Sprintf("node-%d", n%nodeCount) }

// work lets each kubelet bring each of its pods one stage on.
func (w *World) work() {
	for n, pod := range w.server.pods() {
		switch {
		case pod.Spec.NodeName == "":
			w.schedule(pod, n)
		case w.nodes.lost[pod.Spec.NodeName]:
		case podstate.IsTerminating(pod):
			w.finish(pod)
		case !podstate.IsFinished(pod):
			w.advance(pod)
		}
	}
	for uid, p := range w.nodes.processes {
		if pod := w.server.pod(p.name); !w.nodes.lost[p.node] && (pod == nil || pod.UID != uid) {
			delete(w.nodes.processes, uid)
		}
	}
	w.protect()
	w.collectGarbage()
}

// schedule gives a pod a node once its claims are there.
func (w *World) schedule(pod *corev1.Pod, n int) {
	for i := range pod.Spec.Volumes {
		v := pod.Spec.Volumes[i].PersistentVolumeClaim
		if v == nil {
			continue
		}
		if c := w.server.get(plan.KindClaim, v.ClaimName); c == nil || c.GetDeletionTimestamp() != nil {
			return
		}
	}
	for try := range nodeCount {
		if node := nodeName(n + try); !w.nodes.lost[node] {
			w.server.changePod(pod.Name, func(p *corev1.Pod) { p.Spec.NodeName = node })
			return
		}
	}
}

// advance starts a pod's process, and then lets it become ready.
func (w *World) advance(pod *corev1.Pod) {
	if w.nodes.fates[pod.UID] == neverStarts || (!w.calm && image(pod) == badImage) {
		return
	}
	if _, runs := w.nodes.processes[pod.UID]; !runs {
		w.nodes.processes[pod.UID] = process{pod.Name, pod.Spec.NodeName}
		w.server.changePod(pod.Name, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			setReady(p, corev1.ConditionFalse, w.server.now())
		})
		return
	}
	if !podstate.IsReady(pod) {
		w.server.changePod(pod.Name, func(p *corev1.Pod) { setReady(p, corev1.ConditionTrue, w.server.now()) })
	}
}

// finish ends the process of a pod that is asked to go, and lets the API server forget the pod.
func (w *World) finish(pod *corev1.Pod) {
	if w.nodes.fates[pod.UID] == hangs {
		return
	}
	delete(w.nodes.processes, pod.UID)
	if *pod.DeletionGracePeriodSeconds == 0 {
		return
	}
	w.server.end(pod.DeepCopy(), new(int64(0)))
}

func setReady(p *corev1.Pod, status corev1.ConditionStatus, now metav1.Time) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: now}}
}

// happen lets something happen to a pod whose node is there.
func (w *World) happen(kind Kind, pod *corev1.Pod) {
	if pod == nil || w.nodes.lost[pod.Spec.NodeName] || podstate.IsFinished(pod) {
		return
	}
	_, runs := w.nodes.processes[pod.UID]
	switch kind {
	case PodNever:
		w.nodes.fates[pod.UID] = neverStarts
		return
	case PodHangs:
		w.nodes.fates[pod.UID] = hangs
		return
	default:
	}
	if !runs {
		return
	}
	w.server.changePod(pod.Name, func(p *corev1.Pod) {
		switch kind {
		case PodFails:
			p.Status.Phase = corev1.PodFailed
			delete(w.nodes.processes, pod.UID)
		case PodEnds:
			p.Status.Phase = corev1.PodSucceeded
			delete(w.nodes.processes, pod.UID)
		default:
		}
		setReady(p, corev1.ConditionFalse, w.server.now())
	})
}

// drain deletes the pods of a lost node, as Kubernetes does after a while.
func (w *World) drain(node string) {
	if !w.nodes.lost[node] {
		return
	}
	for _, pod := range w.server.pods() {
		if pod.Spec.NodeName == node {
			w.server.end(pod.DeepCopy(), nil)
		}
	}
}

// force takes a pod from the API server at once, whether or not it runs.
func (w *World) force(pod *corev1.Pod) {
	if pod == nil {
		return
	}
	w.nodes.forced[pod.UID] = true
	w.server.end(pod.DeepCopy(), new(int64(0)))
}

// protect lets claims go that are deleted and that no pod uses.
func (w *World) protect() {
	used := map[string]bool{}
	for _, pod := range w.server.pods() {
		if pod.Spec.NodeName == "" {
			continue
		}
		for i := range pod.Spec.Volumes {
			if v := pod.Spec.Volumes[i].PersistentVolumeClaim; v != nil {
				used[v.ClaimName] = true
			}
		}
	}
	for _, c := range w.server.all(plan.KindClaim) {
		if c.GetDeletionTimestamp() != nil && !used[c.GetName()] {
			change(w.server, plan.KindClaim, c.GetName(), func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
		}
	}
}

// collectGarbage does what the garbage collector does: it deletes what has lost all its owners, and ends deletions that wait for
// dependents.
func (w *World) collectGarbage() {
	w.endDeletion()
	for _, k := range []plan.Kind{plan.KindPod, plan.KindClaim, plan.KindRevision} {
		for _, o := range w.server.all(k) {
			refs := o.GetOwnerReferences()
			isLeft := len(refs) > 0 && !slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool {
				return r.UID == strangerUID || w.server.owns(r.UID)
			})
			if isLeft && o.GetDeletionTimestamp() == nil {
				w.say("garbage collector deletes %s %s", k, o.GetName())
				w.remove(k, o.GetName())
			}
		}
	}
}

// endDeletion lets a set go that waits for its dependents, or for them to be orphaned.
func (w *World) endDeletion() {
	set := w.server.set()
	if set == nil || set.DeletionTimestamp == nil {
		return
	}
	if slices.Contains(set.Finalizers, metav1.FinalizerOrphanDependents) {
		w.orphanAll(set.UID)
	} else if w.removeDependents(set.UID) {
		return
	}
	change(w.server, plan.KindSet, set.Name, func(s *appsv1.StatefulSet) { s.Finalizers = nil })
}

// removeDependents deletes what a set owns that waits for it; false if there is nothing left.
func (w *World) removeDependents(uid types.UID) bool {
	found := false
	for _, k := range []plan.Kind{plan.KindPod, plan.KindRevision} {
		for _, o := range w.server.all(k) {
			if !isOwned(o, uid) {
				continue
			}
			found = true
			if o.GetDeletionTimestamp() == nil {
				w.remove(k, o.GetName())
			}
		}
	}
	return found
}

// remove deletes an object in the background.
func (w *World) remove(k plan.Kind, name string) {
	if err := w.server.remove(k, name, metav1.DeleteOptions{}); err != nil {
		w.breaks("the model is sound", err.Error())
	}
}
