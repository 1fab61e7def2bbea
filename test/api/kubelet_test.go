// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// brokenImage is an image that can never be pulled.
const brokenImage = "registry.invalid/none:0"

// fate is what becomes of pods in the hands of the model kubelet. The zero value is a pod that runs, is ready at once, and
// goes as soon as it is told to.
type fate struct {
	// After is how long a pod takes from being seen to being ready.
	After time.Duration
	// Pending pods get no node, Unready ones run without being ready, Failed ones have ended.
	Pending, Unready, Failed bool
	// Lingering pods do not go when they are told to.
	Lingering bool
}

// kubelet plays scheduler and kubelet for all pods: one node that has room for everything.
type kubelet struct {
	client kubernetes.Interface
	store  cache.Store
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	fates map[types.NamespacedName]fate
	seen  map[types.UID]time.Time
}

func startKubelet(client kubernetes.Interface) (*kubelet, error) {
	ctx, cancel := context.WithCancel(context.Background())
	pods := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	k := &kubelet{
		client: client, store: pods.GetStore(), cancel: cancel,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Millisecond, time.Second)),
		fates: map[types.NamespacedName]fate{}, seen: map[types.UID]time.Time{},
	}
	wake := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, obj any) { wake(obj) }}
	if _, err := pods.AddEventHandler(handlers); err != nil {
		cancel()
		return nil, err
	}
	k.wg.Go(func() { pods.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		cancel()
		return nil, errors.New("the kubelet sees no pods")
	}
	for range 8 {
		k.wg.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	return k, nil
}

func (k *kubelet) stop() {
	k.cancel()
	k.queue.ShutDown()
	k.wg.Wait()
}

// decide sets the fate of the pods of a name, until it is decided anew. Without a name it is that of all pods of the
// namespace that have none of their own.
func (k *kubelet) decide(namespace, name string, f fate) {
	k.mu.Lock()
	k.fates[types.NamespacedName{Namespace: namespace, Name: name}] = f
	k.mu.Unlock()
	for _, obj := range k.store.List() {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Namespace == namespace && (name == "" || pod.Name == name) {
			k.queue.Add(types.NamespacedName{Namespace: namespace, Name: pod.Name})
		}
	}
}

func (k *kubelet) fateOf(key types.NamespacedName) fate {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f, ok := k.fates[key]; ok {
		return f
	}
	return k.fates[types.NamespacedName{Namespace: key.Namespace}]
}

// age is how long the kubelet has known a pod.
func (k *kubelet) age(uid types.UID) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen[uid].IsZero() {
		k.seen[uid] = time.Now()
	}
	return time.Since(k.seen[uid])
}

func (k *kubelet) next(ctx context.Context) bool {
	key, stopped := k.queue.Get()
	if stopped {
		return false
	}
	defer k.queue.Done(key)
	obj, exists, err := k.store.GetByKey(key.String())
	pod, ok := obj.(*corev1.Pod)
	if err != nil || !exists || !ok {
		return true
	}
	err = k.tend(ctx, key, pod)
	if err != nil && !apierrors.IsNotFound(err) {
		k.queue.AddRateLimited(key)
		return true
	}
	k.queue.Forget(key)
	return true
}

// tend brings a pod one step nearer to its fate.
func (k *kubelet) tend(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) error {
	f := k.fateOf(key)
	pods := k.client.CoreV1().Pods(key.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		if f.Lingering {
			return nil
		}
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}}
		return pods.Delete(ctx, pod.Name, now)
	case f.Pending:
		return nil
	case pod.Spec.NodeName == "":
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "model"},
		}
		return pods.Bind(ctx, binding, metav1.CreateOptions{})
	}
	if left := f.After - k.age(pod.UID); left > 0 {
		k.queue.AddAfter(key, left)
		return nil
	}
	wanted := f.status(pod)
	if wanted.Phase == pod.Status.Phase && isReady(wanted.Conditions) == isReady(pod.Status.Conditions) &&
		len(wanted.ContainerStatuses) == len(pod.Status.ContainerStatuses) {
		return nil
	}
	fresh := pod.DeepCopy()
	fresh.Status = wanted
	_, err := pods.UpdateStatus(ctx, fresh, metav1.UpdateOptions{})
	return err
}

// status is the status that a pod of this fate has.
func (f fate) status(pod *corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	s := *pod.Status.DeepCopy()
	if s.StartTime == nil {
		s.StartTime = &now
	}
	ready := corev1.ConditionTrue
	switch {
	case f.Failed:
		s.Phase, ready = corev1.PodFailed, corev1.ConditionFalse
	case pod.Spec.Containers[0].Image == brokenImage:
		s.Phase, ready = corev1.PodPending, corev1.ConditionFalse
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: brokenImage,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}},
		}}
	case f.Unready:
		s.Phase, ready = corev1.PodRunning, corev1.ConditionFalse
	default:
		s.Phase = corev1.PodRunning
	}
	if isReady(s.Conditions) == (ready == corev1.ConditionTrue) {
		return s
	}
	for i, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			s.Conditions[i].Status, s.Conditions[i].LastTransitionTime = ready, now
			return s
		}
	}
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: ready, LastTransitionTime: now})
	return s
}

func isReady(conditions []corev1.PodCondition) bool {
	for _, c := range conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
