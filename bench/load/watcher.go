// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watcher sees all sets and pods, and when the controller has written what a change calls for.
type watcher struct {
	sets   cache.Store
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu sync.Mutex
	// status are the changes of sets of which the status has not told yet, by the sets' UIDs.
	status map[types.UID][]expectation
	// pods are the pods of which another one is expected, by name.
	pods map[string]expectation
	// seen are the times from a change to the first write, by the kind of change.
	seen map[string][]time.Duration
	// answers are the times that the API server took for changes. They tell a slow controller from a slow machine.
	answers []time.Duration
}

// expectation is that the controller writes because of a change.
type expectation struct {
	kind       string
	generation int64
	// began is when the change was asked for or, of a pod, seen to be gone. It is zero until then.
	began time.Time
	old   types.UID
}

func startWatcher(ctx context.Context, client kubernetes.Interface) (*watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(strip))
	sets, pods := factory.Apps().V1().StatefulSets().Informer(), factory.Core().V1().Pods().Informer()
	w := &watcher{
		sets: sets.GetStore(), cancel: cancel,
		status: map[types.UID][]expectation{}, pods: map[string]expectation{}, seen: map[string][]time.Duration{},
	}
	_, err := sets.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: w.seeSet, UpdateFunc: func(_, obj any) { w.seeSet(obj) }, DeleteFunc: w.seeSetGone,
	})
	_, podErr := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.seePod, DeleteFunc: w.seePodGone})
	if err = errors.Join(err, podErr); err != nil {
		cancel()
		return nil, err
	}
	w.wg.Go(func() { sets.RunWithContext(ctx) })
	w.wg.Go(func() { pods.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), sets.HasSynced, pods.HasSynced) {
		cancel()
		return nil, errors.New("the watcher sees nothing")
	}
	return w, nil
}

func (w *watcher) stop() {
	w.cancel()
	w.wg.Wait()
}

// strip keeps what the watcher looks at.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.StatefulSet:
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec = appsv1.StatefulSetSpec{Replicas: o.Spec.Replicas}
	case *corev1.Pod:
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}}, nil
	}
	return obj, nil
}

// forget begins the measurement.
func (w *watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.status)
	clear(w.pods)
	clear(w.seen)
	w.answers = nil
}

func (w *watcher) answered(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, took)
}

// api is how long the API server took.
func (w *watcher) api() latency {
	w.mu.Lock()
	defer w.mu.Unlock()
	return summarize(w.answers)
}

// expectStatus waits for the status of a set to tell of a change of its spec. The watch may have shown that before the answer came.
func (w *watcher) expectStatus(kind string, set *appsv1.StatefulSet, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status[set.UID] = append(w.status[set.UID], expectation{kind: kind, generation: set.Generation, began: began})
	obj, found, _ := w.sets.GetByKey(namespace + "/" + set.Name)
	if now, ok := obj.(*appsv1.StatefulSet); ok && found {
		w.match(now, time.Now())
	}
}

func (w *watcher) seeSet(obj any) {
	now := time.Now()
	if set, ok := obj.(*appsv1.StatefulSet); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.match(set, now)
	}
}

// match takes off what the status of a set has told of.
func (w *watcher) match(set *appsv1.StatefulSet, now time.Time) {
	var left []expectation
	for _, e := range w.status[set.UID] {
		if set.Status.ObservedGeneration < e.generation {
			left = append(left, e)
			continue
		}
		w.seen[e.kind] = append(w.seen[e.kind], now.Sub(e.began))
	}
	if len(left) == 0 {
		delete(w.status, set.UID)
		return
	}
	w.status[set.UID] = left
}

// seeSetGone forgets what was expected of a set that is gone.
func (w *watcher) seeSetGone(obj any) {
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.status, set.UID)
	delete(w.pods, set.Name+"-0")
}

// expectPod waits for a pod of a name to go, and for the next one.
func (w *watcher) expectPod(kind, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[name] = expectation{kind: kind}
}

func (w *watcher) seePodGone(obj any) {
	now := time.Now()
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, expected := w.pods[pod.Name]; expected && e.began.IsZero() {
		e.began, e.old = now, pod.UID
		w.pods[pod.Name] = e
	}
}

func (w *watcher) seePod(obj any) {
	now := time.Now()
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, expected := w.pods[pod.Name]; expected && !e.began.IsZero() && e.old != pod.UID {
		w.seen[e.kind] = append(w.seen[e.kind], now.Sub(e.began))
		delete(w.pods, pod.Name)
	}
}

// latencies are the times from a change to the first write. What has not been written for longer than the limit counts as
// having taken until now.
func (w *watcher) latencies(limit time.Duration) map[string]latency {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, open := time.Now(), map[string]int{}
	late := func(e expectation) {
		if since := now.Sub(e.began); !e.began.IsZero() && since > limit {
			w.seen[e.kind] = append(w.seen[e.kind], since)
			open[e.kind]++
		}
	}
	for _, all := range w.status {
		for _, e := range all {
			late(e)
		}
	}
	for _, e := range w.pods {
		late(e)
	}
	summed := map[string]latency{}
	for kind, times := range w.seen {
		l := summarize(times)
		l.Open = open[kind]
		summed[kind] = l
	}
	return summed
}

// settled waits until every set is as wanted and its status says so.
func (w *watcher) settled(ctx context.Context, wanted map[string]int32, limit time.Duration) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		last = w.unsettled(wanted)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

func (w *watcher) unsettled(wanted map[string]int32) error {
	var example error
	open := 0
	for name, size := range wanted {
		obj, _, err := w.sets.GetByKey(namespace + "/" + name)
		if err != nil {
			return err
		}
		set, found := obj.(*appsv1.StatefulSet)
		if !found {
			example = fmt.Errorf("%s is not there", name)
			open++
		} else if !isRight(set, size) {
			example = fmt.Errorf("%s should have %d, is at generation %d: %+v", name, size, set.Generation, set.Status)
			open++
		}
	}
	if open > 0 {
		return fmt.Errorf("%d of %d sets are not right; %w", open, len(wanted), example)
	}
	return nil
}

func isRight(set *appsv1.StatefulSet, size int32) bool {
	s := set.Status
	return *set.Spec.Replicas == size && s.ObservedGeneration == set.Generation && s.CurrentRevision == s.UpdateRevision &&
		s.Replicas == size && s.ReadyReplicas == size && s.UpdatedReplicas == size
}
