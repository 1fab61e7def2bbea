// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe reads what the API server holds, through caches, and gives snapshots to plan from. Nothing else reads.
package observe

import (
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

// Names of indexes.
const (
	// byOwner finds pods and revisions by the UID of their controller.
	byOwner = "owner"
	// bySet finds pods by the namespace and set that their names tell.
	bySet = "set"
	// byOrphan finds revisions without a controller by namespace.
	byOrphan = "orphan"
)

// Informers are the caches of all objects that matter to StatefulSets.
type Informers struct {
	factory                       informers.SharedInformerFactory
	sets, pods, claims, revisions cache.SharedIndexInformer
}

// NewInformers makes the caches. They are empty until they are started.
func NewInformers(client kubernetes.Interface, resync time.Duration) (*Informers, error) {
	f := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(strip))
	i := &Informers{
		factory:   f,
		sets:      f.Apps().V1().StatefulSets().Informer(),
		pods:      f.Core().V1().Pods().Informer(),
		claims:    f.Core().V1().PersistentVolumeClaims().Informer(),
		revisions: f.Apps().V1().ControllerRevisions().Informer(),
	}
	err := errors.Join(
		i.pods.AddIndexers(cache.Indexers{byOwner: ownerIndex, bySet: setIndex}),
		i.revisions.AddIndexers(cache.Indexers{byOwner: ownerIndex, byOrphan: orphanIndex}),
	)
	if err != nil {
		return nil, fmt.Errorf("add indexes: %w", err)
	}
	return i, nil
}

// Start fills the caches and keeps them up to date until stop is closed. It returns at once.
func (i *Informers) Start(stop <-chan struct{}) {
	i.factory.Start(stop)
}

// WaitForSync waits until the caches are filled; false if stop is closed before.
func (i *Informers) WaitForSync(stop <-chan struct{}) bool {
	return cache.WaitForCacheSync(stop, i.sets.HasSynced, i.pods.HasSynced, i.claims.HasSynced, i.revisions.HasSynced)
}

// Shutdown waits until the caches have stopped. Their stop channel has to be closed before.
func (i *Informers) Shutdown() {
	i.factory.Shutdown()
}

func (i *Informers) of(k plan.Kind) cache.SharedIndexInformer {
	switch k {
	case plan.KindSet:
		return i.sets
	case plan.KindPod:
		return i.pods
	case plan.KindClaim:
		return i.claims
	case plan.KindRevision:
		return i.revisions
	}
	return nil
}

// strip drops what planning does not need before an object is cached. Writes are patches, so nothing is lost by it.
func strip(obj any) (any, error) {
	// What is no object is a tombstone, and the object in it has been stripped.
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Annotations = nil
		o.Spec = corev1.PodSpec{Volumes: claimVolumes(o.Spec.Volumes)}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, Conditions: o.Status.Conditions}
	case *corev1.PersistentVolumeClaim:
		o.Annotations = nil
		o.Spec = corev1.PersistentVolumeClaimSpec{}
		o.Status = corev1.PersistentVolumeClaimStatus{}
	}
	return obj, nil
}

func claimVolumes(volumes []corev1.Volume) []corev1.Volume {
	var kept []corev1.Volume
	for i := range volumes {
		if volumes[i].PersistentVolumeClaim != nil {
			kept = append(kept, volumes[i])
		}
	}
	return kept
}

func ownerIndex(obj any) ([]string, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	owner := metav1.GetControllerOfNoCopy(accessor)
	if owner == nil {
		return nil, nil
	}
	return []string{string(owner.UID)}, nil
}

func setIndex(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	name, ok := ordinal.ParsePod(pod.Name)
	if !ok {
		return nil, nil
	}
	return []string{pod.Namespace + "/" + name.Set}, nil
}

func orphanIndex(obj any) ([]string, error) {
	r, ok := obj.(*appsv1.ControllerRevision)
	if !ok || metav1.GetControllerOfNoCopy(r) != nil {
		return nil, nil
	}
	return []string{r.Namespace}, nil
}
