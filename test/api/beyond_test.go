// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// What kube-controller-manager's controller does not do: docs/differences.md.

// condition tells what a condition of a set has to say; empty if it does.
func condition(w world, set, kind string, is corev1.ConditionStatus, words ...string) string {
	if w.sets[set] == nil {
		return "there is no set"
	}
	for _, c := range w.sets[set].Status.Conditions {
		if string(c.Type) != kind {
			continue
		}
		said := fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		for _, word := range words {
			if !strings.Contains(said, word) {
				return said
			}
		}
		return unless(c.Status == is, said)
	}
	return "there is no condition " + kind
}

// A rollout that got stuck goes on once the template is mended, and no pod that serves is lost:
// https://github.com/kubernetes/kubernetes/issues/67250.
func TestStuckRolloutGoesOn(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]struct {
		image string
		kept  []string
	}{
		"back":    {"ordinal.dev/model:1", []string{"db-0", "db-1"}},
		"forward": {"ordinal.dev/model:2", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			s.create(newSet())
			before := s.settled("db").uids()
			s.setImage("db", brokenImage)
			s.until("the rollout is stuck", func(w world) string {
				pod := w.pods["db-2"]
				return unless(pod != nil && pod.Spec.Containers[0].Image == brokenImage && pod.Spec.NodeName != "", "it is not")
			})
			stuck := s.look().pods["db-2"].UID
			// At the revision that it should have, it is left alone.
			s.quiet(2*time.Second, "the pod goes although its revision is wanted", func(c change) bool {
				return c.pod() != nil && c.pod().DeletionTimestamp != nil
			})
			from := s.now()
			s.setImage("db", mend.image)
			after := s.settled("db").uids()
			if after["db-2"] == stuck {
				t.Error("the stuck pod is still there")
			}
			for _, pod := range mend.kept {
				if after[pod] != before[pod] {
					t.Errorf("%s was replaced", pod)
				}
			}
			made := 0
			for _, c := range s.past(from) {
				if p := c.pod(); p != nil && p.Name == "db-2" && c.kind == watch.Added {
					made++
				}
			}
			if made != 1 {
				t.Errorf("db-2 was made %d times", made)
			}
		})
	}
}

// So does the very first rollout of a set.
func TestFirstRolloutIsMended(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]option{
		"with a rollingUpdate block": nil,
		"without one": {func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		}},
		"never scheduled": {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.NodeSelector = map[string]string{"no": "such"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			if name == "never scheduled" {
				s.decide("db-0", fate{Pending: true})
			}
			s.create(newSet(append(options, image(brokenImage))...))
			s.until("the first pod is there", func(w world) string { return unless(len(w.members("db")) == 1, "it is not") })
			stuck := s.look().pods["db-0"].UID
			s.decide("db-0", fate{})
			s.patch("db", `{"spec":{"template":{"spec":{"nodeSelector":null,"containers":[{"name":"main","image":"ordinal.dev/model:2"}]}}}}`)
			if w := s.settled("db"); w.pods["db-0"].UID == stuck {
				t.Error("the stuck pod is still there")
			}
		})
	}
}

// Scaling down passes pods that do not become ready again, from the top, one at a time: https://github.com/kubernetes/kubernetes/issues/36333.
func TestScalesDownPastUnreadyPods(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	s.settled("db")
	s.decide("db-1", fate{Unready: true})
	s.decide("db-2", fate{Unready: true})
	s.ready("db", 1)
	from := s.now()
	s.scale("db", 0)
	s.untilGone("the pods", func(w world) bool { return len(w.members("db")) == 0 })
	var gone []string
	for _, c := range s.past(from) {
		if c.pod() != nil && c.kind == watch.Deleted {
			gone = append(gone, c.pod().Name)
		}
	}
	if want := []string{"db-2", "db-1", "db-0"}; !slices.Equal(gone, want) {
		t.Errorf("gone are %v, want %v", gone, want)
	}
}

// A pod that stays and is not ready holds up scaling down, and the set says so.
func TestScalingDownWaitsVisibly(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	s.settled("db")
	s.decide("db-0", fate{Unready: true})
	s.ready("db", 2)
	s.scale("db", 1)
	s.until("the set tells what it waits for", func(w world) string {
		return condition(w, "db", "Progressing", corev1.ConditionTrue, "waits for pod db-0 to be available")
	})
	s.quiet(time.Second, "a pod goes", func(c change) bool { return c.pod() != nil && c.pod().DeletionTimestamp != nil })
	s.decide("db-0", fate{})
	s.settled("db")
}

// A Parallel set updates the pod that is down first, and never takes a second one meanwhile:
// https://github.com/kubernetes/kubernetes/issues/96218.
func TestParallelUpdateBeginsWithThePodThatIsDown(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet(parallel))
	s.settled("db")
	s.decide("db-0", fate{Unready: true})
	s.ready("db", 2)
	from := s.now()
	s.decide("db-0", fate{})
	s.decide("db-0", fate{Unready: true})
	s.retemplate("db", "2")
	s.until("the pod that is down is updated", func(w world) string {
		return unless(w.pods["db-0"] != nil && version(w.pods["db-0"]) == "2", "it is not")
	})
	s.decide("db-0", fate{})
	s.settled("db")
	away := map[string]bool{}
	for _, c := range s.past(from) {
		pod := c.pod()
		switch {
		case pod == nil:
		case pod.DeletionTimestamp != nil, c.kind == watch.Deleted:
			away[pod.Name] = true
		case isReady(pod.Status.Conditions) && version(pod) == "2":
			delete(away, pod.Name)
		}
		if len(away) > 1 {
			t.Fatalf("in replacement at once are %v", away)
		}
	}
}

