// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Sets with the same selector leave each other's pods alone: https://github.com/kubernetes/kubernetes/issues/36859.
func TestSetsWithTheSameSelector(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	s.create(newSet(named("dc"), replicas(2)))
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "rs"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: new(int32(2)), Selector: newSet().Spec.Selector, Template: newSet().Spec.Template},
	}
	// It waits for the pods, so that it finds nothing that it could adopt.
	s.settled("db")
	s.settled("dc")
	if _, err := env.client.AppsV1().ReplicaSets(s.name).Create(t.Context(), rs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until("the ReplicaSet has its pods", func(w world) string { return unless(len(w.pods) == 7, fmt.Sprint(w.uids())) })
	before := s.look().uids()
	unchanged := func(what, except string) {
		t.Helper()
		after := s.look()
		for name, uid := range before {
			owner := metav1.GetControllerOf(after.pods[name])
			isExcepted := owner != nil && owner.Name == except
			if !isExcepted && after.pods[name].UID != uid {
				t.Errorf("%s replaced %s", what, name)
			}
		}
	}
	s.retemplate("db", "2")
	s.settled("db")
	s.settled("dc")
	unchanged("updating db", "db")
	s.scale("dc", 3)
	s.settled("dc")
	s.scale("dc", 2)
	s.settled("dc")
	s.settled("db")
	unchanged("scaling dc", "db")
	s.remove("dc", metav1.DeletePropagationBackground)
	s.untilGone("dc", func(w world) bool { return w.pods["dc-0"] == nil && w.pods["dc-1"] == nil })
	delete(before, "dc-0")
	delete(before, "dc-1")
	if n := len(s.settled("db").pods); n != 5 {
		t.Errorf("there are %d pods", n)
	}
	unchanged("deleting dc", "db")
	for _, c := range s.past(0) {
		if pod := c.pod(); pod != nil {
			if owner := metav1.GetControllerOf(pod); owner == nil || pod.GenerateName == "" && owner.Name != pod.Name[:2] {
				t.Errorf("%v has the owner %v", c, owner)
			}
		}
	}
}

// Pods and revisions that were let go are taken by a set only if their names are its own, whatever its selector matches.
func TestOrphansOfAnotherSet(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet(named("dc"), replicas(2)))
	s.settled("dc")
	s.create(newSet())
	before := s.settled("db")
	s.orphan("db")
	s.quiet(time.Second, "an orphan is taken, or takes effect", anything)
	s.create(newSet())
	after := s.settled("db")
	s.settled("dc")
	if !maps.Equal(after.uids(), before.uids()) || !maps.Equal(after.numbers(), before.numbers()) {
		t.Errorf("pods are %v, were %v; revisions are %v, were %v", after.uids(), before.uids(), after.numbers(), before.numbers())
	}
}

// A pod whose labels no longer match is let go and goes on. Its name is taken until it matches again or is gone:
// https://github.com/kubernetes/kubernetes/issues/46901.
func TestPodIsRelabelled(t *testing.T) {
	t.Parallel()
	expressions := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"db"}},
	}}
	release := func(t *testing.T) (*space, types.UID) {
		t.Helper()
		s := newSpace(t)
		s.create(newSet(func(set *appsv1.StatefulSet) { set.Spec.Selector = expressions }))
		uid := s.settled("db").pods["db-1"].UID
		s.patchPod("db-1", `{"metadata":{"labels":{"app":"lab"}}}`)
		s.until("db-1 is let go", func(w world) string {
			return unless(len(w.pods["db-1"].OwnerReferences) == 0 && w.sets["db"].Status.Replicas == 2, "it is not")
		})
		return s, uid
	}
	t.Run("and back", func(t *testing.T) {
		t.Parallel()
		s, uid := release(t)
		s.told("FailedCreate", "db-1", "already exists")
		s.quiet(2*time.Second, "a name that is taken lets something change", anything)
		if n := len(s.events(t.Context(), "FailedCreate")); n > 4 {
			t.Errorf("it is told %d times that the name is taken", n)
		}
		s.patchPod("db-1", `{"metadata":{"labels":{"app":"db"}}}`)
		if got := s.settled("db").pods["db-1"]; got.UID != uid {
			t.Error("db-1 was replaced")
		}
	})
	t.Run("and the set is deleted", func(t *testing.T) {
		t.Parallel()
		s, uid := release(t)
		s.remove("db", metav1.DeletePropagationForeground)
		s.untilGone("the set", func(w world) bool { return len(w.sets) == 0 && w.pods["db-0"] == nil && w.pods["db-2"] == nil })
		s.quiet(time.Second, "a pod that was let go changes", anything)
		if pod := s.look().pods["db-1"]; pod == nil || pod.UID != uid || pod.DeletionTimestamp != nil {
			t.Errorf("db-1 is %v", pod)
		}
	})
}

