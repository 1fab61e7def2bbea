// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// namespace is where all objects are.
const namespace = "default"

// claimFinalizer keeps a claim while a pod uses it.
const claimFinalizer = "kubernetes.io/pvc-protection"

// kinds are those that the server holds, in the order in which their caches are filled.
func kinds() []plan.Kind {
	return []plan.Kind{plan.KindSet, plan.KindPod, plan.KindClaim, plan.KindRevision}
}

// object is what the server holds. It is never changed: a change is another object.
type object interface {
	metav1.Object
	runtime.Object
}

// event is one entry of the log of a kind.
type event struct {
	what   watch.EventType
	object object
}

// shelf holds the objects of one kind by name, and the log of what became of them.
type shelf struct {
	objects map[string]object
	log     []event
}

// server is an API server: objects with versions, and one log for each kind.
type server struct {
	shelves map[plan.Kind]*shelf
	version int
	// offset is by how much its clock, and that of the nodes, is ahead of the controllers'.
	offset time.Duration
}

func newServer() *server {
	s := &server{shelves: map[plan.Kind]*shelf{}}
	for _, k := range kinds() {
		s.shelves[k] = &shelf{objects: map[string]object{}}
	}
	return s
}

func (s *server) now() metav1.Time {
	return metav1.NewTime(time.Now().Add(s.offset).Truncate(time.Second))
}

// get gives an object; nil if there is none.
func (s *server) get(k plan.Kind, name string) object {
	return s.shelves[k].objects[name]
}

// all are the objects of a kind by name.
func (s *server) all(k plan.Kind) []object {
	objects := s.shelves[k].objects
	sorted := make([]object, 0, len(objects))
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		sorted = append(sorted, objects[name])
	}
	return sorted
}

func (s *server) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range s.all(plan.KindPod) {
		if p, ok := o.(*corev1.Pod); ok {
			pods = append(pods, p)
		}
	}
	return pods
}

func (s *server) pod(name string) *corev1.Pod {
	p, _ := s.get(plan.KindPod, name).(*corev1.Pod)
	return p
}

func (s *server) set() *appsv1.StatefulSet {
	set, _ := s.get(plan.KindSet, setName).(*appsv1.StatefulSet)
	return set
}

// owns tells if an object with this UID exists.
func (s *server) owns(uid types.UID) bool {
	for _, k := range kinds() {
		for _, o := range s.shelves[k].objects {
			if o.GetUID() == uid {
				return true
			}
		}
	}
	return false
}

func (s *server) stamp(o object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
}

// create adds an object.
func (s *server) create(k plan.Kind, o object) (object, error) {
	if s.get(k, o.GetName()) != nil {
		return nil, apierrors.NewAlreadyExists(resource(k), o.GetName())
	}
	o = copyOf(o)
	s.stamp(o)
	o.SetUID(types.UID("uid-" + o.GetResourceVersion()))
	o.SetNamespace(namespace)
	o.SetCreationTimestamp(s.now())
	switch o := o.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending}
	case *corev1.PersistentVolumeClaim:
		o.Finalizers = append(o.Finalizers, claimFinalizer)
	case *appsv1.StatefulSet:
		o.Generation = 1
	}
	s.note(k, watch.Added, o)
	return o, nil
}

// update puts a changed object in the place of the one before. One that is going and that nothing keeps any more goes.
func (s *server) update(k plan.Kind, o object) object {
	s.stamp(o)
	s.note(k, watch.Modified, o)
	if pod, ok := o.(*corev1.Pod); ok && (pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds > 0) {
		return o
	}
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		s.drop(k, o.GetName())
	}
	return o
}

func (s *server) drop(k plan.Kind, name string) {
	if o := s.get(k, name); o != nil {
		o = copyOf(o)
		s.stamp(o)
		s.note(k, watch.Deleted, o)
	}
}

func (s *server) note(k plan.Kind, what watch.EventType, o object) {
	shelf := s.shelves[k]
	shelf.log = append(shelf.log, event{what, o})
	if what == watch.Deleted {
		delete(shelf.objects, o.GetName())
	} else {
		shelf.objects[o.GetName()] = o
	}
}

// change changes an object, if it is there.
func change[T object](s *server, k plan.Kind, name string, how func(T)) {
	before, ok := s.get(k, name).(T)
	if !ok {
		return
	}
	if after, ok := copyOf(before).(T); ok {
		how(after)
		s.update(k, after)
	}
}

func (s *server) changePod(name string, how func(*corev1.Pod)) {
	change(s, plan.KindPod, name, how)
}

