// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A pod needs those before it, and not those after it: https://github.com/kubernetes/kubernetes/issues/38418.
func TestLostPodNeedsOnlyItsPredecessors(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	before := s.settled("db").uids()
	s.decide("db-2", fate{Unready: true})
	s.ready("db", 2)
	s.kill("db-0")
	s.replaced("db-0", before["db-0"])
	s.ready("db", 2)

	s.decide("db-0", fate{Unready: true})
	s.ready("db", 1)
	s.kill("db-1")
	s.untilGone("db-1", func(w world) bool { return w.pods["db-1"] == nil })
	s.quiet(2*time.Second, "db-1 does not wait for db-0", func(c change) bool { return c.pod() != nil && c.pod().Name == "db-1" })
	s.decide("db-0", fate{})
	s.ready("db", 2)
	s.decide("db-2", fate{})
	if after := s.settled("db").uids(); after["db-2"] != before["db-2"] {
		t.Error("db-2 was replaced")
	}
}

// A set whose pods become ready only together cannot start in order. It says so, and is freed by making it anew as Parallel
// over its pods.
func TestWayOutOfAnOrderedDeadlock(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.decide("", fate{Unready: true})
	s.create(newSet())
	first := s.until("db-0 runs", func(w world) string {
		return unless(w.pods["db-0"] != nil && w.pods["db-0"].Status.Phase == "Running", "it does not")
	}).pods["db-0"]
	s.quiet(time.Second, "a pod does not wait for db-0", func(c change) bool { return c.pod() != nil && c.pod().Name != "db-0" })
	if st := s.look().sets["db"].Status; st.Replicas != 1 || st.ReadyReplicas != 0 {
		t.Errorf("status is %+v", st)
	}
	_, err := s.tryPatch("db", types.MergePatchType, `{"spec":{"podManagementPolicy":"Parallel"}}`)
	if !apierrors.IsInvalid(err) {
		t.Errorf("another podManagementPolicy is answered with %v", err)
	}
	s.orphan("db")
	s.create(newSet(parallel))
	s.until("all pods are there", func(w world) string { return unless(len(w.members("db")) == 3, "some are missing") })
	s.decide("", fate{})
	if got := s.settled("db").pods["db-0"].UID; got != first.UID {
		t.Error("db-0 was replaced")
	}
}

// However a set is deleted, none of its pods is made again, and each is given its time.
func TestDeletingASet(t *testing.T) {
	t.Parallel()
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			s.create(newSet())
			s.settled("db")
			s.decide("", fate{Lingering: true})
			from := s.now()
			s.remove("db", how)
			w := s.until("all pods are told to go", func(w world) string {
				for _, pod := range w.pods {
					if pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds != 30 {
						return pod.Name + " is not"
					}
				}
				return ""
			})
			if isThere := w.sets["db"] != nil; isThere != (how == metav1.DeletePropagationForeground) {
				t.Errorf("while its pods go, the set is there: %t", isThere)
			}
			s.decide("db-1", fate{})
			s.untilGone("db-1", func(w world) bool { return w.pods["db-1"] == nil })
			s.decide("db-0", fate{})
			s.decide("db-2", fate{})
			s.untilGone("all of the set", func(w world) bool { return len(w.pods)+len(w.sets)+len(w.revisions) == 0 })
			for _, c := range s.past(from) {
				if c.kind == watch.Added {
					t.Errorf("after the deletion: %v", c)
				}
			}
		})
	}
	t.Run("scaled down before", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.create(newSet())
		s.settled("db")
		from := s.now()
		s.scale("db", 0)
		s.settled("db")
		var gone []string
		for _, c := range s.past(from) {
			if c.pod() != nil && c.kind == watch.Deleted {
				gone = append(gone, c.pod().Name)
			} else if c.pod() != nil && c.pod().DeletionTimestamp != nil && c.pod().Name != fmt.Sprintf("db-%d", 2-len(gone)) {
				t.Errorf("%s goes while %v are gone", c.pod().Name, gone)
			}
		}
		if !slices.Equal(gone, []string{"db-2", "db-1", "db-0"}) {
			t.Errorf("pods went in the order %v", gone)
		}
		s.remove("db", metav1.DeletePropagationBackground)
		s.untilGone("all of the set", func(w world) bool { return len(w.sets)+len(w.revisions) == 0 })
	})
}

