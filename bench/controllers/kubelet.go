// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// kubeletWorkers is how many pods the kubelet works on at once.
const kubeletWorkers = 16

// node is the one that all pods are on from the beginning, so that no scheduler is needed.
const node = "model"

// kubelet plays the kubelet for all pods: each is ready after its pace, and as long after it was told to go it is gone.
type kubelet struct {
	client kubernetes.Interface
	store  cache.Store
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// pace is how long pods take, in nanoseconds.
	pace atomic.Int64

	mu    sync.Mutex
	ready map[types.UID]*readiness
}

// readiness is how a pod became ready.
type readiness struct {
	pod types.NamespacedName
	// asked is when the API server was asked to write it down.
	asked time.Time
	// known is the first moment at which anybody can have known of it: when the answer came, or when a watch showed it.
	known time.Time
}

func startKubelet(ctx context.Context, config *rest.Config) (*kubelet, error) {
	client, err := kubernetes.NewForConfig(fast(config))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(stripPod))
	pods := factory.Core().V1().Pods().Informer()
	k := &kubelet{
		client: client, store: pods.GetStore(), cancel: cancel,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Millisecond, time.Second)),
		ready: map[types.UID]*readiness{},
	}
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: k.see, UpdateFunc: func(_, obj any) { k.see(obj) }}
	if _, err := pods.AddEventHandler(handlers); err != nil {
		cancel()
		return nil, err
	}
	k.wg.Go(func() { pods.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		cancel()
		return nil, errors.New("the kubelet sees no pods")
	}
	for range kubeletWorkers {
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

// stripPod keeps what the kubelet looks at.
func stripPod(obj any) (any, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		p.ManagedFields, p.Annotations = nil, nil
		p.Spec = corev1.PodSpec{}
	}
	return obj, nil
}

// see is told of each change of a pod.
func (k *kubelet) see(obj any) {
	now := time.Now()
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	if isReady(p) && p.DeletionTimestamp == nil {
		k.note(p.UID, now)
		return
	}
	k.queue.AddAfter(types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, time.Duration(k.pace.Load()))
}

// note keeps the first moment at which it was known that a pod is ready.
func (k *kubelet) note(uid types.UID, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.ready[uid]; r != nil && (r.known.IsZero() || now.Before(r.known)) {
		r.known = now
	}
}

// take gives, in the order in which they became ready, the pods that did so since it was called last.
func (k *kubelet) take() []readiness {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []readiness
	for _, r := range k.ready {
		if !r.known.IsZero() {
			all = append(all, *r)
		}
	}
	clear(k.ready)
	slices.SortFunc(all, func(a, b readiness) int { return a.known.Compare(b.known) })
	return all
}

func (k *kubelet) next(ctx context.Context) bool {
	key, stopped := k.queue.Get()
	if stopped {
		return false
	}
	defer k.queue.Done(key)
	obj, exists, err := k.store.GetByKey(key.String())
	p, ok := obj.(*corev1.Pod)
	if err != nil || !exists || !ok {
		k.queue.Forget(key)
		return true
	}
	if err := k.tend(ctx, p); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		k.queue.AddRateLimited(key)
		return true
	}
	k.queue.Forget(key)
	return true
}

// tend makes a pod ready, or lets it go.
func (k *kubelet) tend(ctx context.Context, p *corev1.Pod) error {
	pods := k.client.CoreV1().Pods(p.Namespace)
	if p.DeletionTimestamp != nil {
		return pods.Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
	}
	if isReady(p) {
		return nil
	}
	patch, err := readyPatch(p.UID, metav1.Now())
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.ready[p.UID] = &readiness{pod: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, asked: time.Now()}
	k.mu.Unlock()
	if _, err = pods.Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err == nil {
		k.note(p.UID, time.Now())
	}
	return err
}

// readyPatch is what a kubelet writes when all containers of a pod run and are ready.
func readyPatch(uid types.UID, now metav1.Time) ([]byte, error) {
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
	}
	type metadata struct {
		UID types.UID `json:"uid"`
	}
	return json.Marshal(struct {
		Metadata metadata         `json:"metadata"`
		Status   corev1.PodStatus `json:"status"`
	}{
		Metadata: metadata{uid},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &now, HostIP: "192.0.2.1", PodIP: "192.0.2.2",
			Conditions: []corev1.PodCondition{
				condition(corev1.PodScheduled), condition(corev1.PodInitialized), condition(corev1.ContainersReady), condition(corev1.PodReady),
			},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Ready: true, Started: new(true), Image: image, ImageID: image,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			}},
		},
	})
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
