// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the controller does beyond kube-controller-manager's, without being asked.

// noImage is an image that nobody serves: on this port of the node, nobody listens.
const noImage = "127.0.0.1:1/none:0"

// The reasons of a container that waits.
const (
	imageTrouble = "ErrImagePull ImagePullBackOff"
	crashTrouble = "CrashLoopBackOff"
)

// A rollout that cannot succeed is mended by the next change of the template, without a hand on the pods, and those that work
// are left alone.
func TestStuckRolloutIsMended(t *testing.T) { //nolint:tparallel // tests on the shared cluster run one by one, but these cases do not meet
	sharedCluster(t)
	undo := []string{"rollout", "undo", "sts/web"}
	for name, test := range map[string]struct {
		breaks, mends []string
		trouble       func(corev1.Pod) error
	}{
		"bad image": {
			breaks: []string{"set", "image", "sts/web", "nginx=" + noImage}, mends: undo,
			trouble: waitsBecause(imageTrouble),
		},
		"crash loop": {
			breaks:  patching(`{"containers":[{"name":"nginx","command":["sh","-c","exit 3"]}]}`),
			mends:   patching(`{"containers":[{"name":"nginx","command":null}]}`),
			trouble: waitsBecause(crashTrouble),
		},
		"impossible scheduling": {
			breaks: patching(`{"nodeSelector":{"no":"such-node"}}`), mends: patching(`{"nodeSelector":null}`),
			trouble: isUnschedulable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onShared(t)
			s.webOf(3, withoutClaims, readyWhen("true"))
			lives := s.lives()
			delete(lives, "web-2")
			story := s.watchPods()
			told := story.now()
			s.kubectl(test.breaks...)
			story.awaitPod("web-2", "it is in trouble", test.trouble)
			s.kubectl(test.mends...)
			want := slices.Concat(deletedInOrder(2), []string{"web-2 created"}, replacedInOrder(2))
			story.expect(told, want...)
			s.rolledOut()
			s.rests(2*time.Second, story, told+len(want))
			s.checkSameLives(lives)
		})
	}
}

// patching are the arguments that change the pod's part of the template of the set web.
func patching(podSpec string) []string {
	return []string{"patch", "sts", "web", "-p", `{"spec":{"template":{"spec":` + podSpec + `}}}`}
}

// A bad image is mended by a good one also when that is new to all pods, and when no pod ever worked.
func TestBadImageIsReplaced(t *testing.T) { //nolint:tparallel // tests on the shared cluster run one by one, but these cases do not meet
	sharedCluster(t)
	mend := []string{"set", "image", "sts/web", "nginx=" + newImage}
	all := map[string]string{"web-0": newImage, "web-1": newImage, "web-2": newImage}
	t.Run("in the second revision", func(t *testing.T) {
		t.Parallel()
		s := onShared(t)
		s.webOf(3, withoutClaims)
		story := s.watchPods()
		told := story.now()
		s.kubectl("set", "image", "sts/web", "nginx="+noImage)
		story.awaitPod("web-2", "it lacks its image", waitsBecause(imageTrouble))
		s.kubectl(mend...)
		story.expect(told, slices.Concat(deletedInOrder(2), []string{"web-2 created"}, replacedInOrder(2, 1, 0))...)
		s.rolledOut()
		s.checkImages(all)
	})
	t.Run("in the first revision", func(t *testing.T) {
		t.Parallel()
		s := onShared(t)
		story := s.watchPods()
		s.apply(webService())
		s.apply(s.webSet(withoutClaims, func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = noImage }))
		story.awaitPod("web-0", "it lacks its image", waitsBecause(imageTrouble))
		s.kubectl(mend...)
		story.expect(0, slices.Concat([]string{"web-0 created"}, replacedInOrder(0), inOrder(1, 2))...)
		s.rolledOut()
		s.checkImages(all)
	})
}

// A pod that is not ready at the revision it should have is left alone: it may need its time. The next template takes it away.
func TestUnreadyUpdateIsLeftAlone(t *testing.T) {
	s := onShared(t)
	s.webOf(2, withoutClaims, withGreeting("well"), readyWhen(`test "$GREETING" = well`))
	lives := s.lives()
	delete(lives, "web-1")
	story := s.watchPods()
	told := story.now()
	s.kubectl("set", "env", "sts/web", "GREETING=ill")
	want := append(deletedInOrder(1), "web-1 created")
	story.expect(told, want...)
	story.awaitPod("web-1", "it runs", runs)
	s.rests(10*time.Second, story, told+len(want))
	s.kubectl("set", "env", "sts/web", "GREETING=well")
	story.expect(told+len(want), replacedInOrder(1)...)
	s.rolledOut()
	s.checkSameLives(lives)
}

