// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	_ "embed"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

//go:embed testdata/web.yaml
var webManifests string

// The images that the tests run.
const (
	busyboxImage = "busybox:1.28.3"
	image        = "nginx:1.16"
	newImage     = "nginx:1.17"
	redisImage   = "redis:7.0"
)

// className is the storage class that the walk-through's claims name and that nobody defines.
const className = "nfs-provisioner-storage"

// webService is the headless Service of the walk-through.
func webService() string {
	service, _, _ := strings.Cut(webManifests, "---\n")
	return service
}

// webSet is the set of the walk-through with the changes that a test wants.
func (s *space) webSet(changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s.Helper()
	_, text, _ := strings.Cut(webManifests, "---\n")
	set := &appsv1.StatefulSet{}
	if err := yaml.UnmarshalStrict([]byte(text), set); err != nil {
		s.Fatal(err)
	}
	for _, change := range changes {
		change(set)
	}
	return set
}

func replicas(n int32) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.Replicas = new(n) }
}

func parallel(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

// withoutClaims leaves the set's pods no volume, for tests of other things.
func withoutClaims(set *appsv1.StatefulSet) {
	set.Spec.VolumeClaimTemplates = nil
	set.Spec.Template.Spec.Containers[0].VolumeMounts = nil
}

// readyWhen makes a pod ready while a shell line succeeds in it, looked at every second.
func readyWhen(line string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", line}}},
			PeriodSeconds:    1,
			FailureThreshold: 1,
			TimeoutSeconds:   5,
		}
	}
}

// webOf sets up the Service and the set, and waits until its pods are ready.
func (s *space) webOf(n int32, changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s.Helper()
	set := s.webSet(append(changes, replicas(n))...)
	s.apply(webService())
	s.apply(set)
	s.awaitReady(int(n))
	return set
}

// set is the set web as it is now.
func (s *space) set() appsv1.StatefulSet {
	s.Helper()
	return get[appsv1.StatefulSet](s, "sts", "web")
}

// patch merges a change into the set web.
func (s *space) patch(change string) {
	s.Helper()
	s.kubectl("patch", "sts", "web", "-p", change)
}

// asker is a busybox pod that runs a shell line, by default one that does nothing until it is asked.
func (s *space) asker(line string) {
	s.Helper()
	pod := corev1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", "asker"
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0)) // a shell as the first process does not heed SIGTERM
	pod.Spec.Containers = []corev1.Container{{Name: "asker", Image: busyboxImage, Command: []string{"sh", "-c", cmp.Or(line, "sleep 1000000")}}}
	s.apply(pod)
	s.kubectl("wait", "pod/asker", "--for=condition=Ready", "--timeout="+patience.String())
}

// greet sets the greeting that the set's pods get in their environment: a change of the template that costs nothing.
func greet(set *appsv1.StatefulSet, text string) {
	set.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "GREETING", Value: text}}
}
