// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/why"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// scene is a world in which something is to be explained.
type scene struct {
	*sim.World
	t     *testing.T
	facts why.Facts
	// later is how long after the world came to rest the question is put.
	later time.Duration
	// unbound are the claims that have no volume.
	unbound []string
}

func newScene(t *testing.T, replicas int32, changes ...func(*appsv1.StatefulSet)) *scene {
	t.Helper()
	s := &scene{World: sim.New(sim.NewSet("web", replicas, changes...)), t: t, later: 5 * time.Minute}
	s.facts.Actor = why.Ordinal
	s.facts.Tools = why.Tools{Kubectl: "kubectl", Ordinal: "ordinal", Flags: " -n shop"}
	s.facts.Logs = map[why.Container][]string{}
	return s
}

func (s *scene) settle() {
	s.t.Helper()
	if err := s.Settle(); err != nil {
		s.t.Fatal(err)
	}
}

// stops lets pods of an image get no further than that, and changes the template to it.
func (s *scene) stops(fate sim.Fate) {
	s.t.Helper()
	s.Fate = func(p *corev1.Pod) sim.Fate {
		if p.Spec.Containers[0].Image == "bad" {
			return fate
		}
		return sim.Good
	}
	s.settle()
	s.image("bad")
	s.settle()
}

func (s *scene) image(name string) {
	s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = name })
}

// of changes the state of the one container of a pod.
func (s *scene) of(pod string, change func(*corev1.ContainerStatus)) {
	s.Change(pod, func(p *corev1.Pod) {
		status := corev1.ContainerStatus{Name: "main", Image: p.Spec.Containers[0].Image}
		change(&status)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	})
}

// event adds an event that happened some time before the question is put.
func (s *scene) event(kind, name, reason, message string, count int32, ago time.Duration) {
	e := corev1.Event{Reason: reason, Message: message, Count: count}
	e.InvolvedObject = corev1.ObjectReference{Kind: kind, Name: name}
	if pod := s.Pods[name]; kind == "Pod" && pod != nil {
		e.InvolvedObject.UID = pod.UID
	}
	e.LastTimestamp = metav1.Time{Time: s.Now.Add(s.later - ago)}
	e.FirstTimestamp = metav1.Time{Time: s.Now.Add(s.later - ago - time.Duration(count)*time.Minute)}
	s.facts.Events = append(s.facts.Events, e)
}

func (s *scene) policy(name string, rollout v1alpha1.RolloutPolicy) {
	p := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	p.Spec.TargetRef.Name = "web"
	p.Spec.Rollout = &rollout
	s.AddPolicy(p)
}

func (s *scene) report() why.Report {
	for name, c := range s.Claims {
		c = c.DeepCopy()
		c.Status.Phase = corev1.ClaimBound
		if slices.Contains(s.unbound, name) {
			c.Status.Phase = corev1.ClaimPending
		}
		s.Claims[name] = c
	}
	s.facts.Snapshot = s.Snapshot()
	s.facts.Snapshot.Now = s.Now.Add(s.later)
	s.facts.Plan = plan.Make(s.facts.Snapshot)
	return why.Of(s.facts)
}

func strategy(kind appsv1.StatefulSetUpdateStrategyType) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: kind} }
}

