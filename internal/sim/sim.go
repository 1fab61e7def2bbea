// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sim is a model of a world with one StatefulSet: the objects that an API server would hold, a kubelet that starts
// and stops pods, and a garbage collector. Plans are applied to it until nothing is left to do. Time is a value, so that
// the same world always goes the same way.
package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// Fate is what becomes of a pod once it is started.
type Fate int

const (
	// Good means that the pod becomes ready.
	Good Fate = iota
	// Stuck means that the pod never runs.
	Stuck
	// Unready means that the pod runs and never is ready.
	Unready
	// Failing means that the pod fails.
	Failing
)

// Times of the kubelet, and of the controller.
const (
	StartTime = 2 * time.Second
	StopTime  = time.Second
	// EvictDelay is how long the controller waits after an eviction was refused.
	EvictDelay = 2 * time.Second
)

// ErrUnsettled means that a world did not come to rest.
var ErrUnsettled = errors.New("the world does not settle")

// World is all that there is.
type World struct {
	Now       time.Time
	Set       *appsv1.StatefulSet
	Pods      map[string]*corev1.Pod
	Claims    map[string]*corev1.PersistentVolumeClaim
	Revisions map[string]*appsv1.ControllerRevision
	// Policies are those that name the set.
	Policies map[string]*v1alpha1.StatefulSetPolicy
	// Rivals are other sets whose claims bear the same names. They do nothing.
	Rivals  []claim.Rival
	Options plan.Options
	// Fate tells what becomes of a pod; nil for Good.
	Fate func(*corev1.Pod) Fate
	// Refuse lets a write fail before it has any effect; nil for none.
	Refuse func(plan.Action) error
	// Blocked tells if a PodDisruptionBudget forbids an eviction; nil for never.
	Blocked func(plan.DeletePod) bool
	// Observe is told of each plan with its outcomes; nil for nobody.
	Observe func(plan.Plan, []plan.Outcome)

	version int
	// gone means that the set has been deleted, so that no controller works on it.
	gone bool
	// unstuck and evictAfter are what the controller remembers.
	unstuck    map[string]bool
	evictAfter map[string]time.Time
	// due is when the kubelet does something to a pod.
	due map[types.UID]time.Time
}

// New is a world with nothing but a set.
func New(set *appsv1.StatefulSet) *World {
	w := &World{
		Now:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Set:       set.DeepCopy(),
		Pods:      map[string]*corev1.Pod{},
		Claims:    map[string]*corev1.PersistentVolumeClaim{},
		Revisions: map[string]*appsv1.ControllerRevision{},
		Policies:  map[string]*v1alpha1.StatefulSetPolicy{},

		unstuck:    map[string]bool{},
		evictAfter: map[string]time.Time{},
		due:        map[types.UID]time.Time{},
	}
	w.Set.Generation = 1
	w.stamp(w.Set)
	return w
}

// Edit changes the set as its owner does. The controller then forgets what it remembers of its pods.
func (w *World) Edit(change func(*appsv1.StatefulSet)) {
	set := w.Set.DeepCopy()
	change(set)
	set.Generation++
	w.version++
	set.ResourceVersion = strconv.Itoa(w.version)
	w.Set = set
	clear(w.unstuck)
	clear(w.evictAfter)
}

// AddPolicy puts a policy into the world, in the place of one of the same name.
func (w *World) AddPolicy(p *v1alpha1.StatefulSetPolicy) {
	old := w.Policies[p.Name]
	p = p.DeepCopy()
	w.stamp(p)
	p.Generation = 1
	if old != nil {
		p.UID, p.CreationTimestamp, p.Generation = old.UID, old.CreationTimestamp, old.Generation+1
		p.Status = *old.Status.DeepCopy()
	}
	w.Policies[p.Name] = p
}

// Snapshot is the world as the controller sees it.
func (w *World) Snapshot() plan.Snapshot {
	return plan.Snapshot{
		Now:        w.Now,
		Set:        w.Set,
		Revisions:  w.revisions(),
		Pods:       slices.Collect(maps.Values(w.Pods)),
		Claims:     slices.Collect(maps.Values(w.Claims)),
		EvictAfter: w.evictAfter,
		Unstuck:    w.unstuck,
		Policies:   slices.Collect(maps.Values(w.Policies)),
		Rivals:     w.Rivals,
		Options:    w.Options,
	}
}