// Pods that are to go need not work: they go from the top, one at a time, if they do not recover soon.
func TestScalesDownPastUnreadyPods(t *testing.T) {
	s := onShared(t)
	s.webOf(3, withoutClaims, readyWhen("test ! -e /tmp/broken"))
	story := s.watchPods()
	for _, pod := range []string{"web-1", "web-2"} {
		s.exec(pod, "touch /tmp/broken")
		story.await(0, pod, unready)
	}
	told := story.now()
	s.kubectl("scale", "sts/web", "--replicas=0")
	story.expect(told, deletedInOrder(2, 1, 0)...)
}

// Scaling down waits for a pod that is to stay and does not work, and the set says so.
func TestScaleDownWaitsVisibly(t *testing.T) {
	s := onShared(t)
	s.webOf(3, withoutClaims, readyWhen("test ! -e /tmp/broken"))
	story := s.watchPods()
	s.exec("web-0", "touch /tmp/broken")
	story.await(0, "web-0", unready)
	told := story.now()
	s.kubectl("scale", "sts/web", "--replicas=1")
	s.awaitCondition("web", "Progressing", corev1.ConditionTrue, `web-0 to be available`)
	s.rests(3*time.Second, story, told)
	s.exec("web-0", "rm /tmp/broken")
	story.expect(told, append([]string{"web-0 ready"}, deletedInOrder(2, 1)...)...)
}

// The conditions tell whether the set serves, and which pod and which rule it waits for.
func TestConditions(t *testing.T) {
	s := onShared(t)
	s.apply(webService())
	s.apply(s.webSet(withoutClaims, replicas(2)))
	s.kubectl("wait", "--for=condition=Available", "sts/web", "--timeout="+patience.String())
	s.awaitReady(2)
	s.awaitCondition("web", "Progressing", corev1.ConditionFalse, "")
	s.awaitCondition("web", "Degraded", corev1.ConditionFalse, "")

	s.kubectl("set", "image", "sts/web", "nginx="+noImage)
	s.awaitCondition("web", "Degraded", corev1.ConditionTrue, `web-1.*image.*`+regexp.QuoteMeta(noImage))
	s.awaitCondition("web", "Progressing", corev1.ConditionTrue, `web-1`)
	s.awaitCondition("web", "Available", corev1.ConditionTrue, `1 of 2`)
	s.eventually(patience, "an event tells it too", func() error {
		if events := s.eventsOf("StatefulSet", "web"); !regexp.MustCompile(`web-1.*image`).MatchString(events) {
			return fmt.Errorf("events are:\n%s", events)
		}
		return nil
	})

	s.kubectl("rollout", "undo", "sts/web")
	s.awaitCondition("web", "Degraded", corev1.ConditionFalse, "")
	s.kubectl("wait", "--for=condition=Available", "sts/web", "--timeout="+patience.String())
}

// Two sets whose claims have the same names never share a volume: the later waits, and says for whom.
func TestTwoSetsWantOneClaim(t *testing.T) {
	s := onShared(t)
	s.apply(s.webSet(replicas(1), calls("x-y", "data")))
	s.kubectl("rollout", "status", "sts/x-y", "--timeout="+patience.String())
	s.exec("x-y-0", "hostname > /usr/share/nginx/html/mark")
	claims := s.claims()
	later := s.webSet(replicas(1), calls("y", "data-x"), func(set *appsv1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
	})
	s.apply(later)
	s.eventually(patience, "an event names the owner", func() error {
		if events := s.eventsOf("StatefulSet", "y"); !regexp.MustCompile(`data-x-y-0.*\bx-y\b[^-]`).MatchString(events) {
			return fmt.Errorf("events are:\n%s", events)
		}
		return nil
	})
	s.awaitCondition("y", "Degraded", corev1.ConditionTrue, `data-x-y-0.*\bx-y\b`)
	s.throughout(3*time.Second, "y-0 is not made", func() error {
		if out := s.try("get", "pod", "y-0"); out.code == 0 {
			return fmt.Errorf("it is there:\n%s", out.stdout)
		}
		return nil
	})

	s.kubectl("delete", "sts", "y", "--cascade=foreground")
	s.checkSameClaims(claims)
	if got := s.exec("x-y-0", "cat /usr/share/nginx/html/mark"); got != "x-y-0" {
		t.Errorf("the volume of x-y-0 holds %q", got)
	}

	s.apply(later)
	s.awaitCondition("y", "Degraded", corev1.ConditionTrue, `\bx-y\b`)
	s.kubectl("delete", "sts", "x-y", "--cascade=foreground")
	s.kubectl("rollout", "status", "sts/y", "--timeout="+patience.String())
}

