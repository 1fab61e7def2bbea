// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/status"
)

func image(image string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = image }
}

func replicas(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Replicas = &n }
}

func withoutClaims(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates = nil }

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

// obey gives the set a policy.
func obey(w *sim.World, name string, change func(*v1alpha1.StatefulSetPolicy)) {
	p := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	p.Spec.TargetRef.Name = "web"
	p.Spec.Rollout = &v1alpha1.RolloutPolicy{}
	change(p)
	w.AddPolicy(p)
}

func deadline(seconds int32, then v1alpha1.OnDeadline) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) {
		p.Spec.Rollout.ProgressDeadlineSeconds, p.Spec.Rollout.OnDeadline = &seconds, then
	}
}

// badIsStuck lets pods with the image bad never run.
func badIsStuck(p *corev1.Pod) sim.Fate {
	if p.Spec.Containers[0].Image == "bad" {
		return sim.Stuck
	}
	return sim.Good
}

func refuse[A plan.Action](w *sim.World, text string) {
	w.Refuse = func(a plan.Action) error {
		if _, is := a.(A); is {
			return errors.New(text)
		}
		return nil
	}
}

// tell writes the conditions of a set, a line each, with NEW and OLD in the place of its revisions.
func tell(s appsv1.StatefulSetStatus) string {
	var b strings.Builder
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "%s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return strings.NewReplacer(s.UpdateRevision, "NEW", s.CurrentRevision, "OLD").Replace(b.String())
}

// rest lets the controller work until it has nothing more to do at this moment, or is refused over and over.
func rest(w *sim.World) {
	for range 20 {
		if !w.Sync() {
			return
		}
	}
}

const (
	allAvailable = "Available True AllAvailable: 3 of 3 pods are available\n"
	complete     = "Progressing False Complete: revision NEW: 3 of 3 pods\n"
	asExpected   = "Degraded False AsExpected: \n"
)