// revisions are those that the set owns or may adopt.
func (w *World) revisions() []*appsv1.ControllerRevision {
	selector, err := metav1.LabelSelectorAsSelector(w.Set.Spec.Selector)
	if err != nil {
		return nil
	}
	var own []*appsv1.ControllerRevision
	for _, r := range w.Revisions {
		owner := metav1.GetControllerOfNoCopy(r)
		if (owner == nil || owner.UID == w.Set.UID) && selector.Matches(labels.Set(r.Labels)) {
			own = append(own, r)
		}
	}
	return own
}

// Sync lets the controller work once. It is false when that changed nothing.
func (w *World) Sync() bool {
	if w.gone {
		return false
	}
	s := w.Snapshot()
	p := plan.Make(s)
	outcomes := w.Apply(p)
	w.remember(outcomes)
	next, changed := status.Settle(s, p, outcomes)
	if changed {
		set := w.Set.DeepCopy()
		set.Status = next
		w.version++
		set.ResourceVersion = strconv.Itoa(w.version)
		w.Set = set
	}
	changed = w.settlePolicies(s, p, outcomes) || changed
	if w.Observe != nil {
		w.Observe(p, outcomes)
	}
	return changed || len(outcomes) > 0
}

// remember takes note of what the controller keeps in mind from one plan to the next.
func (w *World) remember(outcomes []plan.Outcome) {
	for _, o := range outcomes {
		switch a := o.Action.(type) {
		case plan.CreatePod:
			if o.Result == plan.ResultDone {
				delete(w.unstuck, a.Pod.Name)
			}
		case plan.DeletePod:
			delete(w.evictAfter, a.Pod.Name)
			switch {
			case o.Result == plan.ResultBlocked:
				w.evictAfter[a.Pod.Name] = w.Now.Add(EvictDelay)
			case o.Result == plan.ResultDone && a.Reason == plan.ReasonStuck:
				w.unstuck[a.Pod.Name] = true
			}
		default:
			// Of the others nothing has to be kept.
		}
	}
}

// settlePolicies writes the status of policies; false when that changes nothing.
func (w *World) settlePolicies(s plan.Snapshot, p plan.Plan, outcomes []plan.Outcome) bool {
	next := status.Policies(s, p, outcomes)
	for _, n := range next {
		policy := n.Policy.DeepCopy()
		policy.Status = n.Status
		w.version++
		policy.ResourceVersion = strconv.Itoa(w.version)
		w.Policies[policy.Name] = policy
	}
	return len(next) > 0
}

// Settle lets controller and kubelet work until nothing changes any more.
func (w *World) Settle() error {
	for range 10_000 {
		if w.Sync() {
			continue
		}
		if !w.Advance() {
			return nil
		}
	}
	return fmt.Errorf("after 10000 steps: %w", ErrUnsettled)
}

// Advance lets time go on to the next moment at which something happens by itself; false when nothing ever does.
func (w *World) Advance() bool {
	var next time.Time
	if !w.gone {
		next = plan.Make(w.Snapshot()).Requeue
	}
	for _, at := range w.due {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if next.IsZero() {
		return w.Collect()
	}
	if next.After(w.Now) {
		w.Now = next
	}
	w.Kubelet()
	w.Collect()
	return true
}

// Kubelet does what is due.
func (w *World) Kubelet() {
	for _, name := range slices.Sorted(maps.Keys(w.Pods)) {
		p := w.Pods[name]
		at, ok := w.due[p.UID]
		if !ok || at.After(w.Now) {
			continue
		}
		delete(w.due, p.UID)
		if podstate.IsTerminating(p) {
			delete(w.Pods, name)
			continue
		}
		w.change(p, func(p *corev1.Pod) { w.start(p) })
	}
	live := map[types.UID]bool{}
	for _, p := range w.Pods {
		live[p.UID] = true
	}
	maps.DeleteFunc(w.due, func(uid types.UID, _ time.Time) bool { return !live[uid] })
}

func (w *World) start(p *corev1.Pod) {
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.Now)}
	fate := Good
	if w.Fate != nil {
		fate = w.Fate(p)
	}
	switch fate {
	case Good:
		p.Status.Phase, ready.Status = corev1.PodRunning, corev1.ConditionTrue
	case Unready:
		p.Status.Phase = corev1.PodRunning
	case Failing:
		p.Status.Phase = corev1.PodFailed
	case Stuck:
		return
	}
	p.Status.Conditions = []corev1.PodCondition{ready}
}

