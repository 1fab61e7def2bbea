// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ordinal-dev/ordinal/internal/nodes"
)

const (
	namespace = "databases"
	replicas  = 3
	interval  = 100 * time.Millisecond
)

// newSet is a database of three, one in each zone, with a disk for each.
func newSet(name, class string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(replicas)), ServiceName: name, Selector: selector,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{simulated: "true"},
					Tolerations:  []corev1.Toleration{{Key: simulated, Operator: corev1.TolerationOpExists}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector,
					}},
					Containers: []corev1.Container{{
						Name: "db", Image: "registry.example/db:1",
						VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
					}},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: new(class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
					},
				},
			}},
		},
	}
}

// nameOf is the i-th set's name, classOf the class of its disks: every other set has disks that are in one node.
func nameOf(i int) string { return fmt.Sprintf("db-%02d", i) }

func classOf(i int) string {
	if i%2 == 0 {
		return onNode
	}
	return inZone
}

func (p *plane) makeNamespace(t *testing.T) {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := p.client.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// makeSets makes the sets of a range of numbers.
func (p *plane) makeSets(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		p.makeSet(t, newSet(nameOf(i), classOf(i)))
	}
}

func (p *plane) makeSet(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	if _, err := p.client.AppsV1().StatefulSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// patchSet changes a set by a strategic merge patch.
func (p *plane) patchSet(t *testing.T, name string, change map[string]any) {
	t.Helper()
	patch, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.client.AppsV1().StatefulSets(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// toImage is the change of a template to an image, whose pods take a time to become ready.
func toImage(image string, delay time.Duration) map[string]any {
	return map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{nodes.DelayAnnotation: delay.String()}},
		"spec":     map[string]any{"containers": []map[string]string{{"name": "db", "image": "registry.example/" + image}}},
	}}}
}

func toReplicas(n int) map[string]any { return map[string]any{"spec": map[string]any{"replicas": n}} }

func toPartition(n int) map[string]any {
	return map[string]any{"spec": map[string]any{"updateStrategy": map[string]any{"rollingUpdate": map[string]any{"partition": n}}}}
}

// unfinished tells what a set still lacks to be as its spec wants it, empty if nothing.
func unfinished(set *appsv1.StatefulSet) string {
	s, want := set.Status, *set.Spec.Replicas
	switch {
	case s.ObservedGeneration < set.Generation:
		return "its spec has not been looked at"
	case s.UpdateRevision != s.CurrentRevision || s.UpdatedReplicas < want:
		return fmt.Sprintf("%d of %d are updated", s.UpdatedReplicas, want)
	case s.ReadyReplicas != want || s.Replicas != want:
		return fmt.Sprintf("%d of %d pods are ready, of %d", s.Replicas, s.ReadyReplicas, want)
	}
	return ""
}

// awaitSets waits until all sets are as their specs want them.
func (p *plane) awaitSets(t *testing.T) {
	t.Helper()
	await(t, "all sets are complete", func(ctx context.Context) (string, error) {
		list, err := p.client.AppsV1().StatefulSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		var lacks []string
		for i := range list.Items {
			if lack := unfinished(&list.Items[i]); lack != "" {
				lacks = append(lacks, list.Items[i].Name+": "+lack)
			}
		}
		return strings.Join(lacks, "; "), nil
	})
}

// await asks until nothing is unmet.
func await(t *testing.T, what string, unmet func(context.Context) (string, error)) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		var err error
		last, err = unmet(ctx)
		if err != nil {
			last = err.Error()
		}
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("wait until %s: %v: %s", what, err, last)
	}
}

// podsOf gives a set's pods by name.
func (p *plane) podsOf(t *testing.T, set string) map[string]corev1.Pod {
	t.Helper()
	list, err := p.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + set})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = pod
	}
	return pods
}

// mustBeSpread checks that each set has one pod in each zone, on a node that its disk may be used on.
func (p *plane) mustBeSpread(t *testing.T) {
	t.Helper()
	for i := range sets {
		zones := map[string]bool{}
		for name, pod := range p.podsOf(t, nameOf(i)) {
			zones[zoneOf(pod.Spec.NodeName)] = true
			if home := p.diskHome(t, name); home != pod.Spec.NodeName && home != zoneOf(pod.Spec.NodeName) {
				t.Errorf("%s is on %s, and its disk in %s", name, pod.Spec.NodeName, home)
			}
		}
		if len(zones) != replicas {
			t.Errorf("%s is in %d zones, not in %d", nameOf(i), len(zones), replicas)
		}
	}
}

// diskHome is the node or the zone that a pod's disk is in.
func (p *plane) diskHome(t *testing.T, pod string) string {
	t.Helper()
	claim, err := p.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data-"+pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	volume, err := p.client.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
}
