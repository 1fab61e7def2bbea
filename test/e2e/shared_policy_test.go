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
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
)

// What a StatefulSetPolicy makes of its set.

// A rollout that makes no progress is brought back, though nobody touched the set. It is tried again when somebody asks for it,
// and the next template is rolled out as ever.
func TestDeadlineRollsBack(t *testing.T) {
	s := onShared(t)
	s.webOf(2, withoutClaims)
	lives := s.lives()
	delete(lives, "web-1")
	old := s.set().Status.CurrentRevision
	s.govern(v1alpha1.StatefulSetPolicySpec{Rollout: &v1alpha1.RolloutPolicy{
		ProgressDeadlineSeconds: new(int32(15)), OnDeadline: v1alpha1.RollBack,
	}})
	story := s.watchPods()
	told := story.now()
	began := time.Now()
	s.kubectl("set", "image", "sts/web", "nginx="+noImage)
	tried := append(deletedInOrder(1), "web-1 created")
	back := slices.Concat(tried, replacedInOrder(1))
	story.expect(told, back...)
	if after := time.Since(began); after < 14*time.Second {
		t.Errorf("it was brought back after %v, before its deadline", after)
	}
	s.awaitPhase(v1alpha1.RolloutRolledBack)
	s.checkRevisions(map[string]string{"web-0": old, "web-1": old})
	s.checkSameLives(lives)
	if got := s.set().Spec.Template.Spec.Containers[0].Image; got != noImage {
		t.Errorf("the template has the image %s: somebody wrote the set", got)
	}
	if out := s.tryOrdinal("rollout", "status", "sts/web"); out.code != 1 || !strings.Contains(flat(said(out)), "rolled back") {
		t.Errorf("rollout status ends with %d, want 1 and the reason:\n%s", out.code, said(out))
	}
	if table := s.kubectl("get", "stspolicy"); !regexp.MustCompile(`(?m)^web\s+web\s+True\s.*RolledBack`).MatchString(table) {
		t.Errorf("get stspolicy shows\n%s", table)
	}
	s.rests(3*time.Second, story, told+len(back))

	told = story.now()
	s.ordinal("rollout", "retry", "sts/web")
	story.expect(told, tried...)
	s.awaitPhase(v1alpha1.RolloutProgressing)
	s.kubectl("set", "image", "sts/web", "nginx="+newImage)
	story.expect(told+len(tried), replacedInOrder(1, 0)...)
	s.awaitPhase(v1alpha1.RolloutComplete)
	s.ordinal("rollout", "status", "sts/web")
	s.checkImages(map[string]string{"web-0": newImage, "web-1": newImage})
}

// The primary of a database goes last, also if another becomes it meanwhile, and what was written stays.
func TestLeaderGoesLast(t *testing.T) {
	s := onShared(t)
	s.webOf(3, redis, withGreeting("one"))
	for _, follower := range []string{"web-0", "web-1"} {
		s.follow(follower, "web-2")
	}
	s.kubectl("label", "pod", "web-2", "role=primary")
	s.write("web-2", "before", "the rollout", 2)
	s.govern(v1alpha1.StatefulSetPolicySpec{Rollout: &v1alpha1.RolloutPolicy{
		Order: v1alpha1.LeaderLast, LeaderSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "primary"}},
	}})
	// So that web-1 comes back, and is not ready before the primary has moved.
	s.exec("web-1", "touch hold-two")
	story := s.watchPods()
	told := story.now()
	s.kubectl("set", "env", "sts/web", "GREETING=two")
	want := append(deletedInOrder(1), "web-1 created")
	story.expect(told, want...)
	story.awaitPod("web-1", "it runs", runs)

	s.exec("web-0", "redis-cli replicaof no one && redis-cli config rewrite")
	s.kubectl("label", "pod", "web-0", "role=primary")
	s.kubectl("label", "pod", "web-2", "role-")
	for _, follower := range []string{"web-1", "web-2"} {
		s.follow(follower, "web-0")
	}
	s.write("web-0", "during", "the rollout", 2)
	s.exec("web-1", "rm hold-two")
	story.expect(told, slices.Concat(want, []string{"web-1 ready"}, replacedInOrder(2, 0))...)
	s.rolledOut()
	for _, pod := range []string{"web-0", "web-1", "web-2"} {
		for _, key := range []string{"before", "during"} {
			if got := s.exec(pod, "redis-cli get "+key); got != "the rollout" {
				t.Errorf("%s has %q for %s", pod, got, key)
			}
		}
	}
}

// redis makes the set's pods a redis each, which keeps what it is told in its volume: its data, and whom it follows.
func redis(set *appsv1.StatefulSet) {
	c := &set.Spec.Template.Spec.Containers[0]
	c.Image, c.WorkingDir, c.VolumeMounts[0].MountPath = redisImage, "/data", "/data"
	c.Ports[0].ContainerPort = 6379
	c.Command = []string{"sh", "-c", `test -e redis.conf || printf 'appendonly yes\nprotected-mode no\n' > redis.conf; exec redis-server redis.conf`}
	readyWhen(`test ! -e "hold-$GREETING" && redis-cli ping`)(set)
}

