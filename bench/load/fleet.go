// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ordinal-dev/ordinal/bench/rig"
)

const (
	namespace = metav1.NamespaceDefault
	setLabel  = "set"
	// hands is how many requests the bench makes at once.
	hands = 16
)

// The kinds of changes.
const (
	scaled     = "scale"
	rolled     = "template"
	podDeleted = "pod deleted"
	setDeleted = "set deleted and made again"
)

// fleet is all sets, and what they should be.
type fleet struct {
	client   kubernetes.Interface
	watcher  *watcher
	random   *rand.Rand
	replicas int

	mu sync.Mutex
	// sizes are the replicas that each set should have, by name.
	sizes map[string]int32
	// busy are the sets that somebody changes at the moment.
	busy map[string]bool
	done map[string]int
	turn int
}

func newFleet(client kubernetes.Interface, w *watcher, random *rand.Rand, sets, replicas int) *fleet {
	f := &fleet{
		client: client, watcher: w, random: random, replicas: replicas,
		sizes: map[string]int32{}, busy: map[string]bool{}, done: map[string]int{},
	}
	for n := range sets {
		f.sizes[setName(n)] = int32(replicas)
	}
	return f
}

func setName(n int) string { return fmt.Sprintf("db-%04d", n) }

// wanted are the sizes of the sets now.
func (f *fleet) wanted() map[string]int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.sizes)
}

func (f *fleet) createAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(hands)
	for name, size := range f.wanted() {
		group.Go(func() error {
			_, err := f.client.AppsV1().StatefulSets(namespace).Create(ctx, set(name, size), metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// change is one that is to be made.
type change struct {
	kind, set string
	size      int32
	turn      int
}

// churn makes so many changes per second for a time. It waits for those that it has begun.
func (f *fleet) churn(ctx context.Context, rate float64, d time.Duration) error {
	group, making := errgroup.WithContext(ctx)
	group.SetLimit(4 * hands)
	began := time.Now()
	for n := 1; ; n++ {
		due := began.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		if due.After(began.Add(d)) {
			break
		}
		if err := rig.Pause(making, time.Until(due)); err != nil {
			break
		}
		if next := f.next(); next.set != "" {
			group.Go(func() error { return f.make(making, next) })
		}
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// next draws a change of a set that nobody changes now.
func (f *fleet) next() change {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := setName(f.random.IntN(len(f.sizes)))
	if f.busy[name] {
		return change{}
	}
	f.busy[name] = true
	f.turn++
	next := change{set: name, turn: f.turn, size: f.sizes[name], kind: setDeleted}
	switch n := f.random.IntN(20); {
	case n < 10:
		next.kind = scaled
		if next.size = max(1, int32(f.replicas-2+f.random.IntN(4))); next.size >= f.sizes[name] {
			next.size++ // a change has to be one
		}
	case n < 12:
		next.kind = rolled
	case n < 18:
		next.kind = podDeleted
	}
	f.sizes[name] = next.size
	f.done[next.kind]++
	return next
}

func (f *fleet) make(ctx context.Context, c change) error {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.busy, c.set)
	}()
	var err error
	switch c.kind {
	case scaled:
		err = f.patch(ctx, c, fmt.Sprintf(`{"spec":{"replicas":%d}}`, c.size))
	case rolled:
		err = f.patch(ctx, c, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"example.com/turn":"%d"}}}}}`, c.turn))
	case podDeleted:
		err = f.deletePod(ctx, c)
	default:
		err = f.recreate(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("%s, %s: %w", c.kind, c.set, err)
	}
	return nil
}

// patch changes a set. The controller has written when the status has seen the change.
func (f *fleet) patch(ctx context.Context, c change, patch string) error {
	began := time.Now()
	set, err := f.client.AppsV1().StatefulSets(namespace).Patch(ctx, c.set, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err == nil {
		f.watcher.answered(time.Since(began))
		f.watcher.expectStatus(c.kind, set, began)
	}
	return err
}

// deletePod deletes the first pod of a set. The controller has written when there is another one.
func (f *fleet) deletePod(ctx context.Context, c change) error {
	name := c.set + "-0"
	f.watcher.expectPod(c.kind, name)
	err := f.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) { // an earlier change has taken it
		return nil
	}
	return err
}

// recreate deletes a set and makes it anew. The controller has written when the new one has a status.
func (f *fleet) recreate(ctx context.Context, c change) error {
	sets := f.client.AppsV1().StatefulSets(namespace)
	if err := sets.Delete(ctx, c.set, metav1.DeleteOptions{}); err != nil {
		return err
	}
	began := time.Now()
	made, err := sets.Create(ctx, set(c.set, c.size), metav1.CreateOptions{})
	if err == nil {
		f.watcher.expectStatus(c.kind, made, began)
	}
	return err
}

// count is how many changes of each kind were made.
func (f *fleet) count() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.done)
}

func (f *fleet) since(earlier map[string]int) map[string]int {
	now := f.count()
	for kind := range now {
		now[kind] -= earlier[kind]
	}
	return now
}

// set is one of the fleet. Every second one starts its pods all at once.
func set(name string, size int32) *appsv1.StatefulSet {
	labels := map[string]string{setLabel: name}
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(size), ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"example.com/turn": "0"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "example.com/db:1", Args: []string{"--listen=:5432", "--data=/var/lib/db"},
					Ports: []corev1.ContainerPort{{Name: "db", ContainerPort: 5432}},
					Env:   []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}},
				}}},
			},
		},
	}
	if (name[len(name)-1]-'0')%2 == 0 {
		s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	return s
}