func parallel(set *appsv1.StatefulSet) { set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func badImage(s *corev1.ContainerStatus) {
	s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "bad"`}
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func unschedulable(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
			LastTransitionTime: p.CreationTimestamp,
		})
	}
}

// scenes are the situations, by the names of their golden files.
var scenes = map[string]struct {
	state why.State
	make  func(*testing.T) *scene
}{
	"all-well": {why.Up, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.settle()
		return s
	}},
	"scaled-to-0": {why.Up, func(t *testing.T) *scene {
		s := newScene(t, 0)
		s.settle()
		return s
	}},
	"fresh-without-a-controller": {why.Progressing, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.facts.Actor = why.Unknown
		return s
	}},
	"rolling-out": {why.Progressing, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.settle()
		s.image("two")
		s.Sync()
		s.later = 3 * time.Second
		return s
	}},
	"bad-image": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.stops(sim.Stuck)
		s.of("web-2", badImage)
		s.event("Pod", "web-2", "Failed", `Failed to pull image "bad": registry.example/bad: manifest unknown`, 7, 40*time.Second)
		s.event("Pod", "web-2", "Failed", "Error: ImagePullBackOff", 12, 50*time.Second)
		return s
	}},
	"bad-image-from-the-start": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2, parallel)
		s.Fate = func(*corev1.Pod) sim.Fate { return sim.Stuck }
		s.settle()
		s.of("web-0", badImage)
		s.of("web-1", badImage)
		return s
	}},
	"crash-loop": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.stops(sim.Unready)
		s.of("web-1", func(c *corev1.ContainerStatus) {
			c.RestartCount = 6
			c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 2m40s restarting failed container"}
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: 1, Reason: "Error", FinishedAt: metav1.Time{Time: s.Now.Add(4 * time.Minute)},
			}
		})
		s.facts.Logs[why.Container{Pod: "web-1", Name: "main"}] = []string{
			"reading /etc/web/config.yaml",
			"panic: open /etc/web/config.yaml: \x1b[31mno such file or directory\x1b[0m, and this line is very long indeed",
		}
		return s
	}},
	"out-of-memory": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 1)
		s.settle()
		s.Change("web-0", unready)
		s.of("web-0", func(c *corev1.ContainerStatus) {
			c.RestartCount = 1
			c.State.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.Time{Time: s.Now.Add(4 * time.Minute)},
			}
		})
		return s
	}},
	"bad-config": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 1)
		s.Fate = func(*corev1.Pod) sim.Fate { return sim.Stuck }
		s.settle()
		s.of("web-0", func(c *corev1.ContainerStatus) {
			c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "db" not found`}
		})
		return s
	}},
	"failing-probe": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.settle()
		s.Change("web-0", unready)
		s.event("Pod", "web-0", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", 30, 4*time.Second)
		s.event("Pod", "web-0", "Unhealthy", "Readiness probe failed: connection refused", 2, 3*time.Minute)
		return s
	}},
	"mended-by-itself": {why.Progressing, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.stops(sim.Stuck)
		s.of("web-1", badImage)
		s.image("good")
		return s
	}},
	"paused-and-broken": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.settle()
		s.policy("careful", v1alpha1.RolloutPolicy{Paused: true})
		s.image("two")
		s.settle()
		s.Change("web-0", unready)
		return s
	}},
	"budget-spent": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 3, parallel)
		s.stops(sim.Unready)
		return s
	}},
	"readiness-gate": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 1)
		s.settle()
		s.Change("web-0", unready)
		s.Change("web-0", func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/in-balance"}}
		})
		return s
	}},
	"unschedulable": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 1)
		s.Fate = func(*corev1.Pod) sim.Fate { return sim.Stuck }
		s.settle()
		s.Change("web-0", unschedulable("0/3 nodes are available: 3 Insufficient memory. no new claims to deallocate, "+
			"preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."))
		return s
	}},
	"claim-pending": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 1)
		s.Fate = func(*corev1.Pod) sim.Fate { return sim.Stuck }
		s.settle()
		s.Change("web-0", unschedulable("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."))
		s.unbound = []string{"data-web-0"}
		s.event("PersistentVolumeClaim", "data-web-0", "ProvisioningFailed", `storageclass.storage.k8s.io "fast" not found`, 20, 9*time.Second)
		return s
	}},
	"claim-terminating": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2, parallel)
		s.settle()
		c := s.Claims["data-web-1"].DeepCopy()
		c.DeletionTimestamp = &metav1.Time{Time: s.Now}
		c.Finalizers = []string{"kubernetes.io/pvc-protection"}
		s.Claims[c.Name] = c
		delete(s.Pods, "web-1")
		return s
	}},
	"name-taken": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.settle()
		s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Replicas = new(int32(3)) })
		s.AddPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-2", Namespace: "default", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: "web", UID: "job", Controller: new(true),
		}}}})
		s.settle()
		return s
	}},
	"quota": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.settle()
		s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Replicas = new(int32(4)) })
		s.event("StatefulSet", "web", "FailedCreate", `create Pod web-3 in StatefulSet web failed error: pods "web-3" is forbidden: `+
			"exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3", 9, 20*time.Second)
		s.event("StatefulSet", "web", "FailedCreate", "create Pod web-30 in StatefulSet web failed error: no", 1, time.Second)
		return s
	}},
	"refused-as-the-status-tells": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 1)
		s.Edit(func(set *appsv1.StatefulSet) {
			set.Status.Conditions = []appsv1.StatefulSetCondition{{
				Type: "Degraded", Status: corev1.ConditionTrue, Reason: "FailedCreate", LastTransitionTime: metav1.Time{Time: s.Now},
				Message: "pod web-0 cannot be created: the server says no",
			}}
		})
		return s
	}},
	"partition": {why.Up, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.settle()
		s.Edit(func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2)) })
		s.image("two")
		s.settle()
		return s
	}},
	"on-delete": {why.Up, func(t *testing.T) *scene {
		s := newScene(t, 3, strategy(appsv1.OnDeleteStatefulSetStrategyType))
		s.settle()
		s.image("two")
		s.settle()
		s.Kill("web-1")
		s.settle()
		return s
	}},
	"paused": {why.Paused, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.settle()
		s.policy("careful", v1alpha1.RolloutPolicy{Paused: true})
		s.image("two")
		s.settle()
		return s
	}},
	"between-batches": {why.Paused, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.settle()
		s.policy("careful", v1alpha1.RolloutPolicy{PauseAfter: &v1alpha1.PauseAfter{Ordinals: new(int32(1))}})
		s.image("two")
		s.settle()
		return s
	}},
	"given-up": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.policy("careful", v1alpha1.RolloutPolicy{ProgressDeadlineSeconds: new(int32(60))})
		s.stops(sim.Unready)
		return s
	}},
	"rolled-back": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.policy("careful", v1alpha1.RolloutPolicy{ProgressDeadlineSeconds: new(int32(60)), OnDeadline: v1alpha1.RollBack})
		s.stops(sim.Unready)
		return s
	}},
	"two-policies": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.settle()
		s.image("two")
		s.policy("careful", v1alpha1.RolloutPolicy{})
		s.policy("hasty", v1alpha1.RolloutPolicy{Paused: true})
		return s
	}},
	"eviction-blocked": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.settle()
		s.image("two")
		s.policy("gentle", v1alpha1.RolloutPolicy{Disruption: v1alpha1.Evict})
		s.facts.Budgets = []*policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Name: "all-or-nothing"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 2, DesiredHealthy: 2, ExpectedPods: 2},
		}, {
			ObjectMeta: metav1.ObjectMeta{Name: "of-others"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
		}}
		return s
	}},
	"node-is-gone": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.settle()
		s.Change("web-1", func(p *corev1.Pod) {
			p.Spec.NodeName = "n7"
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: s.Now.Add(30 * time.Second)}, new(int64(30))
		})
		return s
	}},
	"scaling-down": {why.Progressing, func(t *testing.T) *scene {
		s := newScene(t, 3)
		s.settle()
		s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Replicas = new(int32(1)) })
		return s
	}},
	"being-deleted": {why.Deleting, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.settle()
		s.Edit(func(set *appsv1.StatefulSet) {
			set.DeletionTimestamp = &metav1.Time{Time: s.Now}
			set.Finalizers = []string{"example.com/backup"}
		})
		return s
	}},
	"bad-selector": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 1)
		s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Selector = nil })
		return s
	}},
	"incumbent": {why.Stuck, func(t *testing.T) *scene {
		s := newScene(t, 2)
		s.Options.Strict = true
		s.facts.Actor = why.Incumbent
		s.stops(sim.Stuck)
		s.of("web-1", badImage)
		s.image("good")
		return s
	}},
}

