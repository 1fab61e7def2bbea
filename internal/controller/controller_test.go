// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// pass lets the cluster run for a while.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// settle lets the cluster run until nothing is left to do.
func settle() { pass(2 * time.Minute) }

// bubble runs a test in virtual time, with a cluster and a controller.
func bubble(t *testing.T, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.run(Options{})()
		test(c)
	})
}

// work gives the writes since the last call, without those of status and by users.
func (c *cluster) work() []string {
	return slices.DeleteFunc(c.drain(), func(w string) bool {
		return strings.HasSuffix(w, "statefulsets web") || strings.HasPrefix(w, "update statefulsetpolicies")
	})
}

func (c *cluster) expect(want ...string) {
	c.t.Helper()
	if got := c.work(); !slices.Equal(got, want) {
		c.t.Errorf("writes are\n%q, want\n%q", got, want)
	}
}

func (c *cluster) image(image string) {
	c.t.Helper()
	c.edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = image })
}

func (c *cluster) scale(n int32) {
	c.t.Helper()
	c.edit(func(s *appsv1.StatefulSet) { s.Spec.Replicas = &n })
}

// told gives the events since the last call.
func (c *cluster) told() []string {
	var all []string
	for {
		select {
		case e := <-c.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func parallel(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func TestCreateInOrder(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet())
		settle()
		writes := c.drain()
		status := c.set().Status
		statusWrites := len(writes)
		writes = slices.DeleteFunc(writes, func(w string) bool { return w == "update statefulsets web" })
		statusWrites -= len(writes)
		want := []string{
			"create statefulsets web",
			"create controllerrevisions " + status.UpdateRevision,
			"create persistentvolumeclaims data-web-0", "create pods web-0",
			"create persistentvolumeclaims data-web-1", "create pods web-1",
			"create persistentvolumeclaims data-web-2", "create pods web-2",
		}
		if !slices.Equal(writes, want) {
			c.t.Errorf("writes are\n%q, want\n%q", writes, want)
		}
		// One for each pod that is created, and one for the last that is ready.
		if statusWrites != 4 {
			c.t.Errorf("the status is written %d times, want 4", statusWrites)
		}
		if status.ReadyReplicas != 3 || status.UpdatedReplicas != 3 || status.CurrentReplicas != 3 || status.ObservedGeneration != 1 {
			c.t.Errorf("status is %+v", status)
		}
		wantEvents := []string{
			"Normal SuccessfulCreate Create Claim data-web-0 Pod web-0 in StatefulSet web success",
			"Normal SuccessfulCreate Create Pod web-0 in StatefulSet web successful",
		}
		if got := c.told(); len(got) != 6 || !slices.Equal(got[:2], wantEvents) {
			c.t.Errorf("events are %q", got)
		}
	})
}

func TestQuietWhenSettled(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet())
		settle()
		c.drain()
		c.client.ClearActions()
		pass(time.Hour)
		for _, a := range c.client.Actions() {
			if a.GetVerb() != "watch" {
				c.t.Errorf("for a settled set there is %v", a)
			}
		}
	})
}

func TestRollingUpdate(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet())
		settle()
		first := c.set().Status.UpdateRevision
		c.drain()
		c.image("two")
		settle()
		status := c.set().Status
		c.expect(
			"create controllerrevisions "+status.UpdateRevision,
			"delete pods web-2", "create pods web-2", "delete pods web-1", "create pods web-1", "delete pods web-0", "create pods web-0",
		)
		if status.CurrentRevision == first || status.CurrentRevision != status.UpdateRevision || status.UpdatedReplicas != 3 {
			c.t.Errorf("status is %+v", status)
		}
		c.image("one")
		settle()
		if got := c.set().Status.UpdateRevision; got != first {
			c.t.Errorf("going back makes revision %s, not %s", got, first)
		}
	})
}

func TestScale(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet())
		settle()
		c.drain()
		c.scale(1)
		settle()
		c.scale(2)
		settle()
		c.expect("delete pods web-2", "delete pods web-1", "create pods web-1")
	})
}

func TestDeletedPodComesBack(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet())
		settle()
		old := c.pod("web-1").UID
		c.drain()
		c.kill("web-1")
		settle()
		c.expect("delete pods web-1", "create pods web-1")
		if p := c.pod("web-1"); p.UID == old || p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-web-1" {
			c.t.Errorf("pod is %+v", p)
		}
	})
}