// A pod that nobody owns and that fits is taken, and replaced if it is of another template. One that does not fit is left
// alone, and its place is filled when it has gone.
func TestStrangersWithOurNames(t *testing.T) {
	t.Parallel()
	t.Run("fits", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		stranger := s.stranger("db-1", "db")
		s.create(newSet())
		w := s.settled("db")
		if w.pods["db-1"].UID == stranger.UID {
			t.Error("db-1 was not replaced")
		}
		taken := slices.ContainsFunc(s.past(0), func(c change) bool {
			return c.pod() != nil && c.pod().UID == stranger.UID && len(c.pod().OwnerReferences) == 1
		})
		if !taken {
			t.Error("db-1 was not adopted")
		}
	})
	t.Run("does not fit", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		stranger := s.stranger("db-1", "zzz")
		s.create(newSet())
		s.told("FailedCreate", "db-1", "already exists")
		s.quiet(2*time.Second, "db-1 is touched, or db-2 does not wait", func(c change) bool {
			return c.pod() != nil && c.pod().Name != "db-0"
		})
		if got := s.look().pods["db-1"]; got.UID != stranger.UID || got.ResourceVersion != stranger.ResourceVersion {
			t.Errorf("the stranger has changed: %+v", got.ObjectMeta)
		}
		s.kill("db-1")
		s.settled("db")
	})
}

