// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// A volume is a directory of its own on this node, of the capacity asked for, and follows its reclaim policy.
func TestVolumes(t *testing.T) { //nolint:tparallel // tests on the shared cluster run one by one, but these cases do not meet
	s := onShared(t)
	classes := map[string]storagev1.StorageClass{}
	for _, class := range get[storagev1.StorageClassList](s, "storageclass").Items {
		classes[class.Name] = class
	}
	if want := []string{"fast", "local"}; !slices.Equal(names(classes), want) {
		t.Fatalf("storage classes are %v, want %v", names(classes), want)
	}
	for name, class := range classes {
		if isDefault := class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"; isDefault != (name == "local") {
			t.Errorf("class %s is the default: %t", name, isDefault)
		}
	}
	retaining := classes["local"]
	retaining.ObjectMeta.Name = s.name
	retaining.ObjectMeta.Annotations, retaining.ObjectMeta.Labels = nil, nil
	retaining.ObjectMeta.UID, retaining.ObjectMeta.ResourceVersion, retaining.ObjectMeta.ManagedFields = "", "", nil
	retaining.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
	s.apply(retaining)
	t.Cleanup(func() { s.cluster.run(context.WithoutCancel(t.Context()), "kubectl", "delete", "storageclass", s.name) })

	for class, keeps := range map[string]bool{"": false, "fast": false, className: false, s.name: true} {
		t.Run(fmt.Sprintf("class %q", class), func(t *testing.T) {
			t.Parallel()
			checkVolume(s.in(t), class, keeps)
		})
	}
}

// checkVolume claims a volume of a class, uses it, and deletes the claim.
func checkVolume(s *space, class string, keeps bool) {
	name := "claim-" + strings.Trim("of-"+class, "-")
	claim := corev1.PersistentVolumeClaim{}
	claim.APIVersion, claim.Kind, claim.Name = "v1", "PersistentVolumeClaim", name
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Mi")}
	if class != "" {
		claim.Spec.StorageClassName = new(class)
	}
	s.apply(claim)
	s.apply(writer(name))
	s.kubectl("wait", "pod/"+name, "--for=jsonpath={.status.phase}=Succeeded", "--timeout="+patience.String())

	bound := s.claims()[name]
	volume := get[corev1.PersistentVolume](s, "pv", bound.Spec.VolumeName)
	wantClass := class
	if wantClass == "" {
		wantClass = "local"
	}
	if *bound.Spec.StorageClassName != wantClass || volume.Spec.StorageClassName != wantClass {
		s.Errorf("the claim is of class %s, its volume of %s, want %s", *bound.Spec.StorageClassName, volume.Spec.StorageClassName, wantClass)
	}
	if got := volume.Spec.Capacity.Storage().String(); got != "3Mi" || bound.Status.Capacity.Storage().String() != got {
		s.Errorf("the volume has capacity %s, the claim says %s, want 3Mi", got, bound.Status.Capacity.Storage())
	}
	if affinity := volume.Spec.NodeAffinity; affinity == nil || !strings.Contains(affinity.String(), "ordinal") {
		s.Errorf("the volume is not bound to the node: %v", affinity)
	}
	if class == className {
		s.eventually(patience, "an event tells that nobody defined the class", func() error {
			events := s.kubectl("get", "events", "--field-selector=involvedObject.kind=PersistentVolumeClaim,involvedObject.name="+name)
			if !strings.Contains(events, class) {
				return fmt.Errorf("events are:\n%s", events)
			}
			return nil
		})
	}
	dir := s.directory(name)

	s.kubectl("delete", "pod", name)
	s.kubectl("delete", "pvc", name)
	if !keeps {
		s.kubectl("wait", "pv/"+volume.Name, "--for=delete", "--timeout="+patience.String())
		s.eventually(10*time.Second, "the volume's directory is deleted", func() error {
			if exists(dir) {
				return fmt.Errorf("%s is there", dir)
			}
			return nil
		})
		return
	}
	s.kubectl("wait", "pv/"+volume.Name, "--for=jsonpath={.status.phase}=Released", "--timeout="+patience.String())
	if !exists(filepath.Join(dir, name)) {
		s.Errorf("the retained volume %s has lost its content", dir)
	}
	s.kubectl("delete", "pv", volume.Name)
}