func TestConditions(t *testing.T) {
	tests := map[string]struct {
		// change is made to a set of 3 that has all its pods.
		change func(*sim.World)
		want   string
	}{
		"all is well": {func(*sim.World) {}, allAvailable + complete + asExpected},
		"an update": {
			func(w *sim.World) { w.Edit(image("two")) },
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True Updating: revision NEW: 0 of 3 pods; waits for pod web-2 to be available, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"the last pod of an update": {
			func(w *sim.World) {
				w.Edit(image("two"))
				for w.Pods["web-0"] == nil || w.Pods["web-0"].Spec.Containers[0].Image == "one" {
					if !w.Sync() {
						w.Advance()
					}
				}
			},
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True Updating: revision NEW: 2 of 3 pods; waits for pod web-0 to be available, since 2026-01-01T00:00:12Z\n" +
				asExpected,
		},
		"an update beyond its budget": {
			func(w *sim.World) { w.Edit(image("two")); w.Change("web-0", unready) },
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True Updating: revision NEW: 0 of 3 pods; waits for pod web-0 to be available, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"more pods": {func(w *sim.World) { w.Edit(replicas(4)) }, "Available False TooFewAvailable: 3 of 4 pods are available\n" +
			"Progressing True Scaling: revision NEW: 3 of 4 pods; waits for pod web-3 to be available, since 2026-01-01T00:00:06Z\n" +
			asExpected},
		"less pods": {func(w *sim.World) { w.Edit(replicas(2)) }, "Available True AllAvailable: 2 of 2 pods are available\n" +
			"Progressing True Scaling: revision NEW: 2 of 2 pods; waits for pod web-2 to be gone, since 2026-01-01T00:00:06Z\n" +
			asExpected},
		"a pod is deleted": {func(w *sim.World) { w.Kill("web-1") }, "Available False TooFewAvailable: 2 of 3 pods are available\n" +
			"Progressing True Scaling: revision NEW: 2 of 3 pods; waits for pod web-1 to be available, since 2026-01-01T00:00:06Z\n" +
			asExpected},
		"a pod beyond the range goes while all serve": {
			func(w *sim.World) { w.Edit(replicas(1)) }, "Available True AllAvailable: 1 of 1 pods are available\n" +
				"Progressing True Scaling: revision NEW: 1 of 1 pods; waits for pod web-2 to be gone, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"on delete": {
			func(w *sim.World) {
				w.Edit(func(s *appsv1.StatefulSet) {
					image("two")(s)
					s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
				})
			},
			allAvailable +
				"Progressing False OnDelete: revision NEW: 0 of 3 pods; the others wait to be deleted by somebody\n" +
				asExpected,
		},
		"on delete, and a pod is missing": {
			func(w *sim.World) {
				w.Edit(func(s *appsv1.StatefulSet) {
					image("two")(s)
					s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
				})
				w.Kill("web-1")
			},
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True Updating: revision NEW: 0 of 3 pods; waits for pod web-1 to be available, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"an update of pods that are missing": {
			func(w *sim.World) {
				w.Edit(func(s *appsv1.StatefulSet) {
					s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2))
					image("two")(s)
				})
				delete(w.Pods, "web-2")
			},
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True Updating: revision NEW: 0 of 1 pods; waits for pod web-2 to be available, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"kept by the partition": {
			func(w *sim.World) {
				w.Edit(func(s *appsv1.StatefulSet) {
					s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(9))
					image("two")(s)
				})
			},
			allAvailable +
				"Progressing False Complete: revision NEW: 0 of 0 pods; the others are kept by the partition\n" +
				asExpected,
		},
		"paused": {
			func(w *sim.World) {
				obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Paused = true })
				w.Edit(image("two"))
			},
			allAvailable +
				"Progressing False RolloutPaused: revision NEW: 0 of 3 pods; its policy pauses the rollout, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"paused, and a pod is missing": {
			func(w *sim.World) {
				obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Paused = true })
				w.Edit(image("two"))
				w.Kill("web-0")
			},
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True Updating: revision NEW: 0 of 3 pods; waits for pod web-0 to be available, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"paused, and a pod is refused": {
			func(w *sim.World) {
				obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Paused = true })
				w.Edit(image("two"))
				delete(w.Pods, "web-0")
				refuse[plan.CreatePod](w, "no")
			},
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True Updating: revision NEW: 0 of 3 pods; waits for pod web-0 to be available, since 2026-01-01T00:00:06Z\n" +
				"Degraded True FailedCreate: pod web-0 is refused: no, since 2026-01-01T00:00:06Z\n",
		},
		"between batches": {
			func(w *sim.World) {
				obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) {
					p.Spec.Rollout.PauseAfter = &v1alpha1.PauseAfter{Ordinals: new(int32(1)), Seconds: new(int32(60))}
				})
				w.Edit(image("two"))
				for w.Policies["a"].Status.Rollout == nil || w.Policies["a"].Status.Rollout.Phase != v1alpha1.RolloutPaused {
					if !w.Sync() {
						w.Advance()
					}
				}
			},
			allAvailable +
				"Progressing False RolloutPaused: revision NEW: 1 of 3 pods; its rollout goes in batches, and the next has to wait, until 2026-01-01T00:01:09Z, since 2026-01-01T00:00:09Z\n" +
				asExpected,
		},
		"held": {
			func(w *sim.World) {
				obey(w, "a", deadline(30, v1alpha1.Hold))
				w.Fate = badIsStuck
				w.Edit(image("bad"))
				w.Sync()
				w.Now = w.Now.Add(30 * time.Second)
				w.Kubelet()
			},
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing False ProgressDeadlineExceeded: revision NEW: 0 of 3 pods; no progress within the deadline of the policy, so its rollout is held, since 2026-01-01T00:00:36Z\n" +
				"Degraded True Deadline: the set waits: its rollout made no progress for too long and is left as it is, since 2026-01-01T00:00:36Z\n",
		},
		"rolling back": {
			func(w *sim.World) {
				obey(w, "a", deadline(30, v1alpha1.RollBack))
				w.Fate = badIsStuck
				w.Edit(image("bad"))
				w.Sync()
				w.Now = w.Now.Add(29 * time.Second)
				w.Kubelet()
				w.Sync()
				w.Now = w.Now.Add(time.Second)
			},
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True RollingBack: revision NEW failed (no progress for 30s), and pods go back to OLD; waits for pod web-2 to be available, since 2026-01-01T00:00:36Z\n" +
				"Degraded True RolledBack: the set waits: its rollout failed, and its template is not tried again until it changes, since 2026-01-01T00:00:36Z\n",
		},
		"undone while it is rolled back": {
			func(w *sim.World) {
				obey(w, "a", deadline(30, v1alpha1.RollBack))
				w.Fate = badIsStuck
				w.Edit(image("bad"))
				w.Sync()
				w.Now = w.Now.Add(30 * time.Second)
				rest(w)
				w.Advance()
				w.Edit(image("one"))
			},
			"Available True EnoughAvailable: 2 of 3 pods are available\n" +
				"Progressing True Updating: revision NEW: 2 of 3 pods; waits for pod web-2 to be available, since 2026-01-01T00:00:36Z\n" +
				asExpected,
		},
		"rolled back": {
			func(w *sim.World) {
				obey(w, "a", deadline(30, v1alpha1.RollBack))
				w.Fate = badIsStuck
				w.Edit(image("bad"))
				for w.Sync() || w.Advance() {
				}
			},
			allAvailable +
				"Progressing False RolledBack: revision NEW failed (no progress for 30s), and pods are back at OLD until the template changes, since 2026-01-01T00:00:39Z\n" +
				"Degraded True RolledBack: the set waits: its rollout failed, and its template is not tried again until it changes, since 2026-01-01T00:00:36Z\n",
		},
		"two policies": {
			func(w *sim.World) {
				obey(w, "a", func(*v1alpha1.StatefulSetPolicy) {})
				obey(w, "b", func(*v1alpha1.StatefulSetPolicy) {})
				w.Edit(image("two"))
			},
			allAvailable +
				"Progressing False RolloutPaused: revision NEW: 0 of 3 pods; its policies contradict each other or cannot be read, since 2026-01-01T00:00:06Z\n" +
				"Degraded True PolicyConflict: the set waits: its policies contradict each other or cannot be read, since 2026-01-01T00:00:06Z\n",
		},
		"an eviction is forbidden": {
			func(w *sim.World) {
				obey(w, "a", func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Disruption = v1alpha1.Evict })
				w.Blocked = func(plan.DeletePod) bool { return true }
				w.Edit(image("two"))
			},
			allAvailable +
				"Progressing True Updating: revision NEW: 0 of 3 pods; the set waits for pod web-2: a PodDisruptionBudget forbids its eviction, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"a pod is refused": {
			func(w *sim.World) { refuse[plan.CreatePod](w, "quota exceeded"); delete(w.Pods, "web-1") },
			"Available False TooFewAvailable: 2 of 3 pods are available\n" +
				"Progressing True Scaling: revision NEW: 2 of 3 pods; waits for pod web-1 to be available, since 2026-01-01T00:00:06Z\n" +
				"Degraded True FailedCreate: pod web-1 is refused: quota exceeded, since 2026-01-01T00:00:06Z\n",
		},
		"a claim is refused": {
			func(w *sim.World) { refuse[plan.CreateClaim](w, "no"); w.Edit(replicas(4)) },
			"Available False TooFewAvailable: 3 of 4 pods are available\n" +
				"Progressing True Scaling: revision NEW: 3 of 4 pods; waits for pod web-3 to be available, since 2026-01-01T00:00:06Z\n" +
				"Degraded True FailedCreate: pod web-3 is refused for want of claim data-web-3: no, since 2026-01-01T00:00:06Z\n",
		},
		"something else is refused": {
			func(w *sim.World) { refuse[plan.DeletePod](w, "no"); w.Edit(image("two")) },
			allAvailable +
				"Progressing True Updating: revision NEW: 0 of 3 pods, since 2026-01-01T00:00:06Z\n" +
				asExpected,
		},
		"a name is taken": {
			func(w *sim.World) { w.Change("web-1", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }) },
			"Available False TooFewAvailable: 2 of 3 pods are available\n" +
				"Progressing True Scaling: revision NEW: 2 of 3 pods; the set waits for pod web-1: it has the name and belongs to somebody else, since 2026-01-01T00:00:06Z\n" +
				"Degraded True NameTaken: the set waits for pod web-1: it has the name and belongs to somebody else, since 2026-01-01T00:00:06Z\n",
		},
		"a claim goes": {
			func(w *sim.World) {
				delete(w.Pods, "web-1")
				c := w.Claims["data-web-1"].DeepCopy()
				c.DeletionTimestamp = &metav1.Time{Time: w.Now}
				w.Claims[c.Name] = c
			},
			"Available False TooFewAvailable: 2 of 3 pods are available\n" +
				"Progressing True Scaling: revision NEW: 2 of 3 pods; pod web-1 waits for claim data-web-1: it is being deleted, since 2026-01-01T00:00:06Z\n" +
				"Degraded True ClaimTerminating: pod web-1 waits for claim data-web-1: it is being deleted, since 2026-01-01T00:00:06Z\n",
		},
		"a claim belongs to another set": {
			func(w *sim.World) {
				delete(w.Pods, "web-1")
				rival := sim.NewSet("b", 3)
				w.Rivals = []claim.Rival{{Set: rival, Template: "data", Ordinals: map[int]bool{1: true}}}
				delete(w.Claims, "data-web-1")
			},
			"Available False TooFewAvailable: 2 of 3 pods are available\n" +
				"Progressing True Scaling: revision NEW: 2 of 3 pods; pod web-1 waits for claim data-web-1: it belongs to another set whose claims have the same names (StatefulSet b), since 2026-01-01T00:00:06Z\n" +
				"Degraded True ClaimShared: pod web-1 waits for claim data-web-1: it belongs to another set whose claims have the same names (StatefulSet b), since 2026-01-01T00:00:06Z\n",
		},
		"no pod can have its name": {
			func(w *sim.World) {
				w.Edit(func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "no.name"; s.Spec.Replicas = new(int32(4)) })
			},
			"Available False TooFewAvailable: 3 of 4 pods are available\n" +
				"Progressing True Scaling: revision NEW: 3 of 4 pods; pod web-3 waits: no pod can have the name that follows from the set's (serviceName no.name is no host name: must not contain dots), since 2026-01-01T00:00:06Z\n" +
				"Degraded True BadName: pod web-3 waits: no pod can have the name that follows from the set's (serviceName no.name is no host name: must not contain dots), since 2026-01-01T00:00:06Z\n",
		},
		"its revision cannot be read": {
			func(w *sim.World) {
				r := w.Revisions[w.Set.Status.UpdateRevision].DeepCopy()
				w.Edit(func(s *appsv1.StatefulSet) {
					s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(9))
					image("two")(s)
				})
				r.Data.Raw = []byte("{")
				w.Revisions[r.Name] = r
				delete(w.Pods, "web-1")
			},
			"Available False TooFewAvailable: 2 of 3 pods are available\n" +
				"Progressing True Scaling: revision NEW: 0 of 0 pods; pod web-1 waits for revision OLD: it holds no template, since 2026-01-01T00:00:06Z\n" +
				"Degraded True BadRevision: pod web-1 waits for revision OLD: it holds no template, since 2026-01-01T00:00:06Z\n",
		},
		"Recreate is switched off": {
			func(w *sim.World) {
				w.Edit(func(s *appsv1.StatefulSet) {
					s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: "Recreate"}
				})
			},
			allAvailable +
				"Progressing False RecreateDisabled: the strategy Recreate is switched off, so pods are left as they are, since 2026-01-01T00:00:06Z\n" +
				"Degraded True RecreateDisabled: the set waits: its strategy Recreate is switched off, since 2026-01-01T00:00:06Z\n",
		},
		"a pod is in trouble": {
			func(w *sim.World) {
				for _, name := range []string{"web-2", "web-1"} {
					w.Change(name, func(p *corev1.Pod) {
						unready(p)
						p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.Now)
						p.Status.ContainerStatuses = []corev1.ContainerStatus{{
							Name: "main", Image: name,
							State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
						}}
					})
				}
			},
			"Available False TooFewAvailable: 1 of 3 pods are available\n" +
				"Progressing True Scaling: revision NEW: 1 of 3 pods; waits for pod web-1 to be available, since 2026-01-01T00:00:06Z\n" +
				"Degraded True ImagePull: pod web-1: container main cannot get its image web-1, since 2026-01-01T00:00:06Z\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t)
			test.change(w)
			rest(w)
			if got := tell(w.Set.Status); got != test.want {
				t.Errorf("conditions are\n%swant\n%s", got, test.want)
			}
			if w.Refuse != nil {
				return
			}
			w.Now = w.Now.Add(900 * time.Millisecond)
			before := tell(w.Set.Status)
			if s, changed := settle(w); changed {
				t.Errorf("a moment later, they are\n%sinstead of\n%s", tell(s), before)
			}
		})
	}
}

