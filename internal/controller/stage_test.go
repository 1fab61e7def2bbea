// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// stage is a cluster in which one thing happens after the other: before the next, the controller has done all that it will.
// So nothing depends on chance, and each write can be judged by what is true at its moment. It has a kubelet, the garbage
// collector, and the protection of claims that are in use.
type stage struct {
	*cluster
	log klog.Logger
	// strict judges writes by the truth. That is too much to ask when the caches lag.
	strict bool
	// faulty tells that writes are refused and answers lost, so that the controller cannot know what is there.
	faulty bool
	// deleted are the pods that the controller has deleted and knows to be deleted.
	deleted map[types.UID]bool
}

const (
	// beat is how often the stage looks whether something is due.
	beat = 500 * time.Millisecond
	// illness is how long a pod stays unready.
	illness = 3 * time.Second
)

// onStage runs a test in virtual time. Prepare is called before the controller starts.
func onStage(t *testing.T, prepare, test func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{cluster: newCluster(t), deleted: map[types.UID]bool{}}
		s.log = ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		s.refuse = func(a clienttesting.Action) error {
			s.judge(a)
			return nil
		}
		s.answer = func(a clienttesting.Action) error {
			s.learn(a)
			return nil
		}
		prepare(s)
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), s.log))
		var wg sync.WaitGroup
		s.control(ctx, &wg, Options{})
		synctest.Wait()
		test(s)
		stop()
		wg.Wait()
	})
}

// run lets the cluster run for a while.
func (s *stage) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		pass(min(beat, time.Until(end)))
		s.due()
	}
}

// calm lets the cluster run until nothing has changed for a while.
func (s *stage) calm(while time.Duration) {
	s.t.Helper()
	began := time.Now()
	for last, since := s.newest(), began; time.Since(since) < while; {
		s.run(beat)
		if v := s.newest(); v != last {
			last, since = v, time.Now()
		}
		if time.Since(began) > 15*time.Minute {
			s.t.Fatalf("it never settles: %v", s.drain())
		}
	}
}

// newest is the newest version of anything.
func (s *stage) newest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// do changes the cluster as somebody else than the controller, and lets the controller react.
func (s *stage) do(change func()) {
	s.mu.Lock()
	change()
	s.mu.Unlock()
	synctest.Wait()
}

// due does what kubelet and garbage collector have to do by now.
func (s *stage) due() {
	claims := map[string]bool{}
	for _, c := range list[*corev1.PersistentVolumeClaim](s, claimsResource, "PersistentVolumeClaim") {
		claims[c.Name] = c.DeletionTimestamp == nil
	}
	for _, pod := range s.pods() {
		switch since := time.Since(readySince(pod)); {
		case pod.DeletionTimestamp != nil:
			if !time.Now().Before(pod.DeletionTimestamp.Time) {
				s.do(func() { s.erase(podsResource, pod.Name) })
			}
		case pod.Status.Phase == corev1.PodPending:
			mounts := !slices.ContainsFunc(claimsOf(pod), func(name string) bool { return !claims[name] })
			if after := s.readyAfter(pod); mounts && after >= 0 && time.Since(pod.CreationTimestamp.Time) >= after {
				s.alter(pod.Name, func(p *corev1.Pod) { setReady(p, true) })
			}
		case pod.Status.Phase == corev1.PodRunning && !podstate.IsReady(pod) && since >= illness:
			s.alter(pod.Name, func(p *corev1.Pod) { setReady(p, true) })
		}
	}
	s.collect()
}