// A claim that is deleted together with its pod is made anew before the pod is; so is one that a pod waits for.
func TestClaimIsDeleted(t *testing.T) {
	s := onShared(t)
	s.webOf(3)
	s.mark(3)
	lives := s.lives()
	delete(lives, "web-1")

	t.Run("with its pod", func(t *testing.T) {
		s := s.in(t)
		old := s.claims()["www-web-1"].UID
		s.kubectl("delete", "pvc", "www-web-1", "--wait=false")
		s.kubectl("delete", "pod", "web-1")
		s.awaitReady(3)
		s.checkNewClaim(old)
		if left := s.exec("web-1", "ls /usr/share/nginx/html"); left != "" {
			t.Errorf("the new volume holds %q", left)
		}
	})
	t.Run("while a finalizer keeps it", func(t *testing.T) {
		s := s.in(t)
		old := s.claims()["www-web-1"].UID
		s.kubectl("patch", "pvc", "www-web-1", "--type=json", `--patch=[{"op":"add","path":"/metadata/finalizers/-","value":"example.test/keeps-it"}]`)
		s.kubectl("delete", "pvc", "www-web-1", "--wait=false")
		s.kubectl("delete", "pod", "web-1")
		s.throughout(5*time.Second, "no pod runs on a claim that is going", func() error {
			if pod, there := s.pods()["web-1"]; there && pod.Status.Phase != corev1.PodPending {
				return fmt.Errorf("web-1 is %s", pod.Status.Phase)
			}
			return nil
		})
		s.eventually(patience, "an event tells what is waited for", func() error {
			events := s.eventsOf("StatefulSet", "web") + s.eventsOf("Pod", "web-1")
			if !regexp.MustCompile(`www-web-1.*(delet|terminat)`).MatchString(events) {
				return fmt.Errorf("events are:\n%s", events)
			}
			return nil
		})
		s.kubectl("patch", "pvc", "www-web-1", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
		s.awaitReady(3)
		s.checkNewClaim(old)
	})
	t.Run("while its pod waits for a node", func(t *testing.T) {
		s := s.in(t)
		old := s.claims()["www-web-1"].UID
		s.patch(`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null},"template":{"spec":{"nodeSelector":{"no":"such-node"}}}}}`)
		s.kubectl("delete", "pod", "web-1")
		s.eventually(patience, "web-1 waits for a node", func() error {
			if events := s.eventsOf("Pod", "web-1"); !strings.Contains(events, "FailedScheduling") {
				return fmt.Errorf("events are:\n%s", events)
			}
			return nil
		})
		s.kubectl("delete", "pvc", "www-web-1", "--wait=false")
		s.eventually(patience, "the claim is made anew", func() error {
			if claim, there := s.claims()["www-web-1"]; !there || claim.UID == old || claim.DeletionTimestamp != nil {
				return fmt.Errorf("it is %s, deleted at %v", claim.UID, claim.DeletionTimestamp)
			}
			return nil
		})
		s.patch(`{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
		s.kubectl("delete", "pod", "web-1", "--wait=false")
		s.awaitReady(3)
	})
	s.checkSameLives(lives)
}

// checkNewClaim checks that web-1 runs on another claim than before.
func (s *space) checkNewClaim(old types.UID) {
	s.Helper()
	if claim := s.claims()["www-web-1"]; claim.UID == old || claim.Status.Phase != corev1.ClaimBound {
		s.Errorf("claim www-web-1 is %s, the old one: %t", claim.Status.Phase, claim.UID == old)
	}
}

// writer is a pod that writes its name into its volume and ends.
func writer(claim string) corev1.Pod {
	pod := corev1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", claim
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers = []corev1.Container{{
		Name: "writer", Image: busyboxImage, Command: []string{"touch", "/volume/" + claim},
		VolumeMounts: []corev1.VolumeMount{{Name: "volume", MountPath: "/volume"}},
	}}
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "volume", VolumeSource: source}}
	return pod
}

// directory is the one directory of the data directory's volumes that holds a file of this name.
func (s *space) directory(file string) string {
	s.Helper()
	root := filepath.Join(s.cluster.data, "volumes")
	found, err := filepath.Glob(filepath.Join(root, "*", file))
	if err != nil {
		s.Fatal(err)
	}
	if len(found) != 1 {
		entries, err := os.ReadDir(root)
		s.Fatalf("%s lies in %v of %v, want one: %v", file, found, entries, err)
	}
	return filepath.Dir(found[0])
}