func TestParallel(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet(parallel, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(40)) }))
		pass(2 * time.Second)
		if status := c.set().Status; status.ReadyReplicas != 40 {
			c.t.Errorf("after 2 seconds the status is %+v", status)
		}
		if n := len(c.told()); n != 80 {
			c.t.Errorf("%d events are told, want 80", n)
		}
		c.scale(0)
		pass(grace + time.Second)
		if n := len(c.pods()); n != 0 {
			c.t.Errorf("%d pods are left", n)
		}
		deletes := 0
		for _, w := range c.drain() {
			if strings.HasPrefix(w, "delete pods") {
				deletes++
			}
		}
		if deletes != 40 {
			c.t.Errorf("40 pods are deleted by %d deletions", deletes)
		}
	})
}

// Time decides: no event comes when a pod has been ready for long enough.
func TestMinReadySecondsIsExact(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet(func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 30 }))
		pass(5 * time.Second)
		ready := c.pod("web-0").Status.Conditions[0].LastTransitionTime
		pass(time.Until(ready.Add(30*time.Second)) - time.Millisecond)
		if n := len(c.pods()); n != 1 {
			c.t.Errorf("%d pods are there before web-0 is available", n)
		}
		pass(time.Millisecond)
		if n := len(c.pods()); n != 2 {
			c.t.Errorf("%d pods are there when web-0 is available", n)
		}
	})
}

func TestSetIsDeleted(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet())
		settle()
		c.edit(func(s *appsv1.StatefulSet) { s.DeletionTimestamp = new(metav1.Now()) })
		c.drain()
		c.kill("web-0")
		settle()
		c.expect("delete pods web-0")
		if n := c.set().Status.Replicas; n != 2 {
			c.t.Errorf("the status of the going set counts %d pods", n)
		}
		if err := c.tracker().Delete(setsResource, namespace, "web"); err != nil {
			c.t.Fatal(err)
		}
		settle()
		c.expect()
	})
}

// orphan does as kubectl delete --cascade=orphan: what the set owned stays, without an owner.
func (c *cluster) orphan() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.tracker().Delete(setsResource, namespace, "web"); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range c.pods() {
		p.OwnerReferences = nil
		c.put(podsResource, p)
	}
	revisions, err := c.tracker().List(revisionsResource, appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), namespace)
	if err != nil {
		c.t.Fatal(err)
	}
	history, ok := revisions.(*appsv1.ControllerRevisionList)
	if !ok {
		c.t.Fatalf("revisions are a %T", revisions)
	}
	for i := range history.Items {
		history.Items[i].OwnerReferences = nil
		c.put(revisionsResource, &history.Items[i])
	}
}

func TestOrphansAreAdopted(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet())
		settle()
		revision := c.set().Status.UpdateRevision
		c.orphan()
		settle()
		c.drain()
		c.create(setsResource, newSet())
		settle()
		c.expect("patch controllerrevisions "+revision, "patch pods web-0", "patch pods web-1", "patch pods web-2")
		uid := c.set().UID
		for _, p := range c.pods() {
			if owner := metav1.GetControllerOf(p); owner == nil || owner.UID != uid {
				c.t.Errorf("%s is owned by %v", p.Name, owner)
			}
		}
		if s := c.set().Status; s.CurrentRevision != revision || s.ReadyReplicas != 3 {
			c.t.Errorf("status is %+v", s)
		}
	})
}

// A set that is going must not take back what it has just orphaned, even if the cache does not know yet that it goes.
func TestGoingSetAdoptsNothing(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(0)) }))
		settle()
		c.drain()
		fresh := c.set()
		fresh.DeletionTimestamp = new(metav1.Now())
		c.client.PrependReactor("get", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, fresh, nil
		})
		c.create(podsResource, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Labels: map[string]string{"app": "web"}}})
		pass(10 * time.Second)
		c.expect("create pods web-0")
	})
}