// Collect deletes the claims that have lost their owners, and those that go as soon as no pod uses them; false when there are
// none.
func (w *World) Collect() bool {
	before := len(w.Claims)
	live := map[types.UID]bool{w.Set.UID: !w.gone}
	for _, p := range w.Pods {
		live[p.UID] = true
	}
	if w.gone {
		w.collectMembers()
	}
	maps.DeleteFunc(w.Claims, func(_ string, c *corev1.PersistentVolumeClaim) bool {
		owned := slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool {
			// Of what this world does not hold, it knows nothing.
			return live[r.UID] || (r.Kind != "Pod" && r.Kind != string(plan.KindSet))
		})
		if isProtected(c) && c.DeletionTimestamp != nil {
			return !w.isUsed(c.Name)
		}
		return len(c.OwnerReferences) > 0 && !owned && !(w.gone && w.isUsed(c.Name))
	})
	return len(w.Claims) < before
}

// Delete deletes the set, and lets the garbage collector take what it owns.
func (w *World) Delete() {
	w.gone = true
	w.Collect()
}

// collectMembers deletes the pods and revisions of a set that is gone.
func (w *World) collectMembers() {
	isOwned := func(o metav1.Object) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == w.Set.UID })
	}
	for _, name := range slices.Sorted(maps.Keys(w.Pods)) {
		if isOwned(w.Pods[name]) {
			w.Kill(name)
		}
	}
	maps.DeleteFunc(w.Revisions, func(_ string, r *appsv1.ControllerRevision) bool { return isOwned(r) })
}

// isProtected tells if nothing but its use keeps a claim that is being deleted.
func isProtected(c *corev1.PersistentVolumeClaim) bool {
	return len(c.Finalizers) == 1 && c.Finalizers[0] == "kubernetes.io/pvc-protection"
}

// isUsed tells if a pod mounts the claim, which keeps the claim until the pod is gone.
func (w *World) isUsed(claim string) bool {
	for _, p := range w.Pods {
		for i := range p.Spec.Volumes {
			if v := p.Spec.Volumes[i].PersistentVolumeClaim; v != nil && v.ClaimName == claim {
				return true
			}
		}
	}
	return false
}

// Change replaces a pod by a changed one.
func (w *World) Change(name string, change func(*corev1.Pod)) {
	if p := w.Pods[name]; p != nil {
		w.change(p, change)
	}
}

func (w *World) change(p *corev1.Pod, change func(*corev1.Pod)) {
	p = p.DeepCopy()
	change(p)
	w.version++
	p.ResourceVersion = strconv.Itoa(w.version)
	w.Pods[p.Name] = p
}

// Kill asks a pod to go, as a user does.
func (w *World) Kill(name string) {
	w.Change(name, func(p *corev1.Pod) {
		if p.DeletionTimestamp == nil {
			p.DeletionTimestamp = &metav1.Time{Time: w.Now.Add(StopTime)}
			w.due[p.UID] = w.Now.Add(StopTime)
		}
	})
}

// AddPod puts a pod into the world, as somebody else does.
func (w *World) AddPod(p *corev1.Pod) {
	p = p.DeepCopy()
	w.stamp(p)
	if p.Status.Phase == "" {
		p.Status.Phase = corev1.PodPending
		w.due[p.UID] = w.Now.Add(StartTime)
	}
	w.Pods[p.Name] = p
}

// Orphan takes all that the set owns from it and deletes it, as kubectl delete --cascade=orphan does. In its place comes a
// new set of the same name with the same spec.
func (w *World) Orphan() {
	for _, p := range w.Pods {
		w.change(p, func(p *corev1.Pod) { p.OwnerReferences = without(p.OwnerReferences, w.Set.UID) })
	}
	for name, r := range w.Revisions {
		r = r.DeepCopy()
		r.OwnerReferences = without(r.OwnerReferences, w.Set.UID)
		w.Revisions[name] = r
	}
	for name, c := range w.Claims {
		c = c.DeepCopy()
		c.OwnerReferences = without(c.OwnerReferences, w.Set.UID)
		w.Claims[name] = c
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.Set.Name, Namespace: w.Set.Namespace, Generation: 1},
		Spec:       *w.Set.Spec.DeepCopy(),
	}
	w.stamp(set)
	w.Set = set
	clear(w.unstuck)
	clear(w.evictAfter)
}

func without(refs []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	return slices.DeleteFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == uid })
}

// stamp gives a new object its UID, version and age.
func (w *World) stamp(o metav1.Object) {
	w.version++
	o.SetUID(types.UID("uid-" + strconv.Itoa(w.version)))
	o.SetResourceVersion(strconv.Itoa(w.version))
	o.SetCreationTimestamp(metav1.NewTime(w.Now))
}
