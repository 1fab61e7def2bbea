// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Item 1: pods come in order, each when the one before is ready, with a claim and a volume of its own.
func TestCreatesInOrder(t *testing.T) {
	s := onShared(t)
	story := s.watchPods()
	s.apply(webManifests)
	s.kubectl("rollout", "status", "sts/web", "--timeout="+patience.String())
	story.expect(0, inOrder(0, 1, 2)...)
	for name, pod := range s.pods() {
		if pod.Status.Phase != corev1.PodRunning || pod.Spec.Hostname != name || pod.Spec.Subdomain != "web-svc" {
			t.Errorf("%s is %s as %s.%s", name, pod.Status.Phase, pod.Spec.Hostname, pod.Spec.Subdomain)
		}
	}

	claims := s.claims()
	if want := []string{"www-web-0", "www-web-1", "www-web-2"}; !slices.Equal(names(claims), want) {
		t.Fatalf("claims are %v, want %v", names(claims), want)
	}
	volumes := map[string]string{}
	for name, claim := range claims {
		if claim.Status.Phase != corev1.ClaimBound {
			t.Errorf("claim %s is %s", name, claim.Status.Phase)
		}
		if other, taken := volumes[claim.Spec.VolumeName]; taken {
			t.Errorf("claims %s and %s share volume %s", name, other, claim.Spec.VolumeName)
		}
		volumes[claim.Spec.VolumeName] = name
	}
	for _, volume := range get[corev1.PersistentVolumeList](s, "pv").Items {
		name, ours := volumes[volume.Name]
		if !ours {
			continue
		}
		delete(volumes, volume.Name)
		if ref := volume.Spec.ClaimRef; volume.Status.Phase != corev1.VolumeBound || ref.Namespace != s.name || ref.Name != name {
			t.Errorf("volume %s of claim %s is %s to %v", volume.Name, name, volume.Status.Phase, ref)
		}
	}
	if len(volumes) > 0 {
		t.Errorf("get pv does not know %v", volumes)
	}
	table := s.kubectl("get", "pvc,pv")
	for _, want := range []string{"persistentvolumeclaim/www-web-0", "Bound", "1Gi", "RWO", className} {
		if !strings.Contains(table, want) {
			t.Errorf("get pvc,pv does not show %q:\n%s", want, table)
		}
	}
}

// Item 3: deleted pods come back under their names, with their claims and their content; only the addresses are new.
func TestDeletedPodsComeBack(t *testing.T) {
	s := onShared(t)
	s.webOf(3)
	s.asker("")
	s.mark(3)
	before, claims := s.pods(), s.claims()
	story := s.watchPods()
	told := story.now()

	s.kubectl("delete", "pod", "-l", "app=my-app")
	s.awaitReady(3)
	chapters, _ := story.since(told)
	var came []string
	for _, c := range chapters {
		if c.turn == created || c.turn == ready {
			came = append(came, c.String())
		}
	}
	if want := inOrder(0, 1, 2); !slices.Equal(came, want) {
		t.Errorf("they came back as %v, want %v", came, want)
	}

	after := s.pods()
	if !slices.Equal(names(after), names(before)) {
		t.Fatalf("pods are %v, were %v", names(after), names(before))
	}
	for name, pod := range after {
		if pod.UID == before[name].UID {
			t.Errorf("%s was not deleted", name)
		}
		for _, old := range before {
			if pod.Status.PodIP == old.Status.PodIP {
				t.Errorf("%s has the old address %s of %s", name, pod.Status.PodIP, old.Name)
			}
		}
		if got, want := s.addresses(name+".web-svc"), []string{pod.Status.PodIP}; !slices.Equal(got, want) {
			t.Errorf("the name of %s is at %v, the pod at %v", name, got, want)
		}
	}
	s.checkSameClaims(claims)
	s.checkMarks(3)
}

// Item 4: scaling adds at the top and takes from the top, and every pod finds its old volume again.
func TestScales(t *testing.T) {
	s := onShared(t)
	s.webOf(3)
	story := s.watchPods()
	told := story.now()

	s.kubectl("scale", "sts", "web", "--replicas=5")
	story.expect(told, inOrder(3, 4)...)
	s.awaitReady(5)
	s.mark(5)
	claims := s.claims()

	told = story.now()
	s.patch(`{"spec":{"replicas":4}}`)
	story.expect(told, deletedInOrder(4)...)
	told = story.now()
	s.kubectl("scale", "sts/web", "--replicas=2")
	story.expect(told, deletedInOrder(3, 2)...)
	s.awaitReady(2)
	if want := 5; len(s.claims()) != want {
		t.Errorf("claims are %v, want all %d", names(s.claims()), want)
	}

	told = story.now()
	s.kubectl("scale", "sts", "web", "--replicas=5")
	story.expect(told, inOrder(2, 3, 4)...)
	s.awaitReady(5)
	s.checkSameClaims(claims)
	s.checkMarks(5)
}