// A message tells since when it holds, and not since when the condition does.
func TestSince(t *testing.T) {
	w := settled(t)
	w.Edit(image("two"))
	var told []string
	for w.Sync() || w.Advance() {
		c := w.Set.Status.Conditions[1]
		_, message, _ := strings.Cut(c.Message, "; ")
		if message != "" && (len(told) == 0 || told[len(told)-1] != message) {
			told = append(told, message)
		}
		if age := c.LastTransitionTime.Format(time.TimeOnly); c.Status == corev1.ConditionTrue && age != "00:00:06" {
			t.Errorf("%s since %s", c.Type, age)
		}
	}
	want := []string{
		"waits for pod web-2 to be available, since 2026-01-01T00:00:06Z",
		"waits for pod web-1 to be available, since 2026-01-01T00:00:09Z",
		"waits for pod web-0 to be available, since 2026-01-01T00:00:12Z",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told is %q, want %q", told, want)
	}
}

// Since when a condition holds can be read from it.
func TestSinceIsRead(t *testing.T) {
	changed := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for message, want := range map[string]time.Time{
		"1 of 3 pods; waits for pod web-1, since 2026-01-01T00:05:00Z": changed.Add(5 * time.Minute),
		"no, since yesterday, since 2026-01-01T00:00:07Z":              changed.Add(7 * time.Second),
		"no, since yesterday": changed.Time,
		"3 of 3 pods":         changed.Time,
	} {
		got := status.Since(appsv1.StatefulSetCondition{Message: message, LastTransitionTime: changed})
		if !got.Equal(want) {
			t.Errorf("%q tells %v, want %v", message, got, want)
		}
	}
}