// calls gives a set and its one claim template other names.
func calls(name, claim string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Name = name
		set.Spec.Selector.MatchLabels = map[string]string{"app": name}
		set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
		set.Spec.VolumeClaimTemplates[0].Name = claim
		set.Spec.Template.Spec.Containers[0].VolumeMounts[0].Name = claim
	}
}

// A name from which no pod can follow is told at once, with the limit that it exceeds.
func TestNameThatYieldsNoPod(t *testing.T) {
	s := onShared(t)
	name := strings.Repeat("n", 57)
	s.apply(s.webSet(withoutClaims, func(set *appsv1.StatefulSet) { set.Name = name }))
	s.awaitCondition(name, "Degraded", corev1.ConditionTrue, `\b63\b`)
	s.eventually(patience, "an event tells the limit", func() error {
		if events := s.eventsOf("StatefulSet", name); !regexp.MustCompile(`FailedCreate .*\b63\b`).MatchString(events) {
			return fmt.Errorf("events are:\n%s", events)
		}
		return nil
	})
}

// On one node, a set whose pods may not share a node has one pod that runs and one that does not, and the set says by which
// rule.
func TestAntiAffinity(t *testing.T) {
	s := onShared(t)
	story := s.watchPods()
	s.apply(webService())
	s.apply(s.webSet(withoutClaims, func(set *appsv1.StatefulSet) {
		set.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "my-app"}},
				TopologyKey:   corev1.LabelHostname,
			}},
		}}
	}))
	want := append(inOrder(0), "web-1 created")
	story.expect(0, want...)
	story.awaitPod("web-1", "it cannot be scheduled", isUnschedulable)
	s.awaitCondition("web", "Degraded", corev1.ConditionTrue, `web-1.*anti-affinity`)
	s.awaitCondition("web", "Available", corev1.ConditionFalse, `1 of 3`)
	s.awaitWhy(1, "web-1", "anti-affinity")
	s.rests(3*time.Second, story, len(want))
	if status := s.set().Status; status.Replicas != 2 || status.ReadyReplicas != 1 {
		t.Errorf("status is %+v", status)
	}
}

// awaitCondition waits until a condition of a set has this status, and a message that matches.
func (s *space) awaitCondition(set string, kind appsv1.StatefulSetConditionType, status corev1.ConditionStatus, message string) {
	s.Helper()
	re := regexp.MustCompile(message)
	s.eventually(patience, fmt.Sprintf("%s of %s is %s with a message like %s", kind, set, status, message), func() error {
		conditions := get[appsv1.StatefulSet](s, "sts", set).Status.Conditions
		i := slices.IndexFunc(conditions, func(c appsv1.StatefulSetCondition) bool { return c.Type == kind })
		if i < 0 || conditions[i].Status != status || !re.MatchString(conditions[i].Message) || conditions[i].Reason == "" {
			return fmt.Errorf("conditions are %+v", conditions)
		}
		return nil
	})
}

// rests ends the test unless nothing is told after the n-th chapter, for a while.
func (s *space) rests(period time.Duration, story *story, n int) {
	s.Helper()
	s.throughout(period, "nothing happens", func() error {
		if chapters, _ := story.since(n); len(chapters) > 0 {
			return fmt.Errorf("it goes on: %v", chapters)
		}
		return nil
	})
}

// awaitPod waits until the story knows a pod of this name that stays and passes the check.
func (s *story) awaitPod(name, what string, check func(corev1.Pod) error) corev1.Pod {
	s.Helper()
	var found corev1.Pod
	eventually(s.T, patience, name+": "+what, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		err := fmt.Errorf("%s is not there", name)
		for _, pod := range s.last {
			if pod.Name == name && pod.DeletionTimestamp == nil {
				found, err = pod, check(pod)
			}
		}
		return err
	})
	return found
}

// waitsBecause is a check that a pod's container waits for one of these reasons.
func waitsBecause(reasons string) func(corev1.Pod) error {
	return func(pod corev1.Pod) error {
		for _, c := range pod.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && slices.Contains(strings.Fields(reasons), w.Reason) {
				return nil
			}
		}
		return fmt.Errorf("its containers are %+v", pod.Status.ContainerStatuses)
	}
}

func isUnschedulable(pod corev1.Pod) error {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return nil
		}
	}
	return fmt.Errorf("its conditions are %+v", pod.Status.Conditions)
}

func runs(pod corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("it is %s", pod.Status.Phase)
	}
	return nil
}