// remove deletes an object: at once, or when its node and its finalizers let it go.
func (s *server) remove(k plan.Kind, name string, o metav1.DeleteOptions) error {
	before := s.get(k, name)
	if before == nil {
		return apierrors.NewNotFound(resource(k), name)
	}
	if p := o.Preconditions; p != nil && p.UID != nil && *p.UID != before.GetUID() {
		return apierrors.NewConflict(resource(k), name, errors.New("the UID is another"))
	}
	after := copyOf(before)
	if pod, ok := after.(*corev1.Pod); ok {
		s.end(pod, o.GracePeriodSeconds)
		return nil
	}
	if before.GetDeletionTimestamp() != nil {
		return nil
	}
	if len(after.GetFinalizers()) == 0 {
		s.drop(k, name)
		return nil
	}
	after.SetDeletionTimestamp(new(s.now()))
	s.update(k, after)
	return nil
}

// end lets a pod go. One that has a node is let go by its kubelet, unless no grace is given.
func (s *server) end(pod *corev1.Pod, grace *int64) {
	given := int64(30)
	if grace != nil {
		given = *grace
	}
	if pod.Spec.NodeName == "" {
		given = 0
	}
	if pod.DeletionTimestamp != nil && *pod.DeletionGracePeriodSeconds <= given {
		return
	}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(s.now()), &given
	s.update(plan.KindPod, pod)
}

// body is what the controller's patches may hold.
type body struct {
	Metadata struct {
		UID             types.UID          `json:"uid"`
		ResourceVersion string             `json:"resourceVersion"`
		OwnerReferences *[]ownerPatch      `json:"ownerReferences"`
		Labels          map[string]*string `json:"labels"`
		Annotations     map[string]*string `json:"annotations"`
	} `json:"metadata"`
	Revision *int64                    `json:"revision"`
	Status   *appsv1.StatefulSetStatus `json:"status"`
}

type ownerPatch struct {
	metav1.OwnerReference `json:",inline"`

	Directive string `json:"$patch"`
}

// patch changes an object as a patch says.
func (s *server) patch(k plan.Kind, name string, how types.PatchType, b body) (object, error) {
	before := s.get(k, name)
	if before == nil {
		return nil, apierrors.NewNotFound(resource(k), name)
	}
	if b.Metadata.UID != "" && b.Metadata.UID != before.GetUID() {
		return nil, apierrors.NewConflict(resource(k), name, errors.New("the UID is another"))
	}
	if v := b.Metadata.ResourceVersion; v != "" && v != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(resource(k), name, errors.New("the version is another"))
	}
	after := copyOf(before)
	after.SetLabels(merged(after.GetLabels(), b.Metadata.Labels))
	after.SetAnnotations(merged(after.GetAnnotations(), b.Metadata.Annotations))
	if b.Metadata.OwnerReferences != nil {
		after.SetOwnerReferences(owners(after.GetOwnerReferences(), *b.Metadata.OwnerReferences, how))
	}
	switch o := after.(type) {
	case *appsv1.ControllerRevision:
		if b.Revision != nil {
			o.Revision = *b.Revision
		}
	case *appsv1.StatefulSet:
		if b.Status != nil {
			o.Status = *b.Status
		}
	}
	return s.update(k, after), nil
}

func merged(before map[string]string, patch map[string]*string) map[string]string {
	for key, value := range patch {
		if before == nil {
			before = map[string]string{}
		}
		if value == nil {
			delete(before, key)
		} else {
			before[key] = *value
		}
	}
	return before
}

// owners are the references after a patch, which replaces the list, or merges by UID.
func owners(before []metav1.OwnerReference, patch []ownerPatch, how types.PatchType) []metav1.OwnerReference {
	if how == types.MergePatchType {
		before = nil
	}
	after := slices.Clone(before)
	for _, p := range patch {
		after = slices.DeleteFunc(after, func(r metav1.OwnerReference) bool { return r.UID == p.UID })
		if p.Directive != "delete" {
			after = append(after, p.OwnerReference)
		}
	}
	return after
}

// parse reads a patch. Only what is known here may be in it.
func parse(data []byte) (body, error) {
	var b body
	err := json.Unmarshal(data, &b)
	return b, err
}

func copyOf(o object) object {
	c, _ := o.DeepCopyObject().(object)
	return c
}

func resource(k plan.Kind) schema.GroupResource {
	return map[plan.Kind]schema.GroupResource{
		plan.KindSet:      {Group: "apps", Resource: "statefulsets"},
		plan.KindPod:      {Resource: "pods"},
		plan.KindClaim:    {Resource: "persistentvolumeclaims"},
		plan.KindRevision: {Group: "apps", Resource: "controllerrevisions"},
	}[k]
}
