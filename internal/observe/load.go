// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// Load gives an observer of what a namespace holds now. Its caches stay as they are, and hold all of each object, other than
// those that NewInformers makes.
func Load(ctx context.Context, client kubernetes.Interface, policies PolicyClient, namespace string, o plan.Options) (*Observer, error) {
	i, err := NewInformers(client, policies, 0)
	if err != nil {
		return nil, err
	}
	for kind, list := range listers(client, policies, namespace) {
		if err := i.fill(ctx, kind, list); err != nil {
			return nil, err
		}
	}
	return New(i, NewWatermark(i), o), nil
}

// lister lists all objects of one kind.
type lister func(context.Context, metav1.ListOptions) (runtime.Object, error)

func listers(client kubernetes.Interface, policies PolicyClient, namespace string) map[plan.Kind]lister {
	apps, core := client.AppsV1(), client.CoreV1()
	all := map[plan.Kind]lister{
		plan.KindSet: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return apps.StatefulSets(namespace).List(ctx, o)
		},
		plan.KindPod: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.Pods(namespace).List(ctx, o)
		},
		plan.KindClaim: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.PersistentVolumeClaims(namespace).List(ctx, o)
		},
		plan.KindRevision: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return apps.ControllerRevisions(namespace).List(ctx, o)
		},
	}
	if policies != nil {
		all[KindPolicy] = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return policies(namespace).List(ctx, o)
		}
	}
	return all
}

// fill puts all objects of a kind into their cache. A cluster need not serve policies.
func (i *Informers) fill(ctx context.Context, kind plan.Kind, list lister) error {
	objects, err := list(ctx, metav1.ListOptions{})
	if kind == KindPolicy && apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", kind, err)
	}
	store := i.all.of(kind).GetStore()
	err = meta.EachListItem(objects, func(o runtime.Object) error { return store.Add(o) })
	if err != nil {
		return fmt.Errorf("cache %s: %w", kind, err)
	}
	return nil
}
