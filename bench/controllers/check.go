// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// world is what the API server holds of a namespace.
type world struct {
	sets   []appsv1.StatefulSet
	pods   map[string]*corev1.Pod
	claims map[string]bool
}

func look(ctx context.Context, client kubernetes.Interface, namespace string) (world, error) {
	w := world{pods: map[string]*corev1.Pod{}, claims: map[string]bool{}}
	sets, err := client.AppsV1().StatefulSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	claims, err := client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	w.sets = sets.Items
	for i := range pods.Items {
		w.pods[pods.Items[i].Name] = &pods.Items[i]
	}
	for i := range claims.Items {
		w.claims[claims.Items[i].Name] = true
	}
	return w, nil
}

// check says what is wrong with the end state of a fleet: each set has exactly the pods that it asks for, each pod is ready, at
// the revision that the set's status names, and has its claim, and the counters are true.
func (w world) check(f fleet) error {
	if len(w.sets) != f.sets {
		return fmt.Errorf("there are %d sets, not %d", len(w.sets), f.sets)
	}
	pods := 0
	for i := range w.sets {
		if err := w.checkSet(&w.sets[i], f.claims); err != nil {
			return fmt.Errorf("set %s: %w", w.sets[i].Name, err)
		}
		pods += int(*w.sets[i].Spec.Replicas)
	}
	if len(w.pods) != pods {
		return fmt.Errorf("there are %d pods, not %d", len(w.pods), pods)
	}
	return nil
}

func (w world) checkSet(s *appsv1.StatefulSet, claims bool) error {
	if !at(s.Generation, int(*s.Spec.Replicas))(s) {
		return fmt.Errorf("generation %d with %d replicas has the status %+v", s.Generation, *s.Spec.Replicas, s.Status)
	}
	for n := range int(*s.Spec.Replicas) {
		name := fmt.Sprintf("%s-%d", s.Name, n)
		p := w.pods[name]
		switch {
		case p == nil:
			return fmt.Errorf("pod %s is missing", name)
		case p.DeletionTimestamp != nil || !isReady(p):
			return fmt.Errorf("pod %s is not ready", name)
		case p.Labels[appsv1.ControllerRevisionHashLabelKey] != s.Status.UpdateRevision:
			return fmt.Errorf("pod %s has another revision than %s", name, s.Status.UpdateRevision)
		case !metav1.IsControlledBy(p, s):
			return fmt.Errorf("pod %s belongs to somebody else", name)
		case claims && !w.claims[claimTemplate+"-"+name]:
			return fmt.Errorf("pod %s has no claim", name)
		}
	}
	return nil
}
