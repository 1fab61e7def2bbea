// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// Chooser chooses one of n: a number from 0 to n-1. A world is drawn by many choices, of which 0 is the plainest.
type Chooser func(n int) int

// Limits are what Draw leaves out.
type Limits struct {
	// Tame leaves out what only happens when somebody else meddles: strangers under the set's names, odd owners, lost labels.
	Tame bool
}

// Draw makes a snapshot of a set in any state that the API server may show.
func Draw(choose Chooser, l Limits) plan.Snapshot {
	d := &drawer{choose: choose, limits: l, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	set := d.set()
	d.revisions(set)
	d.status(set)
	d.pods(set)
	d.claims(set)
	return plan.Snapshot{Now: d.now, Set: set, Revisions: d.history, Pods: d.members, Claims: d.volumes}
}

// drawer draws one world.
type drawer struct {
	choose  Chooser
	limits  Limits
	now     time.Time
	history []*appsv1.ControllerRevision
	members []*corev1.Pod
	volumes []*corev1.PersistentVolumeClaim
}

// one chooses one of the values.
func one[T any](d *drawer, values ...T) T {
	return values[d.choose(len(values))]
}

// rarely is true once in n times.
func (d *drawer) rarely(n int) bool {
	return d.choose(n) == n-1
}

var images = []string{"one", "two", "three", "four"}

func (d *drawer) set() *appsv1.StatefulSet {
	set := NewSet("web", int32(d.choose(6)))
	set.UID, set.ResourceVersion, set.Generation = "set", "100", int64(1+d.choose(3))
	spec := &set.Spec
	spec.PodManagementPolicy = one(d, appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)
	spec.MinReadySeconds = one(d, int32(0), 10)
	spec.RevisionHistoryLimit = new(one(d, int32(10), 0, 1, 2, -1))
	spec.Template.Spec.Containers[0].Image = one(d, images...)
	if start := d.choose(3); start > 0 {
		spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(start)}
	}
	spec.VolumeClaimTemplates = nil
	for _, name := range []string{"data", "logs"}[:d.choose(3)] {
		template := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if d.rarely(3) {
			template.Labels = map[string]string{"tier": name, "app": "replaced"}
		}
		spec.VolumeClaimTemplates = append(spec.VolumeClaimTemplates, template)
	}
	spec.UpdateStrategy = d.strategy()
	const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenScaled: one(d, retain, remove), WhenDeleted: one(d, retain, remove),
	}
	if d.rarely(20) {
		set.DeletionTimestamp = &metav1.Time{Time: d.now}
	}
	return set
}

func (d *drawer) strategy() appsv1.StatefulSetUpdateStrategy {
	s := appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType}
	switch d.choose(6) {
	case 4:
		s.Type = appsv1.OnDeleteStatefulSetStrategyType
	case 5:
		// A RollingUpdate without its block.
	default:
		s.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(one(d, int32(0), 1, 2, 9))}
		s.RollingUpdate.MaxUnavailable = one(d, nil, new(intstr.FromInt32(1)), new(intstr.FromInt32(2)), new(intstr.FromInt32(9)),
			new(intstr.FromString("50%")), new(intstr.FromString("1%")))
	}
	return s
}

// revisions draws the history: some of the templates, in any order.
func (d *drawer) revisions(set *appsv1.StatefulSet) {
	number := int64(0)
	for range d.choose(5) {
		past := set.DeepCopy()
		past.Spec.Template.Spec.Containers[0].Image = one(d, images...)
		number += int64(1 + d.choose(2))
		r, err := revision.New(past, number, 0)
		if err != nil || d.has(r.Name) {
			continue
		}
		r.UID, r.ResourceVersion = types.UID("uid-"+r.Name), strconv.FormatInt(number, 10)
		r.CreationTimestamp = metav1.NewTime(d.now.Add(time.Duration(number-100) * time.Minute))
		if !d.limits.Tame && d.rarely(6) {
			r.OwnerReferences = nil
		}
		d.history = append(d.history, r)
	}
}

func (d *drawer) has(name string) bool {
	for _, r := range d.history {
		if r.Name == name {
			return true
		}
	}
	return false
}

// revisionName is one of the history, or, rarely, one that is gone.
func (d *drawer) revisionName() string {
	if len(d.history) == 0 || d.rarely(10) {
		return one(d, "", "web-gone")
	}
	return d.history[d.choose(len(d.history))].Name
}

func (d *drawer) status(set *appsv1.StatefulSet) {
	s := &set.Status
	s.ObservedGeneration = set.Generation - int64(d.choose(2))
	s.CurrentRevision, s.UpdateRevision = d.revisionName(), d.revisionName()
	s.Replicas, s.ReadyReplicas = int32(d.choose(6)), int32(d.choose(6))
	s.CurrentReplicas, s.UpdatedReplicas = int32(d.choose(6)), int32(d.choose(6))
	if d.rarely(2) {
		s.CollisionCount = new(int32)
	}
}

func (d *drawer) pods(set *appsv1.StatefulSet) {
	span := ordinal.RangeOf(set)
	for n := range span.End() + 3 {
		if d.rarely(4) || (n >= span.End() && d.rarely(2)) {
			continue
		}
		d.members = append(d.members, d.member(set, n))
	}
	if !d.limits.Tame {
		d.oddPods(set)
	}
}