func TestReleaseAndAdoptAgain(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet())
		settle()
		c.drain()
		c.told()
		label := func(value string) {
			p := c.pod("web-1").DeepCopy()
			p.Labels["app"] = value
			c.mu.Lock()
			c.put(podsResource, p)
			c.mu.Unlock()
			settle()
		}
		label("lab")
		c.expect("patch pods web-1")
		if p := c.pod("web-1"); len(p.OwnerReferences) != 0 {
			c.t.Errorf("web-1 is owned by %v", p.OwnerReferences)
		}
		want := []string{`Warning FailedCreate Create Pod web-1 in StatefulSet web failed error: ` +
			`pods "web-1" already exists and belongs to another owner or does not match the selector`}
		if got := c.told(); !slices.Equal(got, want) {
			c.t.Errorf("events are %q, want %q", got, want)
		}
		label("web")
		c.expect("patch pods web-1")
	})
}

// A stranger under the name of a pod is waited for, and its end is noticed at once.
func TestStrangerHoldsTheName(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(podsResource, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{"app": "zzz"}}})
		c.create(setsResource, newSet())
		settle()
		if n := len(c.pods()); n != 2 {
			c.t.Errorf("%d pods are there, want web-0 and the stranger", n)
		}
		c.drain()
		c.kill("web-1")
		pass(grace + 4*time.Second)
		c.expect("delete pods web-1", "create persistentvolumeclaims data-web-1", "create pods web-1",
			"create persistentvolumeclaims data-web-2", "create pods web-2")
	})
}

// The incumbent notices a lost claim only by chance.
func TestLostClaimIsNoticed(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.readyAfter = func(*corev1.Pod) time.Duration { return -1 }
		c.create(setsResource, newSet())
		settle()
		c.drain()
		if err := c.tracker().Delete(claimsResource, namespace, "data-web-0"); err != nil {
			c.t.Fatal(err)
		}
		pass(time.Second)
		c.expect("create persistentvolumeclaims data-web-0")
	})
}

func TestClaimBeingDeletedIsWaitedFor(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet(parallel))
		settle()
		c.told()
		claim, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(c.t.Context(), "data-web-1", metav1.GetOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		claim.DeletionTimestamp = new(metav1.Now())
		c.mu.Lock()
		c.put(claimsResource, claim)
		c.mu.Unlock()
		c.kill("web-1")
		settle()
		if got := c.told(); !slices.Equal(got, []string{
			"Warning FailedCreate Create Pod web-1 in StatefulSet web failed error: pvc data-web-1 is being deleted",
		}) {
			c.t.Errorf("events are %q", got)
		}
		c.drain()
		if err := c.tracker().Delete(claimsResource, namespace, "data-web-1"); err != nil {
			c.t.Fatal(err)
		}
		pass(3 * time.Second)
		c.expect("create persistentvolumeclaims data-web-1", "create pods web-1")
	})
}

// Of a pod that is refused, status and events tell the truth; it is tried again ever less often, and soon after it is
// accepted.
func TestRefusedPod(t *testing.T) {
	bubble(t, func(c *cluster) {
		var attempts []time.Time
		refused := true
		c.refuse = func(a clienttesting.Action) error {
			create, ok := a.(clienttesting.CreateActionImpl)
			if !ok || !refused {
				return nil
			}
			if pod, ok := create.GetObject().(*corev1.Pod); ok && pod.Name == "web-2" {
				attempts = append(attempts, time.Now())
				return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New("exceeded quota"))
			}
			return nil
		}
		begin := time.Now()
		c.create(setsResource, newSet())
		pass(10 * time.Minute)
		if s := c.set().Status; s.Replicas != 2 || s.ReadyReplicas != 2 {
			c.t.Errorf("status is %+v", s)
		}
		if n := len(attempts); n < 20 || n > 30 {
			c.t.Errorf("in 10 minutes there are %d attempts", n)
		}
		for i := 1; i < len(attempts); i++ {
			if gap := attempts[i].Sub(attempts[i-1]); gap < time.Second || gap > maxDelay {
				c.t.Errorf("attempt %d follows after %v", i, gap)
			}
		}
		c.told()
		c.mu.Lock()
		refused = false
		c.mu.Unlock()
		pass(maxDelay)
		if n := len(c.pods()); n != 3 {
			c.t.Errorf("%v after it is accepted, web-2 is not there (%v)", maxDelay, time.Since(begin))
		}
	})
}