// While pods that are refused wait to be tried again, the first refusal is told on, and a further one is the same news.
func TestRefusalIsTold(t *testing.T) {
	tests := map[string]struct {
		change func(*appsv1.StatefulSet)
		refuse func(*sim.World, string)
		want   string
	}{
		"of pods":   {withoutClaims, refuse[plan.CreatePod], "pod web-1 is refused: no "},
		"of claims": {func(*appsv1.StatefulSet) {}, refuse[plan.CreateClaim], "pod web-1 is refused for want of claim data-web-1: no "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t, test.change)
			w.Edit(func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
			for _, name := range []string{"web-1", "web-2"} {
				delete(w.Pods, name)
				delete(w.Claims, "data-"+name)
			}
			test.refuse(w, "no "+strings.Repeat("x", 600))
			first, later := "", w.Now.Add(time.Hour)
			for i, after := range []map[string]time.Time{
				nil, {"web-1": later, "web-2": later}, {"web-1": later}, {"web-1": later, "web-2": later}, nil,
			} {
				s := w.Snapshot()
				s.CreateAfter = after
				p := plan.Make(s)
				set := w.Set.DeepCopy()
				set.Status, _ = status.Settle(s, p, w.Apply(p))
				w.Set = set
				w.Now = w.Now.Add(time.Second)
				got := tell(set.Status)
				if i == 0 {
					first = got
				}
				if got != first {
					t.Errorf("after %d syncs, conditions are\n%sinstead of\n%s", i, got, first)
				}
			}
			want := "Degraded True FailedCreate: " + test.want + strings.Repeat("x", 509) + "…, since 2026-01-01T00:00:06Z\n"
			if !strings.HasSuffix(first, want) {
				t.Errorf("conditions are\n%swant\n%s", first, want)
			}
			w.Refuse = nil
			for w.Sync() || w.Advance() {
			}
			if got := tell(w.Set.Status); got != allAvailable+complete+asExpected {
				t.Errorf("once it is accepted, conditions are\n%s", got)
			}
		})
	}
}

