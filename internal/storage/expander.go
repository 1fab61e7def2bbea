// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// expander grows volumes whose claim asks for more than it has. As nobody enforces a volume's size, all there is to do
// is to say the new one: first in the volume, then in the claim's status, which is what ends the expansion.
type expander struct {
	client   kubernetes.Interface
	recorder record.EventRecorder
	claims   corelisters.PersistentVolumeClaimLister
	volumes  corelisters.PersistentVolumeLister
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

func newExpander(client kubernetes.Interface, recorder record.EventRecorder, factory informers.SharedInformerFactory) *expander {
	claims := factory.Core().V1().PersistentVolumeClaims()
	e := &expander{
		client: client, recorder: recorder,
		claims: claims.Lister(), volumes: factory.Core().V1().PersistentVolumes().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(newRateLimiter[types.NamespacedName]()),
	}
	// An error would mean that the informer has stopped, and it has not started yet.
	_, _ = claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    e.enqueue,
		UpdateFunc: func(_, claim any) { e.enqueue(claim) },
	})
	return e
}

func (e *expander) run(ctx context.Context) { work(ctx, e.queue, e.expand) }

func (e *expander) enqueue(obj any) {
	if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && wantsMore(claim) {
		e.queue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	}
}

func wantsMore(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != "" && claim.DeletionTimestamp == nil &&
		claim.Spec.Resources.Requests.Storage().Cmp(*claim.Status.Capacity.Storage()) > 0
}

func (e *expander) expand(ctx context.Context, key types.NamespacedName) error {
	claim, err := e.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !wantsMore(claim) {
		return err
	}
	volume, err := e.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return fmt.Errorf("expand claim %s: %w", key, err)
	}
	if !isOurs(volume) || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	size := claim.Spec.Resources.Requests.Storage()
	if volume.Spec.Capacity.Storage().Cmp(*size) < 0 {
		if err := e.setVolumeSize(ctx, volume, size); err != nil {
			return err
		}
	} else {
		size = volume.Spec.Capacity.Storage()
	}
	if err := e.setClaimSize(ctx, claim, size); err != nil {
		return err
	}
	e.recorder.Eventf(claim, corev1.EventTypeNormal, reasonResized,
		"the volume's size is now %s; local volumes share the disk, and their sizes are not enforced", size)
	return nil
}

func (e *expander) setVolumeSize(ctx context.Context, volume *corev1.PersistentVolume, size *resource.Quantity) error {
	patch := capacityPatch("spec", volume.UID, size)
	_, err := e.client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set size of volume %s: %w", volume.Name, err)
	}
	return nil
}

func (e *expander) setClaimSize(ctx context.Context, claim *corev1.PersistentVolumeClaim, size *resource.Quantity) error {
	patch := capacityPatch("status", claim.UID, size)
	_, err := e.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("set size of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// capacityPatch changes one object's size, and not that of another one which has taken its name.
func capacityPatch(part string, uid types.UID, size *resource.Quantity) []byte {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		part:       map[string]any{"capacity": map[string]any{"storage": size}},
	})
	if err != nil {
		panic(err) // Strings and maps always marshal.
	}
	return patch
}