// follow makes a redis the replica of another, now and after its next start, and waits until it has its data.
func (s *space) follow(pod, primary string) {
	s.Helper()
	s.exec(pod, "redis-cli replicaof "+primary+".web-svc 6379 && redis-cli config rewrite")
	s.eventually(patience, pod+" follows "+primary, func() error {
		if info := s.exec(pod, "redis-cli info replication"); !strings.Contains(info, "master_link_status:up") {
			return fmt.Errorf("it says:\n%s", info)
		}
		return nil
	})
}

// write writes into a redis, and waits until so many replicas have it.
func (s *space) write(pod, key, value string, replicas int) {
	s.Helper()
	said := s.exec(pod, fmt.Sprintf("redis-cli set %s '%s' && redis-cli wait %d 20000", key, value, replicas))
	if want := fmt.Sprintf("OK\n%d", replicas); said != want {
		s.Fatalf("set and wait say %q, want %q", said, want)
	}
}

// A rollout by eviction waits for a budget that forbids it, tells so, and goes on as soon as the budget allows it.
func TestEvictingRolloutWaitsForBudget(t *testing.T) {
	s := onShared(t)
	s.webOf(2, withoutClaims, withGreeting("one"))
	budget := policyv1.PodDisruptionBudget{}
	budget.APIVersion, budget.Kind, budget.Name = "policy/v1", "PodDisruptionBudget", "quorum"
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "my-app"}}
	budget.Spec.MinAvailable = new(intstr.FromInt32(2))
	s.apply(budget)
	s.govern(v1alpha1.StatefulSetPolicySpec{Rollout: &v1alpha1.RolloutPolicy{Disruption: v1alpha1.Evict}})
	story := s.watchPods()
	told := story.now()
	s.kubectl("set", "env", "sts/web", "GREETING=two")
	s.awaitCondition("web", "Progressing", corev1.ConditionTrue, `web-1.*PodDisruptionBudget`)
	s.awaitWhy(1, "web-1", "budget quorum")
	s.rests(3*time.Second, story, told)
	budget.Spec.MinAvailable = new(intstr.FromInt32(1))
	s.apply(budget)
	story.expect(told, replacedInOrder(1, 0)...)
	s.rolledOut()
	s.checkGreeting("two")
}

// A paused rollout takes no pod until it is resumed.
func TestPausedRollout(t *testing.T) {
	s := onShared(t)
	s.webOf(2, withoutClaims, withGreeting("one"))
	old := s.set().Status.CurrentRevision
	s.ordinal("rollout", "pause", "sts/web")
	story := s.watchPods()
	told := story.now()
	s.kubectl("set", "env", "sts/web", "GREETING=two")
	s.awaitPhase(v1alpha1.RolloutPaused)
	s.rests(3*time.Second, story, told)
	// A pod that gets lost comes back as it was.
	s.kubectl("delete", "pod", "web-1")
	story.expect(told, replacedInOrder(1)...)
	s.checkRevisions(map[string]string{"web-0": old, "web-1": old})

	told = story.now()
	s.ordinal("rollout", "resume", "sts/web")
	story.expect(told, replacedInOrder(1, 0)...)
	s.awaitPhase(v1alpha1.RolloutComplete)
}

// A rollout by batches stops after each, until it is resumed.
func TestRolloutByBatches(t *testing.T) {
	s := onShared(t)
	s.webOf(3, withoutClaims, withGreeting("one"))
	s.govern(v1alpha1.StatefulSetPolicySpec{Rollout: &v1alpha1.RolloutPolicy{PauseAfter: &v1alpha1.PauseAfter{Ordinals: new(int32(1))}}})
	story := s.watchPods()
	told := story.now()
	s.kubectl("set", "env", "sts/web", "GREETING=two")
	for _, i := range []int{2, 1} {
		batch := replacedInOrder(i)
		story.expect(told, batch...)
		told += len(batch)
		s.awaitPhase(v1alpha1.RolloutPaused)
		s.rests(2*time.Second, story, told)
		s.ordinal("rollout", "resume", "sts/web")
	}
	story.expect(told, replacedInOrder(0)...)
	s.awaitPhase(v1alpha1.RolloutComplete)
	s.checkGreeting("two")
}

