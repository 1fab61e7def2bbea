// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// client is what one controller has of the API server. Each call waits until the world answers it. What a controller does not
// ask for is not there, so that it fails loudly.
type client struct {
	kubernetes.Interface

	world *World
	by    *instance
}

// IsWatchListSemanticsUnSupported says that a watch does not begin with what is there.
func (*client) IsWatchListSemanticsUnSupported() bool { return true }

// AppsV1 serves sets and revisions.
func (c *client) AppsV1() typedappsv1.AppsV1Interface { return apps{client: c} }

// CoreV1 serves pods and claims.
func (c *client) CoreV1() typedcorev1.CoreV1Interface { return core{client: c} }

type apps struct {
	typedappsv1.AppsV1Interface

	client *client
}

type core struct {
	typedcorev1.CoreV1Interface

	client *client
}

// The methods of these are found before those of the interfaces, which are one level deeper.
type (
	restOfSets struct {
		typedappsv1.StatefulSetInterface
	}
	restOfRevisions struct {
		typedappsv1.ControllerRevisionInterface
	}
	restOfPods   struct{ typedcorev1.PodInterface }
	restOfClaims struct {
		typedcorev1.PersistentVolumeClaimInterface
	}

	sets struct {
		restOfSets
		calls[*appsv1.StatefulSet, *appsv1.StatefulSetList]
	}
	revisions struct {
		restOfRevisions
		calls[*appsv1.ControllerRevision, *appsv1.ControllerRevisionList]
	}
	pods struct {
		restOfPods
		calls[*corev1.Pod, *corev1.PodList]
	}
	claims struct {
		restOfClaims
		calls[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]
	}
)

// StatefulSets serves sets.
func (a apps) StatefulSets(string) typedappsv1.StatefulSetInterface {
	list := func(objects []object) *appsv1.StatefulSetList {
		return &appsv1.StatefulSetList{Items: items[appsv1.StatefulSet](objects)}
	}
	return sets{calls: calls[*appsv1.StatefulSet, *appsv1.StatefulSetList]{a.client, plan.KindSet, list}}
}

// ControllerRevisions serves revisions.
func (a apps) ControllerRevisions(string) typedappsv1.ControllerRevisionInterface {
	list := func(objects []object) *appsv1.ControllerRevisionList {
		return &appsv1.ControllerRevisionList{Items: items[appsv1.ControllerRevision](objects)}
	}
	return revisions{calls: calls[*appsv1.ControllerRevision, *appsv1.ControllerRevisionList]{a.client, plan.KindRevision, list}}
}

// Pods serves pods.
func (c core) Pods(string) typedcorev1.PodInterface {
	list := func(objects []object) *corev1.PodList { return &corev1.PodList{Items: items[corev1.Pod](objects)} }
	return pods{calls: calls[*corev1.Pod, *corev1.PodList]{c.client, plan.KindPod, list}}
}

// PersistentVolumeClaims serves claims.
func (c core) PersistentVolumeClaims(string) typedcorev1.PersistentVolumeClaimInterface {
	list := func(objects []object) *corev1.PersistentVolumeClaimList {
		return &corev1.PersistentVolumeClaimList{Items: items[corev1.PersistentVolumeClaim](objects)}
	}
	return claims{calls: calls[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]{c.client, plan.KindClaim, list}}
}

// items are copies of objects as the items of a list.
func items[T any](objects []object) []T {
	list := make([]T, 0, len(objects))
	for _, o := range objects {
		if item, ok := o.DeepCopyObject().(any).(*T); ok {
			list = append(list, *item)
		}
	}
	return list
}

// calls are the calls for one kind.
type calls[T object, L runtime.Object] struct {
	client *client
	kind   plan.Kind
	list   func([]object) L
}

// ask makes a call and waits for its answer, which is a copy.
func (c calls[T, L]) ask(ctx context.Context, k *call) (T, error) {
	var none T
	k.kind = c.kind
	a, err := c.client.ask(ctx, k)
	if err != nil {
		return none, err
	}
	if a.object == nil {
		return none, nil
	}
	o, ok := a.object.DeepCopyObject().(T)
	if !ok {
		return none, fmt.Errorf("a %T is no %s", a.object, c.kind)
	}
	return o, nil
}

// Get gives an object.
func (c calls[T, L]) Get(ctx context.Context, name string, _ metav1.GetOptions) (T, error) {
	return c.ask(ctx, &call{verb: verbGet, name: name})
}

// Create creates an object.
func (c calls[T, L]) Create(ctx context.Context, o T, _ metav1.CreateOptions) (T, error) {
	return c.ask(ctx, &call{verb: verbCreate, name: o.GetName(), object: o})
}

// Patch changes an object.
func (c calls[T, L]) Patch(
	ctx context.Context, name string, how types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (T, error) {
	b, err := parse(data)
	if err != nil {
		var none T
		return none, apierrors.NewBadRequest(err.Error())
	}
	return c.ask(ctx, &call{verb: verbPatch, name: name, how: how, body: b})
}

// UpdateStatus replaces the status of a set.
func (s sets) UpdateStatus(ctx context.Context, set *appsv1.StatefulSet, _ metav1.UpdateOptions) (*appsv1.StatefulSet, error) {
	k := &call{verb: verbStatus, name: set.Name, body: body{Status: set.Status.DeepCopy()}}
	k.body.Metadata.UID, k.body.Metadata.ResourceVersion = set.UID, set.ResourceVersion
	return s.ask(ctx, k)
}

// Delete deletes an object.
func (c calls[T, L]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	_, err := c.ask(ctx, &call{verb: verbDelete, name: name, options: o})
	return err
}

// List lists all objects, as a cache is filled with them.
func (c calls[T, L]) List(ctx context.Context, _ metav1.ListOptions) (L, error) {
	var none L
	a, err := c.client.ask(ctx, &call{verb: verbList, kind: c.kind})
	if err != nil {
		return none, err
	}
	list := c.list(a.listed)
	if l, ok := any(list).(metav1.ListInterface); ok {
		l.SetResourceVersion(a.version)
	}
	return list, nil
}

// Watch gives the events that follow the last list.
func (c calls[T, L]) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return c.client.by.watch(c.kind), nil
}

// ask hands a call to the world. A call whose time is over is given up by the controller, and may be carried out all the same.
func (c *client) ask(ctx context.Context, k *call) (answer, error) {
	k.by, k.answers = c.by, make(chan answer, 1)
	if c.by.dead.Load() {
		return answer{}, errDead
	}
	c.world.arrive <- k
	select {
	case a := <-k.answers:
		return a, a.err
	case <-ctx.Done():
		k.abandoned.Store(true)
		return answer{}, ctx.Err()
	}
}