// What is broken at the revision that is wanted is no update, and what was broken before the update is none that is short of
// its budget.
func TestBudgetIsOfUpdates(t *testing.T) {
	w := settled(t)
	w.Change("web-1", unready)
	rest(w)
	if got := tell(w.Set.Status); !strings.HasPrefix(got, "Available False TooFewAvailable: 2 of 3") {
		t.Errorf("conditions are\n%s", got)
	}
	single := sim.New(sim.NewSet("web", 1))
	for single.Sync() || single.Advance() {
	}
	single.Edit(image("two"))
	rest(single)
	if got := tell(single.Set.Status); !strings.HasPrefix(got, "Available False TooFewAvailable: 0 of 1") {
		t.Errorf("while its only pod is updated, conditions are\n%s", got)
	}
}

// A set whose template goes back to the former one is updated, although its revisions are the same again.
func TestUndoIsAnUpdate(t *testing.T) {
	w := settled(t)
	w.Edit(image("two"))
	w.Sync()
	for w.Set.Status.UpdatedReplicas < 2 {
		if !w.Sync() {
			w.Advance()
		}
	}
	w.Edit(image("one"))
	told := map[string]bool{}
	for w.Sync() || w.Advance() {
		c := w.Set.Status.Conditions
		told[fmt.Sprintf("%s %s, %s %s", c[0].Status, c[0].Reason, c[1].Status, c[1].Reason)] = true
	}
	if told["False TooFewAvailable, True Updating"] || told["False TooFewAvailable, True Scaling"] || !told["True EnoughAvailable, True Updating"] {
		t.Errorf("told are %v", told)
	}
	if got := tell(w.Set.Status); got != allAvailable+complete+asExpected {
		t.Errorf("in the end, conditions are\n%s", got)
	}
}