func TestRefusedPodIsTriedAgainWhenTheSetChanges(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.refuse = func(a clienttesting.Action) error {
			if create, ok := a.(clienttesting.CreateActionImpl); ok {
				if pod, ok := create.GetObject().(*corev1.Pod); ok && pod.Spec.Containers[0].Image == "one" {
					return errors.New("no")
				}
			}
			return nil
		}
		c.create(setsResource, newSet())
		pass(5 * time.Minute)
		if events := c.told(); !slices.Contains(events, "Warning FailedCreate Create Pod web-0 in StatefulSet web failed error: no") {
			c.t.Errorf("events are %q", events)
		}
		c.image("two")
		pass(500 * time.Millisecond)
		if n := len(c.pods()); n != 1 {
			c.t.Errorf("%d pods are there after the template was mended", n)
		}
	})
}

// Nothing is created in a namespace that goes, and nothing is said of it.
func TestNamespaceIsGoing(t *testing.T) {
	bubble(t, func(c *cluster) {
		attempts := 0
		c.refuse = func(a clienttesting.Action) error {
			create, ok := a.(clienttesting.CreateActionImpl)
			if !ok || create.GetResource() != podsResource {
				return nil
			}
			attempts++
			err := apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("namespace is going"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		}
		c.create(setsResource, newSet())
		pass(time.Minute)
		if attempts > 8 {
			c.t.Errorf("in a minute there are %d attempts", attempts)
		}
		for _, e := range c.told() {
			if strings.Contains(e, "FailedCreate") {
				c.t.Errorf("told is %q", e)
			}
		}
	})
}

// A pod that fails again and again is replaced ever less often: https://github.com/kubernetes/kubernetes/issues/89067.
func TestFailingPodDoesNotLoop(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.create(setsResource, newSet(func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(1)) }))
		uids := map[string]bool{}
		fail := func(d time.Duration) {
			for range d / (100 * time.Millisecond) {
				c.mu.Lock()
				if obj, err := c.tracker().Get(podsResource, namespace, "web-0"); err == nil {
					pod, ok := obj.(*corev1.Pod)
					if ok && pod.Status.Phase != corev1.PodFailed && pod.DeletionTimestamp == nil {
						pod = pod.DeepCopy()
						pod.Status.Phase = corev1.PodFailed
						c.put(podsResource, pod)
						uids[string(pod.UID)] = true
					}
				}
				c.mu.Unlock()
				pass(100 * time.Millisecond)
			}
		}
		fail(time.Minute)
		if n := len(uids); n < 3 || n > 10 {
			c.t.Errorf("in a minute there are %d pods", n)
		}
		pass(maxDelay + grace + 2*time.Second)
		if s := c.set().Status; s.ReadyReplicas != 1 {
			c.t.Errorf("after the cause is gone the status is %+v", s)
		}
	})
}

// A write whose object has changed meanwhile is done again from what is there then.
func TestConflictsHealThemselves(t *testing.T) {
	bubble(t, func(c *cluster) {
		conflicts := map[string]int{}
		c.refuse = func(a clienttesting.Action) error {
			key := fmt.Sprint(a.GetVerb(), a.GetResource().Resource)
			if conflicts[key] < 3 && a.GetVerb() != "create" {
				conflicts[key]++
				return apierrors.NewConflict(a.GetResource().GroupResource(), "x", errors.New("changed"))
			}
			return nil
		}
		c.create(setsResource, newSet(func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = new(int32(0)) }))
		settle()
		c.image("two")
		settle()
		if s := c.set().Status; s.ReadyReplicas != 3 || s.UpdatedReplicas != 3 || s.CurrentRevision != s.UpdateRevision {
			c.t.Errorf("status is %+v", s)
		}
		if conflicts["deletepods"] != 3 || conflicts["updatestatefulsets"] != 3 || conflicts["deletecontrollerrevisions"] != 3 {
			c.t.Errorf("conflicts are %v", conflicts)
		}
		for _, e := range c.told() {
			if strings.HasPrefix(e, "Warning") {
				c.t.Errorf("told is %q", e)
			}
		}
	})
}

