// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// brokenImage is an image with which pods run, and are never ready.
const brokenImage = "ordinal.invalid/broken:1"

// kubelet plays scheduler and kubelet: each pod runs at once, is ready unless its image is broken, and goes when it is told to.
type kubelet struct {
	pods  cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// runKubelet plays until the test ends.
func runKubelet(t *testing.T) {
	t.Helper()
	k := &kubelet{
		pods: informers.NewSharedInformerFactory(env.client, 0).Core().V1().Pods().Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Millisecond, time.Second)),
	}
	wake := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	if _, err := k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, obj any) { wake(obj) }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{}, 5)
	go func() {
		k.pods.RunWithContext(ctx)
		ended <- struct{}{}
	}()
	for range cap(ended) - 1 {
		go func() {
			for k.next(ctx) {
			}
			ended <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		cancel()
		k.queue.ShutDown()
		for range cap(ended) {
			<-ended
		}
	})
}

func (k *kubelet) next(ctx context.Context) bool {
	key, stopped := k.queue.Get()
	if stopped {
		return false
	}
	defer k.queue.Done(key)
	obj, exists, err := k.pods.GetStore().GetByKey(key.String())
	pod, ok := obj.(*corev1.Pod)
	if err != nil || !exists || !ok {
		return true
	}
	if err := tend(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
		k.queue.AddRateLimited(key)
		return true
	}
	k.queue.Forget(key)
	return true
}

// tend brings a pod one step on.
func tend(ctx context.Context, pod *corev1.Pod) error {
	pods := env.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	case pod.Spec.NodeName == "":
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "model"},
		}, metav1.CreateOptions{})
	case pod.Status.Phase == corev1.PodRunning:
		return nil
	}
	ready := corev1.ConditionTrue
	if pod.Spec.Containers[0].Image == brokenImage {
		ready = corev1.ConditionFalse
	}
	now := metav1.Now()
	fresh := pod.DeepCopy()
	fresh.Status.Phase, fresh.Status.StartTime = corev1.PodRunning, &now
	fresh.Status.Conditions = append(fresh.Status.Conditions,
		corev1.PodCondition{Type: corev1.PodReady, Status: ready, LastTransitionTime: now})
	_, err := pods.UpdateStatus(ctx, fresh, metav1.UpdateOptions{})
	return err
}
