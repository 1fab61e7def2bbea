// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/apply"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// Resources of the cluster.
var (
	setsResource      = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	revisionsResource = appsv1.SchemeGroupVersion.WithResource("controllerrevisions")
	podsResource      = corev1.SchemeGroupVersion.WithResource("pods")
	claimsResource    = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	policiesResource  = v1alpha1.GroupVersion().WithResource(v1alpha1.Resource)
)

// cluster is client-go's fake API server, taught what the controller relies on: UIDs, resource versions, preconditions,
// graceful deletion; and a kubelet.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	// objects are what the API server holds. The clientset's own tracker keeps managed fields too, which takes most of the time.
	objects clienttesting.ObjectTracker
	events  *record.FakeRecorder
	// api, if set, is what the controller has to do with instead of client.
	api kubernetes.Interface
	// recorder, if set, gets the events instead.
	recorder apply.Recorder

	mu      sync.Mutex
	version int
	// refuse is asked before each write; an error refuses it.
	refuse func(clienttesting.Action) error
	// answer is asked after each write; an error takes the place of its answer.
	answer func(clienttesting.Action) error
	// writes are the writes of clients, such as "create pods web-0".
	writes []string
	// readyAfter is how long a pod takes from its creation to being ready; negative for never. By pod name.
	readyAfter func(*corev1.Pod) time.Duration
	born       map[types.UID]time.Time
	// cancel stops the controller.
	cancel context.CancelFunc
}

const (
	namespace = "default"
	// grace is how long a pod takes to go.
	grace = 2 * time.Second
)

func newCluster(t *testing.T) *cluster {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		t:          t,
		client:     fake.NewClientset(),
		objects:    clienttesting.NewObjectTracker(known, serializer.NewCodecFactory(known).UniversalDecoder()),
		events:     record.NewFakeRecorder(10_000),
		refuse:     func(clienttesting.Action) error { return nil },
		answer:     func(clienttesting.Action) error { return nil },
		readyAfter: func(*corev1.Pod) time.Duration { return time.Second },
		born:       map[types.UID]time.Time{},
	}
	c.client.PrependReactor("*", "*", clienttesting.ObjectReaction(c.objects))
	c.client.PrependReactor("*", "*", c.react)
	c.client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.watch(a)
		return true, w, err
	})
	return c
}

