// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

const (
	nfs       = "nfs-provisioner-storage"
	nfsServed = `Normal ClassNotDefined StorageClass "nfs-provisioner-storage" is not defined; served from local storage (start with --strict-storage-classes to turn this off)`
)

func TestUndefinedClassIsServed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		claim := w.addClaim(nfs)
		w.pass(time.Second - time.Millisecond)
		w.wantNoVolume("pvc-data-db-0")
		w.pass(time.Millisecond)
		volume := w.wantVolume("pvc-data-db-0")
		ref := volume.Spec.ClaimRef
		if volume.Spec.StorageClassName != nfs || ref.UID != claim.UID || ref.Name != claim.Name || ref.Namespace != claim.Namespace {
			t.Errorf("class %q, claim %v", volume.Spec.StorageClassName, ref)
		}
		if !isOurs(volume) || !slices.Contains(volume.Finalizers, finalizer) {
			t.Errorf("annotations %v, finalizers %v: the directory would stay when the volume goes", volume.Annotations, volume.Finalizers)
		}
		w.wantEvent("data-db-0", nfsServed)
		wantListing(t, w.dir, "shop_data-db-0_pvc-data-db-0")

		volume = w.bind(claim)
		writeFile(t, volume.Spec.Local.Path+"/row", "old")
		w.pass(time.Minute)
		w.release(claim)
		w.wantNoVolume("pvc-data-db-0")
		wantListing(t, w.dir)
	})
}

// The first pod of a set waits for its class, and no other does, also after a restart.
func TestUndefinedClassIsAwaitedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.addClaim(nfs)
		w.pass(graceForClass)
		w.wantVolume("pvc-data-db-0")
		w.addClaim(nfs, named("data-db-1"))
		w.wantVolume("pvc-data-db-1")
		w.wantEvent("data-db-1", nfsServed)
		w.stop()
		w.start()
		w.addClaim(nfs, named("data-db-2"))
		w.wantVolume("pvc-data-db-2")
		w.addClaim("another", named("data-db-3"))
		w.wantNoVolume("pvc-data-db-3")
	})
}

func TestUndefinedClassByAnnotation(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.addClaim("", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = nil
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "fast"}
		})
		w.pass(graceForClass)
		if got := w.wantVolume("pvc-data-db-0").Spec.StorageClassName; got != "fast" {
			t.Errorf("class %q, want fast", got)
		}
	})
}

func TestUndefinedClassIsLeftAlone(t *testing.T) {
	tests := map[string]struct {
		strict bool
		claim  func(*corev1.PersistentVolumeClaim)
	}{
		"strict":       {strict: true},
		"bound":        {claim: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }},
		"lost":         {claim: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }},
		"volume named": {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "theirs" }},
		"deleted":      {claim: func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(metav1.Now()) }},
		"no class":     {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }},
		"empty class":  {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("") }},
		"selector":     {claim: selecting},
		"clone":        {claim: cloning},
		"populator":    {claim: populated},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start(func(o *Options) { o.Strict = tt.strict })
				claim := tt.claim
				if claim == nil {
					claim = func(*corev1.PersistentVolumeClaim) {}
				}
				w.addClaim(nfs, claim)
				w.pass(time.Hour)
				w.wantNoVolume("pvc-data-db-0")
				if events := w.events(""); len(events) > 0 {
					t.Errorf("events %q, want none", events)
				}
				wantListing(t, w.dir)
			})
		})
	}
}

func TestUndefinedClassAppears(t *testing.T) {
	for name, provisioner := range map[string]string{"another's": "example.com/nfs", "ours": ProvisionerName} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.addClaim(nfs)
				w.pass(graceForClass / 2)
				class := Class(nfs, false)
				class.Provisioner = provisioner
				w.addClass(class)
				w.pass(time.Hour)
				w.wantNoVolume("pvc-data-db-0") // It is kube-controller-manager's turn to say whose it is.
				w.wantNoEvent("data-db-0", "ClassNotDefined")
			})
		})
	}
}

// The cache may lag behind, so that the last word is the API server's.
func TestUndefinedClassIsNotInCache(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		fail := atomic.Bool{}
		w.client.PrependReactor("get", "storageclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
			if fail.Load() {
				return true, nil, errors.New("connection refused")
			}
			return true, Class(nfs, false), nil
		})
		w.addClaim(nfs)
		w.pass(time.Minute)
		w.wantNoVolume("pvc-data-db-0")
		fail.Store(true)
		w.addClaim(nfs, named("data-db-1"))
		w.pass(time.Minute)
		w.wantNoVolume("pvc-data-db-1")
	})
}

func TestUndefinedClassDisappears(t *testing.T) {
	inWorld(t, func(w *world) {
		class := Class(nfs, false)
		class.Provisioner = "example.com/nfs"
		w.addClass(class)
		w.start()
		w.addClaim(nfs)
		w.pass(time.Hour)
		w.wantNoVolume("pvc-data-db-0")
		w.check(w.client.Tracker().Delete(classesResource, "", nfs))
		w.pass(graceForClass)
		w.wantVolume("pvc-data-db-0")
	})
}

// Volumes made by hand carry the name of a class that often has no object.
func TestUndefinedClassOfVolumesMadeByHand(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addVolume(&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
			Spec:       corev1.PersistentVolumeSpec{StorageClassName: "manual", Capacity: storageOf("1Gi")},
		})
		w.start()
		w.addClaim("manual")
		w.pass(time.Hour)
		w.wantNoVolume("pvc-data-db-0")
		w.check(w.client.Tracker().Delete(volumesResource, "", "by-hand"))
		w.pass(graceForClass)
		w.wantVolume("pvc-data-db-0")
	})
}

func TestUndefinedClassOfBlockIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.addClaim(nfs, asBlock)
		w.pass(time.Hour)
		w.wantNoVolume("pvc-data-db-0")
		w.wantEvent("data-db-0", "Warning ProvisioningFailed local storage has directories, not block devices")
		wantListing(t, w.dir)
	})
}

func TestUndefinedClassAfterAPIFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.failures.Store(5)
		w.addClaim(nfs)
		w.pass(graceForClass)
		w.wantNoVolume("pvc-data-db-0")
		w.pass(retryMost)
		w.wantVolume("pvc-data-db-0")
		if n := len(slices.DeleteFunc(w.events("data-db-0"), func(e string) bool { return e != nfsServed })); n != 1 {
			t.Errorf("%d events say that the class is not defined, want 1", n)
		}
	})
}

func TestUndefinedClassWhenDiskFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		writeFile(t, w.dir+"/shop_data-db-0_pvc-data-db-0", "")
		w.addClaim(nfs)
		w.pass(graceForClass)
		w.wantNoVolume("pvc-data-db-0")
		w.wantEvent("data-db-0", "Warning ProvisioningFailed "+w.dir+"/shop_data-db-0_pvc-data-db-0 is in the way")
	})
}

// A claim that was deleted and made again within the grace is another one, with a grace of its own.
func TestUndefinedClassOfRecreatedClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.addClaim(nfs)
		w.pass(graceForClass / 2)
		w.check(w.client.Tracker().Delete(claimsResource, "shop", "data-db-0"))
		again := w.addClaim(nfs, named("data-db-0"))
		again.UID = "again"
		w.setClaim(again)
		w.pass(graceForClass / 2)
		w.wantNoVolume("pvc-data-db-0")
		w.wantNoVolume("pvc-again")
		w.pass(graceForClass / 2)
		w.wantVolume("pvc-again")
	})
}
