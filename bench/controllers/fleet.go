// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const (
	// image is never pulled.
	image = "registry.example/db:1"
	// claimTemplate is the name of the template of claims.
	claimTemplate = "data"
	// hands is how many requests are made at once when many sets are made, changed or deleted.
	hands = 8
)

// fleet is a number of equal sets in a namespace of their own.
type fleet struct {
	sets, replicas int
	parallel       bool
	claims         bool
}

func (f fleet) pods() int { return f.sets * f.replicas }

func setName(n int) string { return fmt.Sprintf("db-%04d", n) }

// each calls do for each set, several at once.
func (f fleet) each(ctx context.Context, do func(ctx context.Context, name string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(hands)
	for n := range f.sets {
		group.Go(func() error { return do(ctx, setName(n)) })
	}
	return group.Wait()
}

func (f fleet) create(ctx context.Context, client kubernetes.Interface, namespace string) error {
	return f.each(ctx, func(ctx context.Context, name string) error {
		_, err := client.AppsV1().StatefulSets(namespace).Create(ctx, f.set(name), metav1.CreateOptions{})
		return err
	})
}

// patch changes all sets in the same way.
func (f fleet) patch(ctx context.Context, client kubernetes.Interface, namespace, patch string) error {
	return f.each(ctx, func(ctx context.Context, name string) error {
		return patchSet(ctx, client, namespace, name, patch)
	})
}

func patchSet(ctx context.Context, client kubernetes.Interface, namespace, name, patch string) error {
	_, err := client.AppsV1().StatefulSets(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// remove deletes all that is in a namespace, which itself stays: nothing in the control plane would finish its deletion.
func (f fleet) remove(ctx context.Context, client kubernetes.Interface, namespace string) error {
	now, all := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return client.AppsV1().StatefulSets(namespace).DeleteCollection(ctx, now, all) })
	group.Go(func() error { return client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, all) })
	group.Go(func() error { return client.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(ctx, now, all) })
	group.Go(func() error { return client.AppsV1().ControllerRevisions(namespace).DeleteCollection(ctx, now, all) })
	group.Go(func() error { return client.CoreV1().Events(namespace).DeleteCollection(ctx, now, all) })
	return group.Wait()
}

// set is like those that people have: of what a controller keeps and copies, the template is the most.
func (f fleet) set(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app.kubernetes.io/name": "db", "app.kubernetes.io/instance": name, "app.kubernetes.io/part-of": "bench"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(f.replicas)), ServiceName: name,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"example.com/config": "0"}},
				Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{container()}},
			},
		},
	}
	if f.parallel {
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	if f.claims {
		set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: claimTemplate, MountPath: "/var/lib/db"}}
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: claimTemplate},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}}
	}
	return set
}

func container() corev1.Container {
	return corev1.Container{
		Name: "main", Image: image, Args: []string{"--listen=:5432", "--data=/var/lib/db", "--peers=db"},
		Ports: []corev1.ContainerPort{{Name: "db", ContainerPort: 5432}},
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "LOG_LEVEL", Value: "info"},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("db")}},
			PeriodSeconds: 5,
		},
	}
}