// A write that was done although its answer was lost is not done again.
func TestAnswersAreLost(t *testing.T) {
	bubble(t, func(c *cluster) {
		lost := map[string]bool{}
		lose := func(a clienttesting.Action) error {
			key := fmt.Sprint(a.GetVerb(), a.GetResource().Resource)
			if lost[key] {
				return nil
			}
			lost[key] = true
			return apierrors.NewTimeoutError("lost", 1)
		}
		c.answer = lose
		c.create(setsResource, newSet())
		settle()
		c.image("two")
		settle()
		if s := c.set().Status; s.ReadyReplicas != 3 || s.UpdatedReplicas != 3 || s.CurrentRevision != s.UpdateRevision {
			c.t.Errorf("status is %+v", s)
		}
		created := map[string]int{}
		for _, w := range c.work() {
			created[w]++
		}
		for w, n := range created {
			if strings.HasPrefix(w, "create") && n > 2 || strings.HasPrefix(w, "create persistent") && n > 1 {
				c.t.Errorf("%s comes %d times", w, n)
			}
		}
	})
}

// Two controllers in a row: the second goes on where the first was stopped, whenever that is.
func TestRestartsDoNoHarm(t *testing.T) {
	for _, millis := range []int{0, 300, 900, 1100, 2500, 3300, 4700, 6100} {
		after := time.Duration(millis) * time.Millisecond
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				stop := c.run(Options{})
				c.create(setsResource, newSet())
				settle()
				c.drain()
				c.image("two")
				pass(after)
				stop()
				defer c.run(Options{})()
				settle()
				c.expect(
					"create controllerrevisions "+c.set().Status.UpdateRevision,
					"delete pods web-2", "create pods web-2", "delete pods web-1", "create pods web-1", "delete pods web-0", "create pods web-0",
				)
			})
		})
	}
}

// With caches that lag far behind, nothing is written twice.
func TestStaleCaches(t *testing.T) {
	for _, policy := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				for _, resource := range []string{"pods", "statefulsets", "persistentvolumeclaims", "controllerrevisions"} {
					c.lag(resource, 3*time.Second)
				}
				defer c.run(Options{})()
				c.create(setsResource, newSet(func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = policy }))
				settle()
				c.image("two")
				settle()
				c.scale(1)
				settle()
				if s := c.set().Status; s.ReadyReplicas != 1 || s.Replicas != 1 || s.ObservedGeneration != 3 {
					t.Errorf("status is %+v", s)
				}
				count := map[string]int{}
				for _, w := range c.work() {
					count[w]++
				}
				for _, name := range []string{"web-0", "web-1", "web-2"} {
					deletes := 2
					if name == "web-0" {
						deletes = 1
					}
					if count["create pods "+name] != 2 || count["delete pods "+name] != deletes || count["create persistentvolumeclaims data-"+name] != 1 {
						t.Errorf("writes are %v", count)
					}
				}
			})
		})
	}
}

func TestStopFinishesWhatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		reached := make(chan struct{})
		created := 0
		c.answer = func(a clienttesting.Action) error {
			if a.GetVerb() == "create" && a.GetResource() == podsResource {
				if created++; created == 5 {
					close(reached)
					c.cancel()
				}
			}
			return nil
		}
		stop := c.run(Options{})
		c.create(setsResource, newSet(parallel, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(100)) }))
		<-reached
		stop()
		// Batches are of 1, 2, 4 and 8 pods; the third was at work.
		if pods := len(c.pods()); pods != 7 {
			t.Errorf("%d pods are there, want 7", pods)
		}
		if n := c.set().Status.Replicas; n != 7 {
			t.Errorf("the status counts %d pods, want 7", n)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m := telemetry.New()
		defer c.run(Options{Metrics: m})()
		c.create(setsResource, newSet())
		settle()
		series := func(name string) map[string]float64 {
			families, err := m.Registry().Gather()
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]float64{}
			for _, f := range families {
				if f.GetName() != name {
					continue
				}
				for _, metric := range f.GetMetric() {
					var labels []string
					for _, l := range metric.GetLabel() {
						labels = append(labels, l.GetValue())
					}
					values[strings.Join(labels, " ")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
				}
			}
			return values
		}
		if got := series("ordinal_statefulset_pods")["web default ready"]; got != 3 {
			t.Errorf("%v pods are ready in %v", got, series("ordinal_statefulset_pods"))
		}
		if got := series("ordinal_actions_total")["CreatePod NoPod Done"]; got != 3 {
			t.Errorf("%v pods are created in %v", got, series("ordinal_actions_total"))
		}
		if err := c.tracker().Delete(setsResource, namespace, "web"); err != nil {
			t.Fatal(err)
		}
		settle()
		if left := series("ordinal_statefulset_pods"); len(left) != 0 {
			t.Errorf("of a set that is gone, %v is left", left)
		}
	})
}
