// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// Class returns a StorageClass that has its claims served by this package.
//
// It binds immediately, although local volumes usually wait for their first consumer: with one node there is no choice
// of node to wait for, and waiting is slow. A claim that waits for its consumer is bound by the scheduler, which looks
// for the result once a second, the first time after a full second, so that every pod with a new claim loses at least
// that. A claim that binds immediately needs six writes in a row and no timer: the scheduler tries its pod in vain
// until then, but each change of the claim or the volume brings the pod back, and a pod that is backing off is taken
// early when nothing else is to be scheduled.
//
// It allows expansion, which is true to what the volumes are: their size is a number that nobody enforces, before
// the expansion and after it.
func Class(name string, isDefault bool) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		TypeMeta:             metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta:           metav1.ObjectMeta{Name: name},
		Provisioner:          ProvisionerName,
		ReclaimPolicy:        new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode:    new(storagev1.VolumeBindingImmediate),
		AllowVolumeExpansion: new(true),
	}
	if isDefault {
		class.Annotations = map[string]string{defaultClassAnnotation: "true"}
	}
	return class
}
