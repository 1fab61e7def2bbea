// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/policy"
)

// Observer takes snapshots.
type Observer struct {
	informers *Informers
	watermark *Watermark
	options   plan.Options
}

// New makes an observer of these caches.
func New(i *Informers, w *Watermark, o plan.Options) *Observer {
	return &Observer{informers: i, watermark: w, options: o}
}

// View is what became of the wish for a snapshot.
type View int

const (
	// Fresh means that the snapshot is good to plan from.
	Fresh View = iota
	// Gone means that there is no such set.
	Gone
	// Stale means that the caches do not show all that was written for the set. The event that brings it wakes the set.
	Stale
	// Foreign means that the set is not ours.
	Foreign
)

// Look takes a snapshot of a set. What the snapshot says of back-off is left to the caller.
func (o *Observer) Look(k Key, now time.Time) (plan.Snapshot, View, error) {
	// Asked first: of a set that is read before it, the caches might show the last write only afterwards.
	reached := o.watermark.IsReached(k)
	caches := o.informers.in(k.Namespace)
	if caches == nil {
		return plan.Snapshot{}, Foreign, nil
	}
	if !caches.isUsable() {
		return plan.Snapshot{}, Stale, nil
	}
	obj, exists, err := caches.sets.GetStore().GetByKey(k.String())
	if err != nil {
		return plan.Snapshot{}, Gone, fmt.Errorf("get set %s from cache: %w", k, err)
	}
	if !exists {
		return plan.Snapshot{}, Gone, nil
	}
	set, ok := obj.(*appsv1.StatefulSet)
	switch {
	case !ok:
		return plan.Snapshot{}, Gone, fmt.Errorf("cached set %s is a %T", k, obj)
	case !o.informers.scope.selects(set):
		return plan.Snapshot{}, Foreign, nil
	case !reached:
		return plan.Snapshot{}, Stale, nil
	}
	s := plan.Snapshot{Now: now, Set: set, Options: o.options}
	err = caches.fill(&s)
	return s, Fresh, err
}

// fill puts into a snapshot what there is around its set.
func (i *space) fill(s *plan.Snapshot) error {
	var err error
	if s.Revisions, err = i.revisionsOf(s.Set); err != nil {
		return err
	}
	if s.Pods, err = i.podsOf(s.Set); err != nil {
		return err
	}
	if s.Policies, err = i.policiesOf(Key{Namespace: s.Set.Namespace, Name: s.Set.Name}); err != nil {
		return err
	}
	s.Claims = i.claimsOf(s.Set, policy.Of(s.Policies).Range(s.Set), s.Pods)
	if !s.Options.Strict {
		s.Rivals, err = i.rivalsOf(s.Set)
	}
	return err
}

func (i *space) revisionsOf(set *appsv1.StatefulSet) ([]*appsv1.ControllerRevision, error) {
	selector := selectorOf(set)
	indexer := i.revisions.GetIndexer()
	owned, err := indexed[*appsv1.ControllerRevision](indexer, byOwner, string(set.UID))
	if err != nil {
		return nil, err
	}
	orphans, err := indexed[*appsv1.ControllerRevision](indexer, byOrphan, set.Namespace)
	if err != nil {
		return nil, err
	}
	var matching []*appsv1.ControllerRevision
	for _, r := range append(owned, orphans...) {
		if selector.Matches(labels.Set(r.Labels)) {
			matching = append(matching, r)
		}
	}
	return matching, nil
}