func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// collect removes what has lost all its owners, and claims that are going and that no pod uses. A pod that waits for its
// claims does not use them yet.
func (s *stage) collect() {
	living, used := map[types.UID]bool{stranger: true}, map[string]bool{}
	for _, set := range list[*appsv1.StatefulSet](s, setsResource, "StatefulSet") {
		living[set.UID] = true
	}
	for _, pod := range list[*corev1.Pod](s, podsResource, "Pod") {
		living[pod.UID] = true
		for _, name := range claimsOf(pod) {
			used[name] = used[name] || pod.Status.Phase != corev1.PodPending
		}
	}
	lost := func(o metav1.Object) bool {
		alive := func(r metav1.OwnerReference) bool { return living[r.UID] }
		return len(o.GetOwnerReferences()) > 0 && !slices.ContainsFunc(o.GetOwnerReferences(), alive)
	}
	for _, pod := range list[*corev1.Pod](s, podsResource, "Pod") {
		if lost(pod) && pod.DeletionTimestamp == nil {
			s.do(func() { s.terminate(podsResource, pod.DeepCopy()) })
		}
	}
	for _, r := range list[*appsv1.ControllerRevision](s, revisionsResource, "ControllerRevision") {
		if lost(r) {
			s.do(func() { s.erase(revisionsResource, r.Name) })
		}
	}
	for _, c := range list[*corev1.PersistentVolumeClaim](s, claimsResource, "PersistentVolumeClaim") {
		switch going := c.DeletionTimestamp != nil; {
		case lost(c) && !going:
			s.do(func() { s.terminate(claimsResource, c.DeepCopy()) })
		case going && !used[c.Name]:
			s.do(func() { s.erase(claimsResource, c.Name) })
		}
	}
}

