// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// settle lets the cluster run until nothing is left to do.
func settle() {
	<-time.After(2 * time.Minute)
	synctest.Wait()
}

func TestCreatesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.run(Options{})()
		c.create(setsResource, newSet())
		settle()
		writes := slices.DeleteFunc(c.drain(), func(w string) bool { return w == "patch statefulsets web" })
		want := []string{
			"create statefulsets web",
			"create controllerrevisions " + c.set().Status.UpdateRevision,
			"create persistentvolumeclaims data-web-0", "create pods web-0",
			"create persistentvolumeclaims data-web-1", "create pods web-1",
			"create persistentvolumeclaims data-web-2", "create pods web-2",
		}
		if !slices.Equal(writes, want) {
			t.Errorf("writes are\n%q, want\n%q", writes, want)
		}
		status := c.set().Status
		if status.ReadyReplicas != 3 || status.UpdatedReplicas != 3 || status.CurrentReplicas != 3 || status.ObservedGeneration != 1 {
			t.Errorf("status is %+v", status)
		}
	})
}

func TestUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.run(Options{})()
		c.create(setsResource, newSet())
		settle()
		first := c.set().Status.UpdateRevision
		c.drain()
		c.edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
		settle()
		writes := slices.DeleteFunc(c.drain(), func(w string) bool { return w == "patch statefulsets web" })
		status := c.set().Status
		want := []string{
			"create controllerrevisions " + status.UpdateRevision,
			"delete pods web-2", "create pods web-2", "delete pods web-1", "create pods web-1", "delete pods web-0", "create pods web-0",
		}
		if !slices.Equal(writes, want) {
			t.Errorf("writes are\n%q, want\n%q", writes, want)
		}
		if status.CurrentRevision == first || status.CurrentRevision != status.UpdateRevision || status.UpdatedReplicas != 3 {
			t.Errorf("status is %+v", status)
		}
	})
}

func TestScales(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.run(Options{})()
		c.create(setsResource, newSet())
		settle()
		c.drain()
		c.edit(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(1)) })
		settle()
		c.edit(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(2)) })
		settle()
		writes := slices.DeleteFunc(c.drain(), func(w string) bool { return w == "patch statefulsets web" })
		want := []string{"delete pods web-2", "delete pods web-1", "create pods web-1"}
		if !slices.Equal(writes, want) {
			t.Errorf("writes are\n%q, want\n%q", writes, want)
		}
	})
}

func TestParallelWithFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.readyAfter = func(*corev1.Pod) time.Duration { return -1 }
		defer c.run(Options{})()
		c.create(setsResource, newSet(func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }))
		settle()
		if n := len(c.pods()); n != 3 {
			t.Errorf("%d pods, want 3", n)
		}
		status := c.set().Status
		if status.Replicas != 3 || status.ReadyReplicas != 0 {
			t.Errorf("status is %+v", status)
		}
	})
}