// run starts the controller and the kubelet in a synctest bubble, and gives a function that stops them.
func (c *cluster) run(o Options) (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	c.cancel = cancel
	var wg sync.WaitGroup
	c.control(ctx, &wg, o)
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.kubelet()
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// control starts the controller.
func (c *cluster) control(ctx context.Context, wg *sync.WaitGroup, o Options) {
	c.t.Helper()
	var recorder apply.Recorder = c.events
	if c.recorder != nil {
		recorder = c.recorder
	}
	ctl, err := New(cmp.Or[kubernetes.Interface](c.api, c.client), recorder, o)
	if err != nil {
		c.t.Fatal(err)
	}
	wg.Go(func() {
		if err := ctl.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
}

func (c *cluster) react(action clienttesting.Action) (bool, runtime.Object, error) {
	switch action.GetVerb() {
	case "create", "patch", "delete", "update":
	default:
		return false, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	obj, err := c.write(action)
	if err == nil {
		err = c.answer(action)
	}
	return true, obj, err
}

func (c *cluster) write(action clienttesting.Action) (runtime.Object, error) {
	if err := c.refuse(action); err != nil {
		return nil, err
	}
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		if e, ok := a.GetObject().(*policyv1.Eviction); ok {
			return nil, c.remove(podsResource, e.Name, *e.DeleteOptions)
		}
		obj := a.GetObject().DeepCopyObject()
		err := c.add(a.GetResource(), obj)
		return obj, err
	case clienttesting.PatchActionImpl:
		return c.patch(a)
	case clienttesting.UpdateActionImpl:
		return c.update(a)
	case clienttesting.DeleteActionImpl:
		return nil, c.remove(a.GetResource(), a.GetName(), a.GetDeleteOptions())
	}
	return nil, fmt.Errorf("unexpected write %v", action)
}

// lag lets the caches of a resource be late.
func (c *cluster) lag(resource string, by time.Duration) {
	c.client.PrependWatchReactor(resource, func(a clienttesting.Action) (bool, watch.Interface, error) {
		inner, err := c.watch(a)
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(inner, func(e watch.Event) (watch.Event, bool) {
			if e.Type != watch.Bookmark {
				<-time.After(by)
			}
			return e, true
		}), nil
	})
}

func (c *cluster) watch(a clienttesting.Action) (watch.Interface, error) {
	options := metav1.ListOptions{}
	if w, ok := a.(clienttesting.WatchActionImpl); ok {
		options = w.ListOptions
	}
	return c.objects.Watch(a.GetResource(), a.GetNamespace(), options)
}

func (c *cluster) tracker() clienttesting.ObjectTracker { return c.objects }

func (c *cluster) note(verb string, r schema.GroupVersionResource, name string) {
	c.writes = append(c.writes, verb+" "+r.Resource+" "+name)
}

func (c *cluster) stamp(obj runtime.Object) metav1.Object {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		c.t.Fatal(err)
	}
	c.version++
	accessor.SetResourceVersion(strconv.Itoa(c.version))
	return accessor
}

func (c *cluster) add(r schema.GroupVersionResource, obj runtime.Object) error {
	o := c.stamp(obj)
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", c.version)))
	o.SetCreationTimestamp(metav1.Now())
	o.SetNamespace(namespace)
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.Status.Phase = corev1.PodPending
		c.born[pod.UID] = time.Now()
	}
	if _, err := c.tracker().Get(r, namespace, o.GetName()); err == nil {
		return apierrors.NewAlreadyExists(r.GroupResource(), o.GetName())
	}
	c.note("create", r, o.GetName())
	return c.tracker().Create(r, obj, namespace)
}

func (c *cluster) patch(a clienttesting.PatchActionImpl) (runtime.Object, error) {
	obj, err := c.tracker().Get(a.GetResource(), namespace, a.GetName())
	if err != nil {
		return nil, err
	}
	before, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	var wanted struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(a.GetPatch(), &wanted); err != nil {
		return nil, err
	}
	if wanted.Metadata.UID != before.GetUID() {
		return nil, apierrors.NewConflict(a.GetResource().GroupResource(), a.GetName(), errors.New("uid"))
	}
	if v := wanted.Metadata.ResourceVersion; v != "" && v != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(a.GetResource().GroupResource(), a.GetName(), errors.New("version"))
	}
	patched, err := applyPatch(obj, a)
	if err != nil {
		return nil, err
	}
	if set, ok := patched.(*appsv1.StatefulSet); ok && a.GetSubresource() != "status" {
		set.Generation++
	}
	c.stamp(patched)
	c.note("patch", a.GetResource(), a.GetName())
	return patched.DeepCopyObject(), c.tracker().Update(a.GetResource(), patched, namespace)
}

// update replaces an object, if it is as it was seen.
func (c *cluster) update(a clienttesting.UpdateActionImpl) (runtime.Object, error) {
	fresh := a.GetObject().DeepCopyObject()
	wanted, err := meta.Accessor(fresh)
	if err != nil {
		return nil, err
	}
	obj, err := c.tracker().Get(a.GetResource(), namespace, wanted.GetName())
	if err != nil {
		return nil, err
	}
	before, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if wanted.GetResourceVersion() != before.GetResourceVersion() || wanted.GetUID() != before.GetUID() {
		return nil, apierrors.NewConflict(a.GetResource().GroupResource(), wanted.GetName(), errors.New("version"))
	}
	if set, ok := obj.DeepCopyObject().(*appsv1.StatefulSet); ok && a.GetSubresource() == "status" {
		// All else is ignored.
		set.Status = fresh.(*appsv1.StatefulSet).Status
		fresh = set
	}
	c.stamp(fresh)
	c.note("update", a.GetResource(), wanted.GetName())
	return fresh.DeepCopyObject(), c.tracker().Update(a.GetResource(), fresh, namespace)
}

// unstreamed is a client whose watches do not begin with what is there.
type unstreamed struct{ observe.PolicyAPI }

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

// policies is a client for the policies of the cluster.
func (c *cluster) policies(namespace string) observe.PolicyAPI {
	type list = v1alpha1.StatefulSetPolicyList
	return unstreamed{gentype.NewFakeClientWithList(&c.client.Fake, namespace, policiesResource,
		v1alpha1.GroupVersion().WithKind(v1alpha1.Kind),
		func() *v1alpha1.StatefulSetPolicy { return &v1alpha1.StatefulSetPolicy{} },
		func() *list { return &list{} },
		func(to, from *list) { to.ListMeta = from.ListMeta },
		func(l *list) []*v1alpha1.StatefulSetPolicy { return gentype.ToPointerSlice(l.Items) },
		func(l *list, items []*v1alpha1.StatefulSetPolicy) { l.Items = gentype.FromPointerSlice(items) })}
}

