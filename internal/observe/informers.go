// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe reads what the API server holds, through caches, and gives snapshots to plan from. Nothing else reads.
package observe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// Names of indexes.
const (
	// byOwner finds pods and revisions by the UID of their controller.
	byOwner = "owner"
	// bySet finds pods by the namespace and set that their names tell.
	bySet = "set"
	// byOrphan finds revisions without a controller by namespace.
	byOrphan = "orphan"
	// byTarget finds policies by the namespace and name of the set that they name.
	byTarget = "target"
)

// Informers are the caches of all objects that matter to StatefulSets.
type Informers struct {
	factory                       informers.SharedInformerFactory
	sets, pods, claims, revisions cache.SharedIndexInformer
	// policies is nil if none are looked for.
	policies *policies
	running  sync.WaitGroup
}

// NewInformers makes the caches. They are empty until they are started.
func NewInformers(client kubernetes.Interface, policies PolicyClient, resync time.Duration) (*Informers, error) {
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
	if policies != nil {
		if i.policies, err = newPolicies(policies, resync); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// Start fills the caches and keeps them up to date until ctx is done. It returns at once.
func (i *Informers) Start(ctx context.Context) {
	i.factory.StartWithContext(ctx)
	if i.policies != nil {
		i.running.Go(func() { i.policies.RunWithContext(ctx) })
	}
}

// WaitForSync waits until the caches are filled; false if stop is closed before. Policies are waited for too if the cluster
// serves them, as one may say that nothing is to be done.
func (i *Informers) WaitForSync(stop <-chan struct{}) bool {
	filled := []cache.InformerSynced{i.sets.HasSynced, i.pods.HasSynced, i.claims.HasSynced, i.revisions.HasSynced}
	if i.policies != nil {
		filled = append(filled, i.policies.isKnown)
	}
	return cache.WaitForCacheSync(stop, filled...)
}

// Shutdown waits until the caches have stopped. Their context has to be done before.
func (i *Informers) Shutdown() {
	i.factory.Shutdown()
	i.running.Wait()
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
	case KindPolicy:
		if i.policies != nil {
			return i.policies
		}
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
		stripPod(o)
	case *corev1.PersistentVolumeClaim:
		o.Annotations = nil
		o.Spec = corev1.PersistentVolumeClaimSpec{}
		o.Status = corev1.PersistentVolumeClaimStatus{}
	}
	return obj, nil
}

func stripPod(p *corev1.Pod) {
	var told map[string]string
	for _, name := range []string{v1alpha1.StopReasonAnnotation, v1alpha1.StopAtAnnotation} {
		if value, ok := p.Annotations[name]; ok {
			if told == nil {
				told = map[string]string{}
			}
			told[name] = value
		}
	}
	p.Annotations = told
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Volumes: claimVolumes(p.Spec.Volumes)}
	full := p.Status
	p.Status = corev1.PodStatus{Phase: full.Phase, Reason: full.Reason, Conditions: full.Conditions}
	if !podstate.IsReady(p) {
		// They tell what is wrong with the pod.
		p.Status.InitContainerStatuses = stripContainers(full.InitContainerStatuses)
		p.Status.ContainerStatuses = stripContainers(full.ContainerStatuses)
	}
}

// stripContainers leaves of containers what they wait for and how they ended.
func stripContainers(full []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range full {
		s := &full[i]
		kept = append(kept, corev1.ContainerStatus{
			Name:                 s.Name,
			Image:                s.Image,
			Ready:                s.Ready,
			RestartCount:         s.RestartCount,
			State:                stripState(s.State),
			LastTerminationState: stripState(s.LastTerminationState),
		})
	}
	return kept
}

func stripState(full corev1.ContainerState) corev1.ContainerState {
	var kept corev1.ContainerState
	if w := full.Waiting; w != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}
	}
	if t := full.Terminated; t != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, FinishedAt: t.FinishedAt}
	}
	return kept
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