// stranger makes a pod that no controller made, and gives it as it is when it runs.
func (s *space) stranger(name, app string) *corev1.Pod {
	s.t.Helper()
	if _, err := env.client.CoreV1().Pods(s.name).Create(s.t.Context(), barePod(name, app), metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return s.until(name+" runs", func(w world) string {
		return unless(w.pods[name] != nil && isReady(w.pods[name].Status.Conditions), "it does not")
	}).pods[name]
}

// A claim that is going is waited for, and made anew when it has gone; so is one that a pending pod has lost:
// https://github.com/kubernetes/kubernetes/issues/74374.
func TestClaimIsDeleted(t *testing.T) {
	t.Parallel()
	dropClaim := func(s *space) types.UID {
		s.t.Helper()
		uid := s.look().claims["data-db-1"].UID
		err := env.client.CoreV1().PersistentVolumeClaims(s.name).Delete(s.t.Context(), "data-db-1", metav1.DeleteOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		return uid
	}
	// renewed waits for the end and checks that the others were left alone, and that the pod was made after the claim.
	renewed := func(s *space, before world, claim types.UID) {
		s.t.Helper()
		w := s.settled("db")
		w.claims["data-db-1"] = s.until("the claim is made anew", func(w world) string {
			c := w.claims["data-db-1"]
			return unless(c != nil && c.UID != claim, "it is not")
		}).claims["data-db-1"]
		for _, name := range []string{"db-0", "db-2"} {
			if w.pods[name].UID != before.pods[name].UID || w.claims["data-"+name].UID != before.claims["data-"+name].UID {
				s.t.Errorf("%s or its claim was replaced", name)
			}
		}
		pod, fresh := w.pods["db-1"], w.claims["data-db-1"]
		if pod.UID != before.pods["db-1"].UID && pod.CreationTimestamp.Before(&fresh.CreationTimestamp) {
			s.t.Errorf("the pod is of %v, its claim of %v", pod.CreationTimestamp, fresh.CreationTimestamp)
		}
	}
	t.Run("with its pod", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.create(newSet(withClaims))
		before := s.settled("db")
		claim := dropClaim(s)
		s.kill("db-1")
		renewed(s, before, claim)
	})
	t.Run("under a pending pod", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.create(newSet(withClaims))
		s.settled("db")
		s.decide("db-1", fate{Pending: true})
		uid := s.look().pods["db-1"].UID
		s.kill("db-1")
		pending := s.replaced("db-1", uid)
		before := s.look()
		before.pods["db-1"] = pending
		claim := dropClaim(s)
		s.until("the claim is made anew", func(w world) string {
			c := w.claims["data-db-1"]
			return unless(c != nil && c.UID != claim, "it is not")
		})
		s.decide("db-1", fate{})
		renewed(s, before, claim)
		if got := s.look().pods["db-1"].UID; got != pending.UID {
			t.Error("db-1 was replaced")
		}
	})
	t.Run("and held by a stranger", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.create(newSet(withClaims))
		before := s.settled("db")
		s.finalize("data-db-1", `["example.com/hold"]`)
		claim := dropClaim(s)
		s.kill("db-1")
		s.told("FailedCreate", "data-db-1", "is being deleted")
		s.until("the claim is held by the stranger alone", func(w world) string {
			return unless(slices.Equal(w.claims["data-db-1"].Finalizers, []string{"example.com/hold"}), "it is not")
		})
		s.quiet(2*time.Second, "a claim that is going lets something change", anything)
		if n := len(s.events(t.Context(), "FailedCreate")); n > 4 {
			t.Errorf("it is told %d times that the claim is going", n)
		}
		s.finalize("data-db-1", "null")
		renewed(s, before, claim)
	})
}

func (s *space) finalize(claim, finalizers string) {
	s.t.Helper()
	claims := env.client.CoreV1().PersistentVolumeClaims(s.name)
	patch := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
	if _, err := claims.Patch(s.t.Context(), claim, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// The retention policy works with the real garbage collector: claims go when they should, and stay otherwise.
func TestRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scaled, deleted string
		left            []string // after scaling down to one pod
		atLast          []string // after the set is deleted
	}{
		"kept":            {"Retain", "Retain", []string{"data-db-0", "data-db-1", "data-db-2"}, []string{"data-db-0", "data-db-1", "data-db-2"}},
		"when scaled":     {"Delete", "Retain", []string{"data-db-0"}, []string{"data-db-0"}},
		"when deleted":    {"Retain", "Delete", []string{"data-db-0", "data-db-1", "data-db-2"}, nil},
		"in either event": {"Delete", "Delete", []string{"data-db-0"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			s.create(newSet(withClaims, func(set *appsv1.StatefulSet) {
				set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
					WhenScaled:  appsv1.PersistentVolumeClaimRetentionPolicyType(c.scaled),
					WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(c.deleted),
				}
			}))
			s.settled("db")
			left := func(want []string) {
				t.Helper()
				has := func(w world) bool { return slices.Equal(slices.Sorted(maps.Keys(w.claims)), want) }
				s.until(fmt.Sprintf("left are %v", want), func(w world) string {
					return unless(has(w), fmt.Sprint(slices.Sorted(maps.Keys(w.claims))))
				})
				s.quiet(time.Second, "a claim changes", func(c change) bool {
					_, isClaim := c.object.(*corev1.PersistentVolumeClaim)
					return isClaim && !has(s.look())
				})
			}
			s.scale("db", 1)
			s.settled("db")
			left(c.left)
			s.remove("db", metav1.DeletePropagationBackground)
			s.untilGone("the set", func(w world) bool { return len(w.sets)+len(w.pods) == 0 })
			left(c.atLast)
		})
	}
}