// A condition that changes by time alone says when.
func TestLookAgain(t *testing.T) {
	w := settled(t)
	s := w.Snapshot()
	if at := status.LookAgain(s, plan.Make(s)); !at.IsZero() {
		t.Errorf("all is well, and conditions change at %v", at)
	}
	for name, ago := range map[string]time.Duration{"web-0": 0, "web-1": 20 * time.Second, "web-2": 90 * time.Second} {
		w.Change(name, func(p *corev1.Pod) {
			unready(p)
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.Now.Add(-ago))
			p.CreationTimestamp = metav1.NewTime(w.Now.Add(-time.Hour))
		})
	}
	rest(w)
	s = w.Snapshot()
	at := status.LookAgain(s, plan.Make(s))
	if at.Sub(w.Now) != 40*time.Second {
		t.Errorf("conditions change in %s, want 40s", at.Sub(w.Now))
	}
	s.Options.Strict = true
	if at := status.LookAgain(s, plan.Make(s)); !at.IsZero() {
		t.Errorf("there are no conditions, and they change at %v", at)
	}
}

func TestTroubleIsToldWhenForetold(t *testing.T) {
	w := settled(t)
	w.Change("web-1", func(p *corev1.Pod) { unready(p); p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.Now) })
	rest(w)
	if got := tell(w.Set.Status); !strings.HasSuffix(got, asExpected) {
		t.Errorf("at first, conditions are\n%s", got)
	}
	s := w.Snapshot()
	w.Now = status.LookAgain(s, plan.Make(s))
	rest(w)
	if got := tell(w.Set.Status); !strings.HasSuffix(got, "Degraded True NotReady: pod web-1: it is not ready, since 2026-01-01T00:01:06Z\n") {
		t.Errorf("then, conditions are\n%s", got)
	}
}