func applyPatch(obj runtime.Object, a clienttesting.PatchActionImpl) (runtime.Object, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	if a.GetPatchType() == types.MergePatchType {
		data, err = jsonpatch.MergePatch(data, a.GetPatch())
	} else {
		data, err = strategicpatch.StrategicMergePatch(data, a.GetPatch(), obj)
	}
	if err != nil {
		return nil, err
	}
	fresh, ok := reflect.TypeAssert[runtime.Object](reflect.New(reflect.TypeOf(obj).Elem()))
	if !ok {
		return nil, fmt.Errorf("%T is no object", obj)
	}
	return fresh, json.Unmarshal(data, fresh)
}

func (c *cluster) remove(r schema.GroupVersionResource, name string, o metav1.DeleteOptions) error {
	obj, err := c.tracker().Get(r, namespace, name)
	if err != nil {
		return err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if o.Preconditions != nil && *o.Preconditions.UID != accessor.GetUID() {
		return apierrors.NewConflict(r.GroupResource(), name, errors.New("uid"))
	}
	c.note("delete", r, name)
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return c.tracker().Delete(r, namespace, name)
	}
	if pod.DeletionTimestamp == nil {
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(grace)}
		c.stamp(pod)
		return c.tracker().Update(r, pod, namespace)
	}
	return nil
}

// kubelet lets pods become ready and go.
func (c *cluster) kubelet() {
	for _, pod := range c.pods() {
		c.mu.Lock()
		switch after := c.readyAfter(pod); {
		case pod.DeletionTimestamp != nil && !time.Now().Before(pod.DeletionTimestamp.Time):
			if err := c.tracker().Delete(podsResource, namespace, pod.Name); err != nil {
				c.t.Error(err)
			}
		case pod.Status.Phase == corev1.PodPending && after >= 0 && time.Since(c.born[pod.UID]) >= after:
			setReady(pod, true)
			c.put(podsResource, pod)
		}
		c.mu.Unlock()
	}
}

func setReady(pod *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
}

// put replaces an object.
func (c *cluster) put(r schema.GroupVersionResource, obj runtime.Object) {
	c.t.Helper()
	c.stamp(obj)
	if err := c.tracker().Update(r, obj, namespace); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) pods() []*corev1.Pod {
	c.t.Helper()
	obj, err := c.tracker().List(podsResource, corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
	if err != nil {
		c.t.Fatal(err)
	}
	list, ok := obj.(*corev1.PodList)
	if !ok {
		c.t.Fatalf("pods are a %T", obj)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = list.Items[i].DeepCopy()
	}
	return pods
}

func (c *cluster) set() *appsv1.StatefulSet {
	c.t.Helper()
	set, err := c.client.AppsV1().StatefulSets(namespace).Get(c.t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return set
}

func (c *cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	pod, err := c.client.CoreV1().Pods(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// create adds an object as a user.
func (c *cluster) create(r schema.GroupVersionResource, obj runtime.Object) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.add(r, obj); err != nil {
		c.t.Fatal(err)
	}
}

// edit changes the set as a user.
func (c *cluster) edit(change func(*appsv1.StatefulSet)) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	obj, err := c.tracker().Get(setsResource, namespace, "web")
	if err != nil {
		c.t.Fatal(err)
	}
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		c.t.Fatalf("set is a %T", obj)
	}
	set = set.DeepCopy()
	change(set)
	set.Generation++
	c.put(setsResource, set)
}

// kill deletes a pod as a user.
func (c *cluster) kill(name string) {
	c.t.Helper()
	if err := c.client.CoreV1().Pods(namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// drain gives the writes since the last call.
func (c *cluster) drain() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes := c.writes
	c.writes = nil
	return writes
}

// newSet is a set of three pods with a claim each.
func newSet(changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	created := func(set *appsv1.StatefulSet) { set.Namespace, set.Generation = namespace, 1 }
	return sim.NewSet("web", 3, append([]func(*appsv1.StatefulSet){created}, changes...)...)
}