// selectorOf is the set's selector. One that cannot be read matches nothing; the plan tells of it.
func selectorOf(set *appsv1.StatefulSet) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func (i *space) podsOf(set *appsv1.StatefulSet) ([]*corev1.Pod, error) {
	indexer := i.pods.GetIndexer()
	pods, err := indexed[*corev1.Pod](indexer, bySet, set.Namespace+"/"+set.Name)
	if err != nil {
		return nil, err
	}
	owned, err := indexed[*corev1.Pod](indexer, byOwner, string(set.UID))
	if err != nil {
		return nil, err
	}
	for _, p := range owned {
		// Those that bear a name of the set are known already.
		if _, named := ordinal.Of(set.Name, p.Name); !named {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// claimsOf finds the claims of all ordinals for which there may be work: those of the range and those of the pods.
func (i *space) claimsOf(set *appsv1.StatefulSet, span ordinal.Range, pods []*corev1.Pod) []*corev1.PersistentVolumeClaim {
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	ordinals := map[int]bool{}
	for _, p := range pods {
		if n, named := ordinal.Of(set.Name, p.Name); named {
			ordinals[n] = true
		}
	}
	// A plan creates a bounded number of pods, so it does not look at the claims of more empty places than that.
	empty := 0
	for n := range span.All() {
		if !ordinals[n] {
			empty++
		}
		if empty > plan.MaxCreates {
			break
		}
		ordinals[n] = true
	}
	store := i.claims.GetStore()
	var claims []*corev1.PersistentVolumeClaim
	for n := range ordinals {
		for _, name := range claim.Names(set, n) {
			if c, ok := lookup(store, set.Namespace, name).(*corev1.PersistentVolumeClaim); ok {
				claims = append(claims, c)
			}
		}
	}
	return claims
}

func indexed[T metav1.Object](indexer cache.Indexer, index, value string) ([]T, error) {
	objs, err := indexer.ByIndex(index, value)
	if err != nil {
		return nil, fmt.Errorf("look up %s %s: %w", index, value, err)
	}
	found := make([]T, 0, len(objs))
	for _, obj := range objs {
		if o, ok := obj.(T); ok {
			found = append(found, o)
		}
	}
	return found, nil
}

// Handle calls wake for each set that a change of an object concerns.
func (i *Informers) Handle(wake func(Key)) error {
	for _, s := range i.spaces() {
		if err := s.handle(wake); err != nil {
			return err
		}
	}
	return nil
}

func (i *space) handle(wake func(Key)) error {
	for kind, concerns := range i.concerns() {
		if kind == KindPolicy && i.policies == nil {
			continue
		}
		h := handler{concerns: concerns, wake: wake}
		if _, err := i.of(kind).AddEventHandler(h); err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
	}
	return nil
}

// concerns tell, for each kind, which sets an object concerns.
func (i *space) concerns() map[plan.Kind]func(metav1.Object) []Key {
	return map[plan.Kind]func(metav1.Object) []Key{
		plan.KindSet:      i.setsOfSet,
		plan.KindPod:      i.setsOfPod,
		plan.KindClaim:    i.setsOfClaim,
		plan.KindRevision: i.setsOfRevision,
		KindPolicy:        setsOfPolicy,
	}
}

// handler turns the changes of one kind of object into keys of sets.
type handler struct {
	concerns func(metav1.Object) []Key
	wake     func(Key)
}

// OnAdd wakes the sets that a new object concerns.
func (h handler) OnAdd(obj any, _ bool) {
	h.changed(obj)
}

// OnUpdate wakes the sets that an object concerned before and those that it concerns now.
func (h handler) OnUpdate(before, after any) {
	old, err := meta.Accessor(before)
	if err != nil {
		return
	}
	if fresh, err := meta.Accessor(after); err == nil && fresh.GetResourceVersion() == old.GetResourceVersion() &&
		fresh.GetResourceVersion() != "" {
		return
	}
	h.changed(before)
	h.changed(after)
}

// OnDelete wakes the sets that an object concerned.
func (h handler) OnDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	h.changed(obj)
}

func (h handler) changed(obj any) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	for _, k := range h.concerns(accessor) {
		h.wake(k)
	}
}

// setsOfPod are the set that owns the pod, and the set of which it has a name.
func (i *space) setsOfPod(o metav1.Object) []Key {
	var keys []Key
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == string(plan.KindSet) {
		keys = append(keys, Key{Namespace: o.GetNamespace(), Name: owner.Name})
	}
	if name, ok := ordinal.ParsePod(o.GetName()); ok {
		k := Key{Namespace: o.GetNamespace(), Name: name.Set}
		if len(keys) == 0 || keys[0] != k {
			keys = append(keys, k)
		}
	}
	return i.existing(keys)
}

// setsOfClaim are the sets one of whose claims has the name.
func (i *space) setsOfClaim(o metav1.Object) []Key {
	var keys []Key
	for c := range ordinal.ParseClaim(o.GetName()) {
		set, ok := lookup(i.sets.GetStore(), o.GetNamespace(), c.Set).(*appsv1.StatefulSet)
		if ok && i.scope.selects(set) && hasTemplate(set, c.Template) {
			keys = append(keys, Key{Namespace: set.Namespace, Name: set.Name})
		}
	}
	return keys
}

// setsOfRevision are the set that owns the revision, or those that may adopt it.
func (i *space) setsOfRevision(o metav1.Object) []Key {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		if owner.Kind != string(plan.KindSet) {
			return nil
		}
		return i.existing([]Key{{Namespace: o.GetNamespace(), Name: owner.Name}})
	}
	sets, err := indexed[*appsv1.StatefulSet](i.sets.GetIndexer(), cache.NamespaceIndex, o.GetNamespace())
	if err != nil {
		return nil
	}
	var keys []Key
	for _, set := range sets {
		if i.scope.selects(set) && selectorOf(set).Matches(labels.Set(o.GetLabels())) {
			keys = append(keys, Key{Namespace: set.Namespace, Name: set.Name})
		}
	}
	return keys
}

// existing are those of some sets that there are, and that are ours.
func (i *space) existing(keys []Key) []Key {
	var found []Key
	for _, k := range keys {
		if set, ok := lookup(i.sets.GetStore(), k.Namespace, k.Name).(*appsv1.StatefulSet); ok && i.scope.selects(set) {
			found = append(found, k)
		}
	}
	return found
}

func hasTemplate(set *appsv1.StatefulSet, name string) bool {
	for i := range set.Spec.VolumeClaimTemplates {
		if set.Spec.VolumeClaimTemplates[i].Name == name {
			return true
		}
	}
	return false
}