// Item 5: a partition holds a rolling update back below it.
func TestPartition(t *testing.T) {
	s := onShared(t)
	s.webOf(3)
	story := s.watchPods()
	told := story.now()
	old := s.set().Status.UpdateRevision

	s.patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":2}}}}`)
	s.kubectl("set", "image", "sts/web", "nginx="+newImage)
	story.expect(told, replacedInOrder(2)...)
	s.kubectl("rollout", "status", "sts/web", "--timeout="+patience.String())
	renewed := s.set().Status.UpdateRevision
	if renewed == old {
		t.Fatalf("the update revision is still %s", old)
	}
	s.checkImages(map[string]string{"web-0": image, "web-1": image, "web-2": newImage})
	s.checkRevisions(map[string]string{"web-0": old, "web-1": old, "web-2": renewed})

	told = story.now()
	s.kubectl("delete", "pod", "web-0")
	story.expect(told, replacedInOrder(0)...)
	s.awaitReady(3)
	s.checkImages(map[string]string{"web-0": image, "web-1": image, "web-2": newImage})

	told = story.now()
	s.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	story.expect(told, replacedInOrder(1, 0)...)
	s.awaitReady(3)
	s.checkImages(map[string]string{"web-0": newImage, "web-1": newImage, "web-2": newImage})

	told = story.now()
	s.patch(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":3}}}}`)
	s.kubectl("set", "image", "sts/web", "nginx="+image)
	s.eventually(patience, "the update is known", func() error {
		if set := s.set(); set.Status.UpdateRevision == renewed || set.Status.ObservedGeneration != set.Generation {
			return fmt.Errorf("status is %+v", set.Status)
		}
		return nil
	})
	s.throughout(3*time.Second, "a partition equal to the replicas holds the update back", func() error {
		if chapters, _ := story.since(told); len(chapters) > 0 {
			return fmt.Errorf("it goes on: %v", chapters)
		}
		return nil
	})
	s.checkImages(map[string]string{"web-0": newImage, "web-1": newImage, "web-2": newImage})
}

// Item 7: a set deleted as an orphan leaves its pods, its successor adopts them untouched; a plain delete leaves the claims.
func TestOrphansAndAdopts(t *testing.T) {
	s := onShared(t)
	set := s.webOf(3)
	s.mark(3)
	before, claims := s.lives(), s.claims()
	revisions := names(s.revisions())
	story := s.watchPods()
	told := story.now()

	s.kubectl("delete", "sts", "web", "--cascade=orphan")
	s.eventually(patience, "the pods have no owner", func() error {
		for name, pod := range s.pods() {
			if len(pod.OwnerReferences) > 0 {
				return fmt.Errorf("%s is owned by %v", name, pod.OwnerReferences)
			}
		}
		return nil
	})
	s.checkSameLives(before)

	s.apply(set)
	uid := s.set().UID
	s.eventually(patience, "the new set owns the pods and the revision", func() error {
		for name, pod := range s.pods() {
			if len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].UID != uid || !*pod.OwnerReferences[0].Controller {
				return fmt.Errorf("%s is owned by %v", name, pod.OwnerReferences)
			}
		}
		for name, revision := range s.revisions() {
			if len(revision.OwnerReferences) != 1 || revision.OwnerReferences[0].UID != uid {
				return fmt.Errorf("revision %s is owned by %v", name, revision.OwnerReferences)
			}
		}
		return nil
	})
	s.kubectl("rollout", "status", "sts/web", "--timeout="+patience.String())
	s.checkSameLives(before)
	if now := names(s.revisions()); !slices.Equal(now, revisions) {
		t.Errorf("revisions are %v, were %v", now, revisions)
	}
	if chapters, _ := story.since(told); len(chapters) > 0 {
		t.Errorf("the pods did not live on undisturbed: %v", chapters)
	}

	s.kubectl("delete", "sts", "web")
	s.kubectl("wait", "pod", "-l", "app=my-app", "--for=delete", "--timeout="+patience.String())
	if out := s.try("get", "sts", "web"); out.code == 0 || !strings.Contains(out.stderr, "NotFound") {
		t.Errorf("the set is still there: %s", said(out))
	}
	s.checkSameClaims(claims)
	s.webOf(3)
	s.checkMarks(3)
}

// Item 8: a Parallel set makes and takes all its pods at once.
func TestParallel(t *testing.T) {
	s := onShared(t)
	story := s.watchPods()
	s.apply(webService())
	s.apply(s.webSet(parallel, readyWhen("test -e /usr/share/nginx/html/go")))
	for _, pod := range []string{"web-0", "web-1", "web-2"} {
		story.await(0, pod, created)
	}
	s.eventually(patience, "all pods run", func() error {
		for name, pod := range s.pods() {
			if pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s is %s", name, pod.Status.Phase)
			}
		}
		return nil
	})
	if chapters, _ := story.since(0); slices.ContainsFunc(chapters, func(c chapter) bool { return c.turn != created }) {
		t.Errorf("more happened than three creations: %v", chapters)
	}
	for _, pod := range []string{"web-2", "web-0", "web-1"} {
		s.exec(pod, "touch /usr/share/nginx/html/go")
	}
	s.awaitReady(3)

	told := story.now()
	s.kubectl("scale", "sts", "web", "--replicas=0")
	for _, pod := range []string{"web-0", "web-1", "web-2"} {
		story.await(told, pod, gone)
	}
	chapters, _ := story.since(told)
	for _, c := range chapters[:3] {
		if c.turn != deleting {
			t.Errorf("they did not go all at once: %v", chapters)
		}
	}
}