// A large Parallel set and many small ones get their pods although a large one beside them starts pod by pod:
// https://github.com/kubernetes/kubernetes/issues/117071.
func TestLargeAndManySets(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	const large, small, slow = 300, 60, 100
	for n := range slow {
		s.decide(fmt.Sprintf("slow-%d", n), fate{After: 300 * time.Millisecond})
	}
	s.create(newSet(of("slow"), replicas(slow)))
	s.until("slow has begun", func(w world) string { return unless(len(w.members("slow")) > 0, "it has not") })
	s.create(newSet(of("large"), parallel, replicas(large)))
	for n := range small {
		s.create(newSet(of(fmt.Sprintf("small-%d", n)), replicas(1)))
	}
	s.settled("large")
	for n := range small {
		s.settled(fmt.Sprintf("small-%d", n))
	}
	if n := len(s.look().members("slow")); n >= slow {
		t.Errorf("slow was faster: it has %d pods", n)
	}
	s.scale("slow", 1)
	s.settled("slow")
	s.quiet(2*time.Second, "something happens although all is as it should be", anything)
}

// One pod that is refused does not keep the others of a Parallel set away, and comes when it is no longer refused.
func TestOneOfManyPodsIsRefused(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	allow := s.deny("object.metadata.name != 'db-7'", "no seven")
	s.create(newSet(parallel, replicas(40)))
	w := s.ready("db", 39)
	if w.pods["db-7"] != nil {
		t.Fatal("db-7 was not refused")
	}
	s.told("FailedCreate", "db-7", "no seven")
	began := time.Now()
	allow()
	s.settled("db")
	if n := len(s.events(t.Context(), "FailedCreate")); n > 5+int(time.Since(began)/time.Second) {
		t.Errorf("db-7 was tried %d times", n)
	}
}

// Of a set that a quota keeps small, status and events tell the truth. It grows as soon as the quota does:
// https://github.com/kubernetes/kubernetes/issues/108837.
func TestQuota(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.quota(2)
	s.create(newSet())
	counters := func(replicas, ready int32) {
		t.Helper()
		s.until(fmt.Sprintf("%d of %d pods are ready", ready, replicas), func(w world) string {
			set := w.sets["db"]
			return unless(set.Status.Replicas == replicas && set.Status.ReadyReplicas == ready, fmt.Sprintf("%+v", set.Status))
		})
	}
	s.told("FailedCreate", "db-2", "exceeded quota")
	began := time.Now()
	counters(2, 2)
	s.decide("db-1", fate{Unready: true})
	counters(2, 1)
	s.decide("db-1", fate{})
	counters(2, 2)
	s.quiet(2*time.Second, "a refused pod lets something change", anything)
	if n, limit := len(s.events(t.Context(), "FailedCreate")), 3+int(time.Since(began)/time.Second); n > limit {
		t.Errorf("db-2 was tried %d times, at most %d are in order", n, limit)
	}
	s.quota(3)
	s.settled("db")
}

// Nothing is made in a namespace that goes, and it goes in time: https://github.com/kubernetes/kubernetes/issues/71590.
func TestNamespaceGoes(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet(withClaims, func(set *appsv1.StatefulSet) {
		set.Finalizers = []string{"example.com/stay"}
		set.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(2))
	}))
	s.settled("db")
	s.decide("db-2", fate{Lingering: true})
	namespaces := env.client.CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), s.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	from := s.now()
	s.untilGone("all that may go", func(w world) bool { return len(w.pods) == 1 && w.pods["db-2"].DeletionTimestamp != nil })
	s.quiet(time.Second, "something is made in a namespace that goes", func(c change) bool { return c.kind == watch.Added })
	s.decide("db-2", fate{})
	s.patch("db", `{"metadata":{"finalizers":null}}`)
	poll(t, "the namespace is gone", func(ctx context.Context) string {
		ns, err := namespaces.Get(ctx, s.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint(ns.Status, err)
	})
	s.untilGone("all of it", func(w world) bool { return len(w.pods)+len(w.sets)+len(w.claims)+len(w.revisions) == 0 })
	for _, c := range s.past(from) {
		if c.kind == watch.Added {
			t.Errorf("in a namespace that goes: %v", c)
		}
	}
	s.renew()
	s.create(newSet(withClaims))
	s.settled("db")
}

// What many pods' names have in common, such as that they end in a number past 9, does not confuse their order.
func TestTenAndMorePodsInOrder(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet(replicas(12)))
	s.settled("db")
	var made []string
	for _, c := range s.past(0) {
		if c.pod() != nil && c.kind == watch.Added {
			made = append(made, strings.TrimPrefix(c.pod().Name, "db-"))
		}
	}
	if got := strings.Join(made, " "); got != "0 1 2 3 4 5 6 7 8 9 10 11" {
		t.Errorf("pods were made in the order %s", got)
	}
}