// Each rule by which something does not count as evidence.
func TestWhatDoesNotCount(t *testing.T) {
	t.Run("an event of an earlier pod of the name", func(t *testing.T) {
		s := newScene(t, 1)
		s.settle()
		s.Change("web-0", unready)
		s.event("Pod", "web-0", "Unhealthy", "Readiness probe failed: no", 1, time.Minute)
		s.facts.Events[0].InvolvedObject.UID = "earlier"
		if w := s.report().Waits; len(w) != 1 || len(w[0].Evidence) != 0 {
			t.Errorf("it waits for %+v, want one wait without evidence", w)
		}
	})
	t.Run("a budget that allows a disruption", func(t *testing.T) {
		s := newScene(t, 2)
		s.settle()
		s.image("two")
		s.policy("gentle", v1alpha1.RolloutPolicy{Disruption: v1alpha1.Evict})
		s.facts.Budgets = []*policyv1.PodDisruptionBudget{{
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2},
		}}
		if r := s.report(); r.State != why.Progressing || len(r.Waits) != 0 {
			t.Errorf("it is %s and waits for %+v, want nothing", r.State, r.Waits)
		}
	})
	t.Run("a claim that has just been deleted", func(t *testing.T) {
		s := newScene(t, 1)
		s.settle()
		c := s.Claims["data-web-0"].DeepCopy()
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: s.Now}, []string{"kubernetes.io/pvc-protection"}
		s.Claims[c.Name] = c
		delete(s.Pods, "web-0")
		s.later = 10 * time.Second
		if r := s.report(); r.State != why.Progressing || len(r.Waits) != 1 || r.Waits[0].Wrong {
			t.Errorf("it is %s and waits for %+v, want nothing wrong", r.State, r.Waits)
		}
	})
	t.Run("a refusal of long ago", func(t *testing.T) {
		s := newScene(t, 1)
		s.event("StatefulSet", "web", "FailedCreate", "create Pod web-0 in StatefulSet web failed error: no", 1, time.Hour)
		if r := s.report(); r.State != why.Progressing || len(r.Waits) != 0 {
			t.Errorf("it is %s and waits for %+v, want nothing", r.State, r.Waits)
		}
	})
}

func TestScenes(t *testing.T) {
	for name, sc := range scenes {
		t.Run(name, func(t *testing.T) {
			r := sc.make(t).report()
			if r.State != sc.state {
				t.Errorf("it is %s, want %s", r.State, sc.state)
			}
			var out bytes.Buffer
			if err := r.Print(&out, false); err != nil {
				t.Fatal(err)
			}
			golden(t, name, out.String())
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(line)) - 1; n > 80 && !strings.HasPrefix(line, "      ") {
					t.Errorf("a line has %d columns: %s", n, line)
				}
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s tells something else; if it is right, run the test with -rewrite. It is now:\n%s", path, got)
	}
}
