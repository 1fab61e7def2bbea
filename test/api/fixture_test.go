// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type option func(*appsv1.StatefulSet)

// newSet is a set of three pods, in order, of version 1.
func newSet(options ...option) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "peers",
			Replicas:    new(int32(3)),
			Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "ordinal.dev/model:1",
					Env: []corev1.EnvVar{{Name: "VERSION", Value: "1"}},
				}}},
			},
		},
	}
	for _, o := range options {
		o(set)
	}
	return set
}

func named(name string) option {
	return func(s *appsv1.StatefulSet) { s.Name = name }
}

// of gives a set labels of its own.
func of(app string) option {
	return func(s *appsv1.StatefulSet) {
		s.Name = app
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		s.Spec.Template.Labels = map[string]string{"app": app}
	}
}

func replicas(n int32) option {
	return func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(n) }
}

func parallel(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func image(name string) option {
	return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = name }
}

func minReady(seconds int32) option {
	return func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = seconds }
}

func partition(n int32) option {
	return func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
			Type:          appsv1.RollingUpdateStatefulSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(n)},
		}
	}
}

func maxUnavailable(n int) option {
	return func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
			Type:          appsv1.RollingUpdateStatefulSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: new(intstr.FromInt(n))},
		}
	}
}

// withClaims gives each pod a claim.
func withClaims(s *appsv1.StatefulSet) {
	s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: storage("8Mi"),
			},
		},
	}}
	s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
}

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}