// member draws the pod of an ordinal.
func (d *drawer) member(set *appsv1.StatefulSet, n int) *corev1.Pod {
	p := d.pod(set, ordinal.PodName(set.Name, n))
	p.Labels[appsv1.StatefulSetPodNameLabel], p.Labels[appsv1.PodIndexLabel] = p.Name, strconv.Itoa(n)
	if !d.limits.Tame && d.rarely(8) {
		delete(p.Labels, one(d, appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel))
	}
	if d.limits.Tame || !d.rarely(30) {
		p.Spec.Volumes = claim.Volumes(set, nil, n)
	}
	return p
}

// oddPods draws pods whose names are almost those of the set.
func (d *drawer) oddPods(set *appsv1.StatefulSet) {
	for _, odd := range []string{"web-01", "web", fmt.Sprintf("web-%d", math.MaxInt32+1), "web-a"} {
		if d.rarely(40) {
			d.members = append(d.members, d.pod(set, odd))
		}
	}
}

func (d *drawer) pod(set *appsv1.StatefulSet, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:            name,
		Namespace:       set.Namespace,
		UID:             types.UID("uid-" + name),
		ResourceVersion: strconv.Itoa(200 + len(d.members)),
		Labels:          map[string]string{"app": "web", appsv1.StatefulSetRevisionLabel: d.revisionName()},
		OwnerReferences: []metav1.OwnerReference{revision.Owner(set)},
	}}
	d.state(p)
	if d.limits.Tame {
		return p
	}
	switch {
	case d.rarely(10):
		p.OwnerReferences = nil
	case d.rarely(20):
		p.OwnerReferences[0].UID, p.OwnerReferences[0].Name = "other", "other"
	}
	if d.rarely(20) {
		p.Labels["app"] = "lab"
	}
	return p
}

// state draws the phase of a pod, and for how long it has been ready.
func (d *drawer) state(p *corev1.Pod) {
	condition := func(status corev1.ConditionStatus, ago time.Duration) {
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(d.now.Add(-ago))},
		}
	}
	p.Status.Phase = corev1.PodRunning
	switch d.choose(10) {
	case 5:
		condition(corev1.ConditionTrue, 3*time.Second)
	case 6:
		condition(corev1.ConditionFalse, time.Hour)
	case 7:
		p.Status.Phase = corev1.PodPending
	case 8:
		p.Status.Phase = corev1.PodFailed
	case 9:
		p.Status.Phase = corev1.PodSucceeded
	default:
		condition(corev1.ConditionTrue, time.Hour)
	}
	if d.rarely(8) {
		p.DeletionTimestamp = &metav1.Time{Time: d.now}
	}
}

func (d *drawer) claims(set *appsv1.StatefulSet) {
	for n := range ordinal.RangeOf(set).End() + 3 {
		for t := range claim.Templates(set) {
			if d.rarely(5) {
				continue
			}
			c := claim.New(set, t, n)
			c.UID, c.ResourceVersion = types.UID("uid-"+c.Name), strconv.Itoa(300+len(d.volumes))
			if d.rarely(10) {
				c.DeletionTimestamp = &metav1.Time{Time: d.now}
			}
			c.OwnerReferences = d.owners(set, n)
			d.volumes = append(d.volumes, c)
		}
	}
}

func (d *drawer) owners(set *appsv1.StatefulSet, n int) []metav1.OwnerReference {
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: ordinal.PodName(set.Name, n)}
	pod.UID, pod.Controller, pod.BlockOwnerDeletion = types.UID("uid-"+pod.Name), new(true), new(true)
	owner := revision.Owner(set)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"}
	old := owner
	old.UID = "former"
	oldPod := pod
	oldPod.UID = "former-pod"
	kinds := 3
	if !d.limits.Tame {
		kinds = 10
	}
	switch d.choose(kinds) {
	case 1:
		return []metav1.OwnerReference{owner}
	case 2:
		return []metav1.OwnerReference{pod}
	case 3:
		return []metav1.OwnerReference{owner, other}
	case 4:
		owner.Controller = nil
		return []metav1.OwnerReference{owner}
	case 5:
		pod.Controller = nil
		return []metav1.OwnerReference{other, pod}
	case 6:
		return []metav1.OwnerReference{old}
	case 7:
		return []metav1.OwnerReference{oldPod}
	case 8:
		other.Controller = new(true)
		return []metav1.OwnerReference{other}
	case 9:
		owner.Controller, other.Controller = nil, new(true)
		return []metav1.OwnerReference{owner, other}
	default:
		return nil
	}
}

// From is a world that begins with a snapshot, and in which pods that do not run yet will.
func From(s plan.Snapshot) *World {
	w := Live(s)
	for _, p := range w.Pods {
		if p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodPending || p.Status.Phase == corev1.PodRunning) {
			w.due[p.UID] = w.Now.Add(StartTime)
		}
	}
	return w
}

// Live is a world that begins with a snapshot, and in which pods stay as they are until they are replaced. Those that are
// going will be gone.
func Live(s plan.Snapshot) *World {
	w := New(s.Set)
	w.Now, w.Options, w.Rivals = s.Now, s.Options, s.Rivals
	w.version = 1000
	w.Set = s.Set.DeepCopy()
	maps.Copy(w.unstuck, s.Unstuck)
	maps.Copy(w.evictAfter, s.EvictAfter)
	for _, p := range s.Pods {
		w.Pods[p.Name] = p.DeepCopy()
		if p.DeletionTimestamp != nil {
			w.due[p.UID] = w.Now.Add(StopTime)
		}
	}
	for _, c := range s.Claims {
		w.Claims[c.Name] = c.DeepCopy()
	}
	for _, r := range s.Revisions {
		w.Revisions[r.Name] = r.DeepCopy()
	}
	for _, p := range s.Policies {
		w.Policies[p.Name] = p.DeepCopy()
	}
	return w
}
