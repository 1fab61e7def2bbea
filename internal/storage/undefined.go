// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/util"
)

// graceForClass is how long a claim waits for a class that is not there: it may stand further down in the manifest.
const graceForClass = time.Second

// byClass indexes volumes by the class that they carry.
const byClass = "class"

// undefinedClasses serves claims that name a class nobody defined, as if it were a class of ours that deletes.
//
// No class is made for them: its real one may come later, and with another provisioner. The volume carries the claim's
// class, which is all that binding looks at.
//
// A class without an object is also how volumes made by hand are told apart. So a class that any volume made by someone
// else carries counts as defined.
type undefinedClasses struct {
	client   kubernetes.Interface
	recorder record.EventRecorder
	source   *provisioner
	claims   corelisters.PersistentVolumeClaimLister
	volumes  cache.Indexer
	classes  storagelisters.StorageClassLister
	queue    workqueue.TypedRateLimitingInterface[claimKey]
}

// claimKey names one claim, not also a later one of the same name.
type claimKey struct {
	types.NamespacedName
	uid types.UID
}

func newUndefinedClasses(client kubernetes.Interface, recorder record.EventRecorder, source *provisioner,
	factory informers.SharedInformerFactory,
) *undefinedClasses {
	claims, volumes, classes := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes(), factory.Storage().V1().StorageClasses()
	u := &undefinedClasses{
		client: client, recorder: recorder, source: source,
		claims: claims.Lister(), volumes: volumes.Informer().GetIndexer(), classes: classes.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(newRateLimiter[claimKey]()),
	}
	// Errors of the registrations below mean that the informer has stopped, and nothing has started yet.
	_ = volumes.Informer().AddIndexers(cache.Indexers{byClass: func(obj any) ([]string, error) {
		if volume, ok := obj.(*corev1.PersistentVolume); ok {
			return []string{volume.Spec.StorageClassName}, nil
		}
		return nil, nil
	}})
	_, _ = claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    u.enqueue,
		UpdateFunc: func(_, claim any) { u.enqueue(claim) },
	})
	// A class becomes undefined when it is deleted, and when the last volume is that was made for it by hand.
	_, _ = classes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: u.enqueueAll})
	_, _ = volumes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if volume, ok := obj.(*corev1.PersistentVolume); ok && isOurs(volume) {
			return
		}
		u.enqueueAll(obj)
	}})
	return u
}

func (u *undefinedClasses) run(ctx context.Context) { work(ctx, u.queue, u.serve) }

func (u *undefinedClasses) enqueue(obj any) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || !u.concerns(claim) {
		return
	}
	key := claimKey{types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID}
	if u.servedBefore(util.GetPersistentVolumeClaimClass(claim)) {
		u.queue.Add(key)
		return
	}
	u.queue.AddAfter(key, graceForClass)
}

func (u *undefinedClasses) enqueueAll(any) {
	claims, err := u.claims.List(labels.Everything())
	if err != nil {
		return // The cache of an informer has no errors.
	}
	for _, claim := range claims {
		u.enqueue(claim)
	}
}

// concerns tells whether a claim wants a volume of a class that is not defined.
func (u *undefinedClasses) concerns(claim *corev1.PersistentVolumeClaim) bool {
	spec := &claim.Spec
	if claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimPending {
		return false
	}
	if spec.VolumeName != "" || spec.Selector != nil || spec.DataSource != nil || spec.DataSourceRef != nil {
		return false
	}
	class := util.GetPersistentVolumeClaimClass(claim)
	if class == "" { // Wants no dynamic provisioning, or awaits that there is a default class.
		return false
	}
	_, err := u.classes.Get(class)
	return apierrors.IsNotFound(err)
}

// servedBefore tells that there are volumes of the class. If they have come from here the next one need not wait, so that
// only the first pod of a set starts a second late. If they have not, serve leaves the claim alone.
func (u *undefinedClasses) servedBefore(class string) bool {
	return len(u.volumesOf(class)) > 0
}

func (u *undefinedClasses) volumesOf(class string) []any {
	volumes, err := u.volumes.ByIndex(byClass, class)
	if err != nil {
		return nil // The index exists.
	}
	return volumes
}

func madeByOthers(volumes []any) bool {
	for _, obj := range volumes {
		if volume, ok := obj.(*corev1.PersistentVolume); ok && !isOurs(volume) {
			return true
		}
	}
	return false
}

func isOurs(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[provisionedBy] == ProvisionerName
}

// serve gives a claim its volume if it still has need of one and its class still does not exist.
func (u *undefinedClasses) serve(ctx context.Context, key claimKey) error {
	claim, err := u.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || claim.UID != key.uid || !u.concerns(claim) {
		return err
	}
	class := util.GetPersistentVolumeClaimClass(claim)
	if _, exists, _ := u.volumes.GetByKey(volumeName(claim)); exists || madeByOthers(u.volumesOf(class)) {
		return nil
	}
	// The cache may not have heard yet.
	_, err = u.client.StorageV1().StorageClasses().Get(ctx, class, metav1.GetOptions{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get StorageClass %q of claim %s: %w", class, key.NamespacedName, err)
	}
	if u.source.checkClaim(claim) == nil {
		return u.provision(ctx, claim, class)
	}
	return nil // The claim has an event that says why.
}

func (u *undefinedClasses) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, class string) error {
	volume, err := u.source.volumeFor(claim, volumeName(claim))
	if err != nil {
		u.recorder.Event(claim, corev1.EventTypeWarning, reasonProvisioningFailed, err.Error())
		return err
	}
	volume.Spec.StorageClassName = class
	volume.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}
	_, err = u.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create volume %s: %w", volume.Name, err)
	}
	u.recorder.Eventf(claim, corev1.EventTypeNormal, reasonClassNotDefined,
		"StorageClass %q is not defined; served from local storage (start with --strict-storage-classes to turn this off)", class)
	return nil
}