// Any ordinal can be retired: another takes its place before it goes, and its claim stays.
func TestReservedOrdinal(t *testing.T) {
	s := onShared(t)
	s.webOf(3)
	s.mark(3)
	claims := s.claims()
	lives := s.lives()
	delete(lives, "web-1")
	story := s.watchPods()
	told := story.now()
	s.govern(v1alpha1.StatefulSetPolicySpec{Scaling: &v1alpha1.ScalingPolicy{ReservedOrdinals: []intstr.IntOrString{intstr.FromInt32(1)}}})
	story.expect(told, slices.Concat(inOrder(3), deletedInOrder(1))...)
	s.awaitReady(3)
	s.checkSameLives(lives)
	claims["www-web-3"] = s.claims()["www-web-3"]
	s.checkSameClaims(claims)

	told = story.now()
	s.kubectl("delete", "stspolicy", "web")
	story.expect(told, slices.Concat(inOrder(1), deletedInOrder(3))...)
	s.awaitReady(3)
	s.checkMarks(3)
}

// A pod that is scaled away is told so, in time to act on it; one that is updated is told why, too.
func TestPodsAreToldWhyTheyGo(t *testing.T) {
	const drain = 5 * time.Second
	s := onShared(t)
	s.webOf(2, lastWords)
	s.govern(v1alpha1.StatefulSetPolicySpec{Scaling: &v1alpha1.ScalingPolicy{ScaleDown: &v1alpha1.ScaleDown{
		DrainSeconds: int32(drain / time.Second), ReasonAnnotation: true,
	}}})
	story := s.watchPods()
	told := story.now()
	away := s.pods()["web-1"].UID
	s.kubectl("scale", "sts/web", "--replicas=1")
	pod := story.awaitPod("web-1", "it is told that it goes", isTold)
	if chapters, _ := story.since(told); len(chapters) > 0 {
		t.Errorf("web-1 was told, but not before %v", chapters)
	}
	began := time.Now()
	s.awaitCondition("web", "Progressing", corev1.ConditionTrue, `web-1.*drain`)
	story.expect(told, deletedInOrder(1)...)
	at, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.StopAtAnnotation])
	if chapters, _ := story.since(told); err != nil || chapters[0].at.Before(at) || chapters[0].at.Sub(began) < drain-2*time.Second {
		t.Errorf("web-1 was told %q at %v, and went at %v", pod.Annotations[v1alpha1.StopAtAnnotation], began, chapters[0].at)
	}
	checkReason(story, away, "ScaleDown")

	updated := s.pods()["web-0"].UID
	told = story.now()
	s.kubectl("scale", "sts/web", "--replicas=2")
	story.expect(told, inOrder(1)...)
	if got := s.exec("web-1", "cat words"); got != "ScaleDown" {
		t.Errorf("the last web-1 went because of %q", got)
	}
	s.kubectl("set", "env", "sts/web", "GREETING=two")
	story.expect(told+2, replacedInOrder(1, 0)...)
	checkReason(story, updated, "Update")
}

// lastWords makes the set's pods note in their volume why they are stopped, as their own file system tells it.
func lastWords(set *appsv1.StatefulSet) {
	spec := &set.Spec.Template.Spec
	c := &spec.Containers[0]
	c.WorkingDir = "/usr/share/nginx/html"
	c.Command = []string{"sh", "-c", `trap "cat /told/reason > words; exit" TERM; while :; do sleep 0.1; done`}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "told", MountPath: "/told"})
	field := &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + v1alpha1.StopReasonAnnotation + "']"}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "told", VolumeSource: corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "reason", FieldRef: field}}},
	}})
}

func isTold(pod corev1.Pod) error {
	if pod.Annotations[v1alpha1.StopReasonAnnotation] == "" {
		return fmt.Errorf("its annotations are %v", pod.Annotations)
	}
	return nil
}

// checkReason checks what a pod that is gone was told.
func checkReason(s *story, uid types.UID, want string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.last[uid].Annotations[v1alpha1.StopReasonAnnotation]; got != want {
		s.Errorf("%s was told %q, want %q", s.last[uid].Name, got, want)
	}
}

// govern gives the set web its policy, and waits until it is obeyed.
func (s *space) govern(spec v1alpha1.StatefulSetPolicySpec) {
	s.Helper()
	policy := v1alpha1.StatefulSetPolicy{Spec: spec}
	policy.APIVersion, policy.Kind, policy.Name = v1alpha1.GroupVersion().String(), v1alpha1.Kind, "web"
	policy.Spec.TargetRef.Name = "web"
	s.apply(policy)
	s.kubectl("wait", "--for=condition="+v1alpha1.ConditionAccepted, "stspolicy/web", "--timeout="+patience.String())
}

// awaitPhase waits until the one policy of the space tells how the rollout fares.
func (s *space) awaitPhase(want v1alpha1.RolloutPhase) {
	s.Helper()
	s.eventually(patience, "the rollout is "+string(want), func() error {
		list := get[v1alpha1.StatefulSetPolicyList](s, "stspolicy")
		if len(list.Items) != 1 || list.Items[0].Status.Rollout == nil || list.Items[0].Status.Rollout.Phase != want {
			return fmt.Errorf("the policies are:\n%s", s.kubectl("get", "stspolicy", "-o", "yaml"))
		}
		return nil
	})
}