// list gives all objects of a kind. They must not be changed.
func list[T runtime.Object](s *stage, r schema.GroupVersionResource, kind string) []T {
	s.t.Helper()
	found, err := s.tracker().List(r, r.GroupVersion().WithKind(kind), namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []T
	err = meta.EachListItem(found, func(o runtime.Object) error {
		if item, ok := o.(T); ok {
			all = append(all, item)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// erase removes an object at once.
func (s *stage) erase(r schema.GroupVersionResource, name string) {
	s.version++
	if err := s.tracker().Delete(r, namespace, name); err != nil {
		s.t.Error(err)
	}
}

// terminate lets an object go after its grace.
func (s *stage) terminate(r schema.GroupVersionResource, o metav1.Object) {
	o.SetDeletionTimestamp(&metav1.Time{Time: time.Now().Add(grace)})
	if obj, ok := o.(runtime.Object); ok {
		s.put(r, obj)
	}
}

// alter changes a pod, if it is there.
func (s *stage) alter(name string, change func(*corev1.Pod)) {
	s.do(func() {
		obj, err := s.tracker().Get(podsResource, namespace, name)
		if err != nil {
			return
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			pod = pod.DeepCopy()
			change(pod)
			s.put(podsResource, pod)
		}
	})
}

// What users do. None of it fails when its object is not there.

func (s *stage) kills(name string) {
	s.alter(name, func(p *corev1.Pod) {
		if p.DeletionTimestamp == nil {
			p.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(grace)}
		}
	})
}

// sickens makes a pod that runs unready for a while.
func (s *stage) sickens(name string) {
	s.alter(name, func(p *corev1.Pod) {
		if p.Status.Phase == corev1.PodRunning {
			setReady(p, false)
		}
	})
}

func (s *stage) unlabels(name string) {
	s.alter(name, func(p *corev1.Pod) { p.Labels["app"] = "lab" })
}

func (s *stage) edits(change func(*appsv1.StatefulSet)) {
	if set := s.theSet(); set != nil {
		s.edit(change)
		synctest.Wait()
	}
}

func (s *stage) images(image string) {
	s.edits(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = image })
}

func (s *stage) scales(n int32) {
	s.edits(func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n })
}

func (s *stage) dropsSet() {
	s.do(func() { s.erase(setsResource, "web") })
}

func (s *stage) dropsClaim(name string) {
	for _, c := range list[*corev1.PersistentVolumeClaim](s, claimsResource, "PersistentVolumeClaim") {
		if c.Name == name && c.DeletionTimestamp == nil {
			s.do(func() { s.terminate(claimsResource, c.DeepCopy()) })
		}
	}
}

// dropsRevision deletes the revision of the template with an image.
func (s *stage) dropsRevision(image string) {
	for _, r := range list[*appsv1.ControllerRevision](s, revisionsResource, "ControllerRevision") {
		if strings.Contains(string(r.Data.Raw), `"image":"`+image+`"`) {
			s.do(func() { s.erase(revisionsResource, r.Name) })
		}
	}
}

func (s *stage) creates(set *appsv1.StatefulSet) {
	s.create(setsResource, set)
	synctest.Wait()
}

// theSet is the set, or nil.
func (s *stage) theSet() *appsv1.StatefulSet {
	obj, err := s.tracker().Get(setsResource, namespace, "web")
	if err != nil {
		return nil
	}
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		s.t.Fatalf("the set is a %T", obj)
	}
	return set
}

// end describes the cluster, without what may differ from run to run: UIDs, versions and times; and revisions that no pod has
// if it depends on chance which templates the controller gets to see.
func (s *stage) end() string {
	var b strings.Builder
	names := map[types.UID]string{}
	if set := s.theSet(); set != nil {
		names[set.UID] = "set"
		fmt.Fprintf(&b, "set %v\n", statusText(&set.Status))
	}
	live := map[string]bool{}
	for _, p := range s.pods() {
		names[p.UID] = p.Name
		live[podstate.Revision(p)] = true
	}
	owners := func(o metav1.Object) []string {
		var all []string
		for _, r := range o.GetOwnerReferences() {
			all = append(all, r.Kind+" "+names[r.UID])
		}
		return all
	}
	going := func(o metav1.Object) string {
		if o.GetDeletionTimestamp() != nil {
			return " going"
		}
		return ""
	}
	for _, p := range s.pods() {
		fmt.Fprintf(&b, "pod %s%s of %v, image %s, labels %v, %s, ready %t\n", p.Name, going(p), owners(p),
			p.Spec.Containers[0].Image, p.Labels, p.Status.Phase, podstate.IsReady(p))
	}
	for _, c := range list[*corev1.PersistentVolumeClaim](s, claimsResource, "PersistentVolumeClaim") {
		fmt.Fprintf(&b, "claim %s%s of %v, labels %v\n", c.Name, going(c), owners(c), c.Labels)
	}
	for _, r := range list[*appsv1.ControllerRevision](s, revisionsResource, "ControllerRevision") {
		if s.strict || live[r.Name] {
			fmt.Fprintf(&b, "revision %s%s of %v\n", r.Name, going(r), owners(r))
		}
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func statusText(s *appsv1.StatefulSetStatus) string {
	return fmt.Sprintf("at generation %d: %s, revisions %s and %s, collisions %v", s.ObservedGeneration, counters(s), s.CurrentRevision,
		s.UpdateRevision, s.CollisionCount != nil && *s.CollisionCount > 0)
}

func counters(s *appsv1.StatefulSetStatus) string {
	return fmt.Sprintf("%d pods, %d ready, %d available, %d current, %d updated", s.Replicas, s.ReadyReplicas, s.AvailableReplicas,
		s.CurrentReplicas, s.UpdatedReplicas)
}

// failures are the errors that were logged.
func (s *stage) failures() []string {
	sink, ok := s.log.GetSink().(ktesting.Underlier)
	if !ok {
		s.t.Fatal("the log cannot be read")
	}
	var all []string
	for _, entry := range sink.GetBuffer().Data() {
		if entry.Type == ktesting.LogError {
			all = append(all, fmt.Sprintf("%s: %v", entry.Message, entry.Err))
		}
	}
	return all
}

// judge complains of a write of the controller that breaks a rule.
func (s *stage) judge(action clienttesting.Action) {
	s.t.Helper()
	r := action.GetResource()
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		if o, err := meta.Accessor(a.GetObject()); err == nil && !s.faulty && r != revisionsResource {
			if _, err := s.tracker().Get(r, namespace, o.GetName()); err == nil {
				s.t.Errorf("%s %s is created, and is there", r.Resource, o.GetName())
			}
			if r == podsResource && s.strict {
				s.judgeCreation(o.GetName())
			}
		}
	case clienttesting.DeleteActionImpl:
		if r == claimsResource || r == setsResource {
			s.t.Errorf("the controller deletes %s %s", r.Resource, a.GetName())
		}
		if r == podsResource {
			s.judgeDeletion(a)
		}
	case clienttesting.UpdateActionImpl:
		if set, ok := a.GetObject().(*appsv1.StatefulSet); ok && s.strict {
			s.judgeStatus(set)
		}
	}
}

// judgeCreation complains of a pod that is created before its predecessors serve.
func (s *stage) judgeCreation(name string) {
	set := s.theSet()
	if set == nil || set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		return
	}
	n, _ := ordinal.Of("web", name)
	for i := range n {
		obj, err := s.tracker().Get(podsResource, namespace, ordinal.PodName("web", i))
		pod, ok := obj.(*corev1.Pod)
		if err != nil || !ok || !podstate.IsServing(pod, 0, time.Now()) {
			s.t.Errorf("%s is created before its predecessor %d serves", name, i)
		}
	}
}

// judgeDeletion complains of a deletion that is one too many.
func (s *stage) judgeDeletion(a clienttesting.DeleteActionImpl) {
	o := a.GetDeleteOptions()
	if o.Preconditions == nil || o.Preconditions.UID == nil {
		s.t.Errorf("%s is deleted, whichever it is", a.GetName())
		return
	}
	uid := *o.Preconditions.UID
	if s.deleted[uid] {
		s.t.Errorf("%s is deleted twice", a.GetName())
	}
	set := s.theSet()
	obj, err := s.tracker().Get(podsResource, namespace, a.GetName())
	pod, ok := obj.(*corev1.Pod)
	if !s.strict || err != nil || !ok || set == nil {
		return
	}
	if pod.DeletionTimestamp != nil || pod.UID != uid {
		s.t.Errorf("%s is deleted, and is going or another", a.GetName())
	}
	s.judgeLoss(set, pod)
}

// learn takes note of what the controller knows.
func (s *stage) learn(action clienttesting.Action) {
	if a, ok := action.(clienttesting.DeleteActionImpl); ok && a.GetDeleteOptions().Preconditions != nil {
		s.deleted[*a.GetDeleteOptions().Preconditions.UID] = true
	}
}

// judgeLoss complains of the deletion of a pod that has a right to stay, or for whose update there is no budget.
func (s *stage) judgeLoss(set *appsv1.StatefulSet, pod *corev1.Pod) {
	span := ordinal.RangeOf(set)
	unavailable := span.Count
	for _, p := range s.pods() {
		if n, ok := ordinal.Of(set.Name, p.Name); ok && s.isMember(set, p) && span.Contains(n) && podstate.IsServing(p, 0, time.Now()) {
			unavailable--
		}
		n, _ := ordinal.Of(set.Name, p.Name)
		if mine, _ := ordinal.Of(set.Name, pod.Name); !span.Contains(mine) && n > mine && s.isMember(set, p) &&
			set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			s.t.Errorf("%s is scaled down before %s", pod.Name, p.Name)
		}
	}
	n, _ := ordinal.Of(set.Name, pod.Name)
	if !span.Contains(n) || !podstate.IsServing(pod, 0, time.Now()) {
		return
	}
	if pod.Spec.Containers[0].Image == set.Spec.Template.Spec.Containers[0].Image {
		s.t.Errorf("%s is deleted for nothing", pod.Name)
	}
	if most := plan.MaxUnavailable(set); unavailable >= most {
		s.t.Errorf("%s is updated while %d are unavailable, of %d that may be", pod.Name, unavailable, most)
	}
}

