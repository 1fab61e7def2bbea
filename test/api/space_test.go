// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// space is a namespace of one test, and all that has ever happened in it.
type space struct {
	t    *testing.T
	name string

	mu      sync.Mutex
	world   world
	history []change
	moved   chan struct{} // closed at the next change
	broken  error
	// generations are the generations of the sets after the last edit of the test.
	generations map[string]int64
}

// world is what there is at one moment, by name.
type world struct {
	sets      map[string]*appsv1.StatefulSet
	pods      map[string]*corev1.Pod
	claims    map[string]*corev1.PersistentVolumeClaim
	revisions map[string]*appsv1.ControllerRevision
}

// change is one thing that happened.
type change struct {
	kind   watch.EventType
	object runtime.Object
}

func (c change) String() string {
	m, _ := meta.Accessor(c.object)
	return fmt.Sprintf("%s %T %s", c.kind, c.object, m.GetName())
}

// pod is the pod that the change is about; nil if it is about something else.
func (c change) pod() *corev1.Pod {
	pod, _ := c.object.(*corev1.Pod)
	return pod
}

// newSpace makes a namespace in which pods can be created, and watches it. At its end every status that was ever published
// is checked.
func newSpace(t *testing.T) *space {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	ns, err := env.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := watchSpace(t, ns.Name)
	s.awaitAccount()
	return s
}

// awaitAccount waits for the service account without which no pod can be created.
func (s *space) awaitAccount() {
	s.t.Helper()
	poll(s.t, "pods may be created", func(ctx context.Context) string {
		_, err := env.client.CoreV1().ServiceAccounts(s.name).Get(ctx, "default", metav1.GetOptions{})
		return text(err)
	})
}

// watchSpace records what happens in a namespace in which there is nothing yet.
func watchSpace(t *testing.T, name string) *space {
	t.Helper()
	s := &space{t: t, name: name, moved: make(chan struct{}), generations: map[string]int64{}, world: world{
		sets: map[string]*appsv1.StatefulSet{}, pods: map[string]*corev1.Pod{},
		claims: map[string]*corev1.PersistentVolumeClaim{}, revisions: map[string]*appsv1.ControllerRevision{},
	}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var watches sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watches.Wait()
		if t.Failed() {
			s.dump(context.WithoutCancel(ctx))
		}
		s.checkStatuses()
	})
	for _, source := range s.sources() {
		list, err := source.ListWithContextFunc(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := watchtools.NewRetryWatcherWithContext(ctx, m.GetResourceVersion(), source)
		if err != nil {
			t.Fatal(err)
		}
		watches.Go(func() {
			for e := range stream.ResultChan() {
				s.note(e)
			}
			if ctx.Err() == nil {
				s.lose("a watch ended")
			}
		})
	}
	return s
}

// sources are the kinds of objects that are recorded.
func (s *space) sources() []*cache.ListWatch {
	apps, core := env.client.AppsV1(), env.client.CoreV1()
	return []*cache.ListWatch{
		source(apps.StatefulSets(s.name).List, apps.StatefulSets(s.name).Watch),
		source(core.Pods(s.name).List, core.Pods(s.name).Watch),
		source(core.PersistentVolumeClaims(s.name).List, core.PersistentVolumeClaims(s.name).Watch),
		source(apps.ControllerRevisions(s.name).List, apps.ControllerRevisions(s.name).Watch),
	}
}

func source[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error), open cache.WatchFuncWithContext,
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) },
		WatchFuncWithContext: open,
	}
}

// note takes down a change.
func (s *space) note(e watch.Event) {
	if e.Type == watch.Error {
		s.lose(fmt.Sprint(e.Object))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := e.Type == watch.Deleted
	switch o := e.Object.(type) {
	case *appsv1.StatefulSet:
		keep(s.world.sets, o.Name, o, gone)
	case *corev1.Pod:
		keep(s.world.pods, o.Name, o, gone)
	case *corev1.PersistentVolumeClaim:
		keep(s.world.claims, o.Name, o, gone)
	case *appsv1.ControllerRevision:
		keep(s.world.revisions, o.Name, o, gone)
	}
	s.history = append(s.history, change{e.Type, e.Object})
	close(s.moved)
	s.moved = make(chan struct{})
}

func keep[T any](objects map[string]T, name string, o T, gone bool) {
	if gone {
		delete(objects, name)
		return
	}
	objects[name] = o
}

func (s *space) lose(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = fmt.Errorf("the record of %s is not complete: %s", s.name, why)
	close(s.moved)
	s.moved = make(chan struct{})
}

// look gives the world of this moment, which must not be changed.
func (s *space) look() world {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		s.t.Fatal(s.broken)
	}
	w := s.world
	return world{maps.Clone(w.sets), maps.Clone(w.pods), maps.Clone(w.claims), maps.Clone(w.revisions)}
}

// past gives all changes from the one with that number on.
func (s *space) past(from int) []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history[from:])
}

