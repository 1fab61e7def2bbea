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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// goal says if a set has come to where it should be.
type goal func(*appsv1.StatefulSet) bool

// at is the goal that all pods of a set are ready at the revision of its generation, and its status says so.
func at(generation int64, replicas int) goal {
	n := int32(replicas)
	return func(s *appsv1.StatefulSet) bool {
		st := s.Status
		return s.Generation >= generation && st.ObservedGeneration == s.Generation && st.Replicas == n && st.ReadyReplicas == n &&
			st.AvailableReplicas == n && st.UpdatedReplicas == n && (n == 0 || st.CurrentReplicas == n && st.CurrentRevision == st.UpdateRevision)
	}
}

// watcher sees all sets.
type watcher struct {
	store  cache.Store
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	expected *expectation
}

// expectation is that each of some sets comes to its goal.
type expectation struct {
	namespace string
	goal      goal
	unmet     map[string]bool
	// met is closed when all have come there, at the time that is in end.
	met chan struct{}
	end time.Time
}

func startWatcher(ctx context.Context, config *rest.Config) (*watcher, error) {
	client, err := kubernetes.NewForConfig(fast(config))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	sets := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(stripSet)).Apps().V1().StatefulSets().Informer()
	w := &watcher{store: sets.GetStore(), cancel: cancel}
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: w.see, UpdateFunc: func(_, obj any) { w.see(obj) }}
	if _, err := sets.AddEventHandler(handlers); err != nil {
		cancel()
		return nil, err
	}
	w.wg.Go(func() { sets.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), sets.HasSynced) {
		cancel()
		return nil, errors.New("the watcher sees no sets")
	}
	return w, nil
}

func (w *watcher) stop() {
	w.cancel()
	w.wg.Wait()
}

// stripSet keeps what goals look at.
func stripSet(obj any) (any, error) {
	if s, ok := obj.(*appsv1.StatefulSet); ok {
		s.ManagedFields, s.Annotations = nil, nil
		s.Spec = appsv1.StatefulSetSpec{Replicas: s.Spec.Replicas}
	}
	return obj, nil
}

func (w *watcher) see(obj any) {
	now := time.Now()
	s, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.expected
	if e == nil || s.Namespace != e.namespace || !e.unmet[s.Name] || !e.goal(s) {
		return
	}
	delete(e.unmet, s.Name)
	if len(e.unmet) == 0 {
		e.end = now
		close(e.met)
	}
}

// expect begins to look whether the sets come to a goal. Those that are there already are not looked at again, so the goal has to
// be one that holds only later.
func (w *watcher) expect(namespace string, g goal, names ...string) *expectation {
	e := &expectation{namespace: namespace, goal: g, unmet: map[string]bool{}, met: make(chan struct{})}
	for _, name := range names {
		e.unmet[name] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected = e
	return e
}

// wait waits until the goal is reached, and gives the time at which it was.
func (w *watcher) wait(ctx context.Context, e *expectation, limit time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-e.met:
		return e.end, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("wait for the sets: %w; %s", ctx.Err(), w.describe(e))
	}
}

// describe tells how many sets have not come to the goal, and how one of them is.
func (w *watcher) describe(e *expectation) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range e.unmet {
		obj, _, _ := w.store.GetByKey(e.namespace + "/" + name)
		if s, ok := obj.(*appsv1.StatefulSet); ok {
			return fmt.Sprintf("%d are not where they should be, one is %s at generation %d: %+v", len(e.unmet), name, s.Generation, s.Status)
		}
	}
	return fmt.Sprintf("%d are not seen", len(e.unmet))
}