// A pod that keeps failing is made again ever less often, with few events: https://github.com/kubernetes/kubernetes/issues/89067.
func TestPodThatKeepsFailingIsMadeLessAndLess(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.decide("db-0", fate{Failed: true})
	from := s.now()
	s.create(newSet())
	const while = 12 * time.Second
	s.quiet(while, "another pod is made", func(c change) bool { return c.pod() != nil && c.pod().Name != "db-0" })
	uids := map[types.UID]bool{}
	for _, c := range s.past(from) {
		if c.pod() != nil {
			uids[c.pod().UID] = true
		}
	}
	// After 1, 2, 4, 8 seconds: no more than five in the time.
	if len(uids) < 2 || len(uids) > 6 {
		t.Errorf("%d pods were made within %v", len(uids), while)
	}
	if w := condition(s.look(), "db", "Degraded", corev1.ConditionTrue, "db-0"); w != "" {
		t.Errorf("the set does not tell of it: %s", w)
	}
	events, err := env.client.CoreV1().Events(s.name).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) > 20 {
		t.Errorf("there are %d events, %v", len(events.Items), err)
	}
	s.decide("db-0", fate{})
	s.settled("db")
}

// No claim is left of a set with whenDeleted: Delete, however early it is deleted: https://github.com/kubernetes/kubernetes/issues/142130.
func TestNoClaimIsLeftOfASetThatDiesYoung(t *testing.T) {
	t.Parallel()
	const seed = 7
	for policy, left := range map[appsv1.PersistentVolumeClaimRetentionPolicyType]bool{"Delete": false, "Retain": true} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, seed))
			s := newSpace(t)
			for range 10 {
				made := s.create(newSet(parallel, withClaims, func(set *appsv1.StatefulSet) {
					set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
						WhenScaled: "Retain", WhenDeleted: policy,
					}
				}))
				after, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(150))*time.Millisecond)
				<-after.Done()
				cancel()
				s.remove("db", metav1.DeletePropagationBackground)
				s.untilGone("the set and its pods", func(w world) bool {
					return w.sets["db"] == nil && len(w.pods) == 0 && (left || len(w.claims) == 0)
				})
				if left && s.look().claims["data-db-0"] != nil && len(s.look().claims["data-db-0"].OwnerReferences) > 0 {
					t.Fatalf("a claim of %s has owners although it is to stay", made.UID)
				}
			}
		})
	}
}

// Two sets whose claims have the same names do not share a volume, and the one that has to wait tells why:
// https://github.com/kubernetes/kubernetes/issues/41153.
func TestClaimIsNotShared(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	deletes := func(set *appsv1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete", WhenScaled: "Retain"}
	}
	// Claim data-x-y-0 is claim data of x-y, and claim data-x of y.
	s.create(newSet(of("x-y"), withClaims, replicas(1)))
	s.settled("x-y")
	s.create(newSet(of("y"), withClaims, replicas(1), deletes, func(set *appsv1.StatefulSet) {
		set.Spec.VolumeClaimTemplates[0].Name = "data-x"
		set.Spec.Template.Spec.Containers[0].VolumeMounts[0].Name = "data-x"
	}))
	s.until("the second set tells why it waits", func(w world) string {
		return condition(w, "y", "Degraded", corev1.ConditionTrue, "ClaimShared", "data-x-y-0", "StatefulSet x-y")
	})
	s.told("FailedCreate", "data-x-y-0", "x-y")
	s.quiet(time.Second, "a pod of the second set is made", func(c change) bool { return c.pod() != nil && c.pod().Name == "y-0" })
	s.remove("y", metav1.DeletePropagationBackground)
	s.untilGone("the second set", func(w world) bool { return w.sets["y"] == nil })
	s.quiet(2*time.Second, "the claim of the first set goes", func(c change) bool {
		claim, ok := c.object.(*corev1.PersistentVolumeClaim)
		return ok && (c.kind == watch.Deleted || claim.DeletionTimestamp != nil)
	})
}

// Conditions tell how a set fares, and are written only along with what they tell of.
func TestConditionsTellHowASetFares(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.decide("db-1", fate{Unready: true})
	s.create(newSet())
	s.until("the set waits for its second pod", func(w world) string {
		return condition(w, "db", "Available", corev1.ConditionFalse, "1 of 3") +
			condition(w, "db", "Progressing", corev1.ConditionTrue, "waits for pod db-1", "since ")
	})
	s.decide("db-1", fate{})
	w := s.settled("db")
	for kind, is := range map[string]corev1.ConditionStatus{"Available": "True", "Progressing": "False", "Degraded": "False"} {
		if said := condition(w, "db", kind, is); said != "" {
			t.Errorf("a settled set says %s", said)
		}
	}
	s.quiet(2*time.Second, "the set is written at rest", func(c change) bool {
		_, isSet := c.object.(*appsv1.StatefulSet)
		return isSet
	})
}