// now is the number of the next change.
func (s *space) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.history)
}

func (s *space) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// until waits for a world of which nothing is missing.
func (s *space) until(what string, missing func(world) string) world {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		moved, lack := s.ask(missing)
		if lack == "" {
			return s.look()
		}
		select {
		case <-moved:
		case <-ctx.Done():
			s.t.Fatalf("wait until %s: %s", what, lack)
		}
	}
}

// ask tells what the world lacks, and gives the channel that is closed when it changes.
func (s *space) ask(missing func(world) string) (<-chan struct{}, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.moved, s.broken.Error()
	}
	return s.moved, missing(s.world)
}

// quiet lets some time pass in which nothing of the kind may happen.
func (s *space) quiet(d time.Duration, what string, happens func(change) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	from := s.now()
	for ctx.Err() == nil {
		moved := s.next()
		if i := slices.IndexFunc(s.past(from), happens); i >= 0 {
			s.t.Fatalf("%s: %v", what, s.past(from)[i])
		}
		select {
		case <-moved:
		case <-ctx.Done():
		}
	}
}

// anything is for spaces in which nothing at all may happen.
func anything(change) bool { return true }

// create creates a set.
func (s *space) create(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	s.t.Helper()
	made, err := env.client.AppsV1().StatefulSets(s.name).Create(s.t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.generations[made.Name] = made.Generation
	return made
}

// patch merges a patch, in JSON, into a set.
func (s *space) patch(name, patch string) *appsv1.StatefulSet {
	s.t.Helper()
	set, err := s.tryPatch(name, types.StrategicMergePatchType, patch)
	if err != nil {
		s.t.Fatal(err)
	}
	s.generations[name] = set.Generation
	return set
}

func (s *space) tryPatch(name string, kind types.PatchType, patch string) (*appsv1.StatefulSet, error) {
	return env.client.AppsV1().StatefulSets(s.name).Patch(s.t.Context(), name, kind, []byte(patch), metav1.PatchOptions{})
}

func (s *space) scale(name string, replicas int) {
	s.t.Helper()
	s.patch(name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// retemplate gives a set another template.
func (s *space) retemplate(name, version string) *appsv1.StatefulSet {
	s.t.Helper()
	return s.patch(name, containerPatch(fmt.Sprintf(`{"name":"main","env":[{"name":"VERSION","value":%q}]}`, version)))
}

func (s *space) setImage(name, image string) {
	s.t.Helper()
	s.patch(name, containerPatch(fmt.Sprintf(`{"name":"main","image":%q}`, image)))
}

func containerPatch(container string) string {
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[%s]}}}}`, container)
}

// remove deletes a set.
func (s *space) remove(name string, how metav1.DeletionPropagation) {
	s.t.Helper()
	err := env.client.AppsV1().StatefulSets(s.name).Delete(s.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how})
	if err != nil {
		s.t.Fatal(err)
	}
}

// orphan deletes a set and leaves all that it has.
func (s *space) orphan(name string) {
	s.t.Helper()
	s.remove(name, metav1.DeletePropagationOrphan)
	s.untilGone("StatefulSet", func(w world) bool { return w.sets[name] == nil })
}

func (s *space) untilGone(what string, gone func(world) bool) {
	s.t.Helper()
	s.until(what+" is gone", func(w world) string { return unless(gone(w), "it is still there") })
}

// kill deletes pods.
func (s *space) kill(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if err := env.client.CoreV1().Pods(s.name).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// replaced waits until a pod is another than the one with that UID.
func (s *space) replaced(name string, uid types.UID) *corev1.Pod {
	s.t.Helper()
	return s.until(name+" is replaced", func(w world) string {
		pod := w.pods[name]
		return unless(pod != nil && pod.UID != uid, "it is not")
	}).pods[name]
}

func (s *space) patchPod(name, patch string) {
	s.t.Helper()
	pods := env.client.CoreV1().Pods(s.name)
	_, err := pods.Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// decide sets the fate of a pod, or of all those that have none of their own.
func (s *space) decide(name string, f fate) { env.kubelet.decide(s.name, name, f) }

// settled waits until a set is as its spec wants it, and gives the world in which it is.
func (s *space) settled(name string) world {
	s.t.Helper()
	return s.until(name+" has settled", func(w world) string { return s.unsettled(w, name) })
}

// unsettled tells what a set still lacks.
func (s *space) unsettled(w world, name string) string {
	set := w.sets[name]
	if set == nil || set.Generation < s.generations[name] || set.Status.ObservedGeneration < set.Generation {
		return "the set is not observed"
	}
	st, n := set.Status, *set.Spec.Replicas
	members := w.members(name)
	if st.Replicas != n || st.ReadyReplicas != n || st.AvailableReplicas != n || len(members) != int(n) {
		return fmt.Sprintf("status %+v, %d pods", st, len(members))
	}
	if st.UpdatedReplicas != n || st.CurrentReplicas != n || st.CurrentRevision != st.UpdateRevision {
		return fmt.Sprintf("not updated: %+v", st)
	}
	for _, pod := range members {
		if revisionOf(pod) != st.UpdateRevision || pod.DeletionTimestamp != nil {
			return pod.Name + " is not updated"
		}
	}
	return ""
}

// ready waits until that many pods of a set are ready, whatever their revision is.
func (s *space) ready(name string, n int32) world {
	s.t.Helper()
	return s.until(fmt.Sprintf("%d pods of %s are ready", n, name), func(w world) string {
		set := w.sets[name]
		if set == nil || set.Generation < s.generations[name] || set.Status.ObservedGeneration < set.Generation {
			return "the set is not observed"
		}
		alive := 0
		for _, pod := range w.members(name) {
			if isReady(pod.Status.Conditions) && pod.DeletionTimestamp == nil {
				alive++
			}
		}
		return unless(set.Status.ReadyReplicas == n && alive == int(n), fmt.Sprintf("%+v, %d pods", set.Status, alive))
	})
}

// members are the pods that a set owns.
func (w world) members(name string) map[string]*corev1.Pod {
	members := map[string]*corev1.Pod{}
	for _, pod := range w.pods {
		owner := metav1.GetControllerOf(pod)
		if owner != nil && owner.Name == name && w.sets[name] != nil && owner.UID == w.sets[name].UID {
			members[pod.Name] = pod
		}
	}
	return members
}

// uids are the UIDs of all pods by name.
func (w world) uids() map[string]types.UID {
	uids := map[string]types.UID{}
	for name, pod := range w.pods {
		uids[name] = pod.UID
	}
	return uids
}

// numbers are the revisions of all sets by name, with their numbers.
func (w world) numbers() map[string]int64 {
	numbers := map[string]int64{}
	for name, r := range w.revisions {
		numbers[name] = r.Revision
	}
	return numbers
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// version is what the template of a pod was told by newSet or retemplate.
func version(pod *corev1.Pod) string { return pod.Spec.Containers[0].Env[0].Value }

// events are the events of a reason about sets of the space, each as often as it is said to have happened.
func (s *space) events(ctx context.Context, reason string) []string {
	s.t.Helper()
	list, err := env.client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		s.t.Fatal(err)
	}
	var texts []string
	for _, e := range list.Items {
		for range max(1, e.Count) {
			texts = append(texts, e.Message)
		}
	}
	return texts
}

// told waits for an event of a reason whose text contains all of the words.
func (s *space) told(reason string, words ...string) {
	s.t.Helper()
	poll(s.t, fmt.Sprintf("an event %s tells of %q", reason, words), func(ctx context.Context) string {
		events := s.events(ctx, reason)
		tells := func(e string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e, w) })
		}
		return unless(slices.ContainsFunc(events, tells), fmt.Sprintf("events are %q", events))
	})
}

// checkStatuses checks what holds of every status that was published.
func (s *space) checkStatuses() {
	s.t.Helper()
	observed := map[types.UID]int64{}
	for _, c := range s.past(0) {
		set, ok := c.object.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		st := set.Status
		low := min(st.Replicas, st.ReadyReplicas, st.AvailableReplicas, st.CurrentReplicas, st.UpdatedReplicas)
		high := max(st.ReadyReplicas, st.AvailableReplicas, st.CurrentReplicas, st.UpdatedReplicas)
		if low < 0 || high > st.Replicas || st.AvailableReplicas > st.ReadyReplicas {
			s.t.Errorf("%s published counters that cannot be: %+v", set.Name, st)
		}
		if st.ObservedGeneration < observed[set.UID] || st.ObservedGeneration > set.Generation {
			s.t.Errorf("%s published generation %d after %d", set.Name, st.ObservedGeneration, observed[set.UID])
		}
		if st.ObservedGeneration > 0 && (st.CurrentRevision == "" || st.UpdateRevision == "") {
			s.t.Errorf("%s published no revisions: %+v", set.Name, st)
		}
		observed[set.UID] = st.ObservedGeneration
	}
}

// dump tells what there is in a space whose test failed.
func (s *space) dump(ctx context.Context) {
	s.mu.Lock()
	w := s.world
	s.mu.Unlock()
	if len(w.pods) > 40 {
		return
	}
	for _, set := range w.sets {
		s.t.Logf("set %s generation %d: %v", set.Name, set.Generation, set.Status)
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pod := w.pods[name]
		s.t.Logf("pod %s %s %s ready %t going %t owners %v", name, revisionOf(pod), pod.Status.Phase,
			isReady(pod.Status.Conditions), pod.DeletionTimestamp != nil, pod.OwnerReferences)
	}
	list, err := env.client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, e := range list.Items {
		s.t.Logf("event %s ×%d: %s", e.Reason, e.Count, e.Message)
	}
}

// unless gives the complaint if something is not so.
func unless(ok bool, complaint string) string {
	if ok {
		return ""
	}
	return complaint
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