// With --strict-upstream there are no conditions of ours, and those from before do not stay to grow old.
func TestStrictHasNoConditions(t *testing.T) {
	w := settled(t)
	w.Options.Strict = true
	rest(w)
	if got := w.Set.Status.Conditions; len(got) > 0 {
		t.Errorf("conditions are %+v", got)
	}
}

// What is being deleted keeps the conditions that it had.
func TestNoConditionsOfASetThatGoes(t *testing.T) {
	w := settled(t)
	before := tell(w.Set.Status)
	w.Edit(func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{Time: w.Now} })
	w.Kill("web-1")
	rest(w)
	if got := tell(w.Set.Status); got != before {
		t.Errorf("conditions are\n%sinstead of\n%s", got, before)
	}
}

// A refusal is told on while a pod before the refused one is not ready, and no longer once the refused pod is there.
func TestRefusalOutlivesItsTurn(t *testing.T) {
	w := settled(t, withoutClaims)
	delete(w.Pods, "web-2")
	refuse[plan.CreatePod](w, "no")
	look := func(after time.Time) string {
		t.Helper()
		s := w.Snapshot()
		s.CreateAfter = map[string]time.Time{"web-2": after}
		p := plan.Make(s)
		set := w.Set.DeepCopy()
		set.Status, _ = status.Settle(s, p, w.Apply(p))
		w.Set = set
		lines := strings.Split(strings.TrimSpace(tell(set.Status)), "\n")
		return lines[len(lines)-1]
	}
	const want = "Degraded True FailedCreate: pod web-2 is refused: no, since 2026-01-01T00:00:06Z"
	ready := func(is corev1.ConditionStatus) {
		w.Now = w.Now.Add(time.Second)
		w.Change("web-1", func(p *corev1.Pod) { p.Status.Conditions[0].Status = is })
	}
	if got := look(time.Time{}); got != want {
		t.Errorf("at first: %s", got)
	}
	ready(corev1.ConditionFalse)
	if got := look(w.Now.Add(time.Hour)); got != want {
		t.Errorf("while web-1 is not ready: %s", got)
	}
	if got := look(w.Now.Add(-time.Second)); got != want {
		t.Errorf("when its pause is over: %s", got)
	}
	ready(corev1.ConditionTrue)
	if got := look(w.Now.Add(time.Hour)); got != want {
		t.Errorf("when web-1 is ready again: %s", got)
	}
	w.Refuse = nil
	if got := look(w.Now); got != "Degraded False AsExpected:" {
		t.Errorf("when it is there: %s", got)
	}
}