// Item 8: a pod that does not become ready halts an ordered set until it is healed.
func TestUnreadyPodHalts(t *testing.T) {
	s := onShared(t)
	story := s.watchPods()
	s.apply(webService())
	s.apply(s.webSet(readyWhen(`test "$(hostname)" != web-1 -o -e /usr/share/nginx/html/healed`)))
	story.expect(0, append(inOrder(0), "web-1 created")...)
	s.eventually(patience, "web-1 runs", func() error {
		if phase := s.pods()["web-1"].Status.Phase; phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	s.throughout(4*time.Second, "the set waits for web-1", func() error {
		if chapters, _ := story.since(3); len(chapters) > 0 {
			return fmt.Errorf("it goes on: %v", chapters)
		}
		return nil
	})
	s.asker("")
	if got, want := s.addresses("web-svc"), []string{s.pods()["web-0"].Status.PodIP}; !slices.Equal(got, want) {
		t.Errorf("web-svc is at %v, want only the ready pod, %v", got, want)
	}
	s.exec("web-1", "touch /usr/share/nginx/html/healed")
	story.expect(3, "web-1 ready", "web-2 created", "web-2 ready")
	s.awaitReady(3)
}

// mark writes into the volume of each of the first n pods whose it is.
func (s *space) mark(n int) {
	s.Helper()
	for i := range n {
		s.exec(fmt.Sprintf("web-%d", i), "hostname > /usr/share/nginx/html/mark")
	}
}

// checkMarks checks that the first n pods have the volumes they had when they were marked.
func (s *space) checkMarks(n int) {
	s.Helper()
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		if got := s.exec(name, "cat /usr/share/nginx/html/mark"); got != name {
			s.Errorf("the volume of %s holds the mark %q", name, got)
		}
	}
}

func (s *space) checkSameClaims(before map[string]corev1.PersistentVolumeClaim) {
	s.Helper()
	after := s.claims()
	if !slices.Equal(names(after), names(before)) {
		s.Errorf("claims are %v, were %v", names(after), names(before))
	}
	for name, claim := range after {
		old := before[name]
		if claim.UID != old.UID || claim.Spec.VolumeName != old.Spec.VolumeName || claim.Status.Phase != corev1.ClaimBound {
			s.Errorf("claim %s is %s to volume %s, was bound to %s", name, claim.Status.Phase, claim.Spec.VolumeName, old.Spec.VolumeName)
		}
	}
}

func (s *space) checkImages(want map[string]string) {
	s.Helper()
	for name, pod := range s.pods() {
		if got := pod.Spec.Containers[0].Image; got != want[name] {
			s.Errorf("%s has image %s, want %s", name, got, want[name])
		}
	}
}

func (s *space) checkRevisions(want map[string]string) {
	s.Helper()
	for name, pod := range s.pods() {
		if got := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; got != want[name] {
			s.Errorf("%s is of revision %s, want %s", name, got, want[name])
		}
	}
}

// revisions are the revisions of the set, by name.
func (s *space) revisions() map[string]appsv1.ControllerRevision {
	s.Helper()
	byName := map[string]appsv1.ControllerRevision{}
	for _, revision := range get[appsv1.ControllerRevisionList](s, "controllerrevisions", "-l", "app=my-app").Items {
		byName[revision.Name] = revision
	}
	return byName
}

// lives tells for each pod which containers run in it and since when: equal lives mean that nothing was restarted.
func (s *space) lives() map[string]string {
	s.Helper()
	lives := map[string]string{}
	for name, pod := range s.pods() {
		lives[name] = life(pod)
	}
	return lives
}

func life(pod corev1.Pod) string {
	text := fmt.Sprintf("pod %s at %s", pod.UID, pod.Status.PodIP)
	for _, c := range pod.Status.ContainerStatuses {
		text += fmt.Sprintf(", %s %s restarted %d times", c.Name, c.ContainerID, c.RestartCount)
		if c.State.Running != nil {
			text += ", running since " + c.State.Running.StartedAt.UTC().Format(time.RFC3339)
		}
	}
	return text
}

func (s *space) checkSameLives(before map[string]string) {
	s.Helper()
	after := s.lives()
	for _, name := range names(before) {
		if after[name] != before[name] {
			s.Errorf("%s was disturbed:\n  %s\n  %s", name, before[name], after[name])
		}
	}
}