func (s *stage) isMember(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels)) && metav1.IsControlledBy(pod, set)
}

// judgeStatus complains of a status that is not true.
func (s *stage) judgeStatus(written *appsv1.StatefulSet) {
	set := s.theSet()
	if set == nil {
		// Its end and what comes with it are many changes at once.
		return
	}
	if set.ResourceVersion != written.ResourceVersion {
		s.t.Error("the status is written to a set that is another by now")
		return
	}
	truth := appsv1.StatefulSetStatus{}
	for _, p := range s.pods() {
		if !s.isMember(set, p) {
			continue
		}
		truth.Replicas++
		if podstate.IsReady(p) {
			truth.ReadyReplicas++
			truth.AvailableReplicas++
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		if podstate.Revision(p) == written.Status.CurrentRevision {
			truth.CurrentReplicas++
		}
		if podstate.Revision(p) == written.Status.UpdateRevision {
			truth.UpdatedReplicas++
		}
	}
	if want, got := counters(&truth), counters(&written.Status); got != want {
		s.t.Errorf("the status says %s, but there are %s", got, want)
	}
	if written.Status.ObservedGeneration != set.Generation {
		s.t.Errorf("the status observes generation %d, not %d", written.Status.ObservedGeneration, set.Generation)
	}
	if equality.Semantic.DeepEqual(set.Status, written.Status) && set.Status.CollisionCount != nil {
		s.t.Errorf("a status is written that changes nothing: %s", statusText(&set.Status))
	}
}
