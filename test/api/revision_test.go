// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"
)

// Only another template restarts pods and makes a revision; neither the same one written otherwise nor a new start of the
// controller does: https://github.com/kubernetes/kubernetes/issues/134773.
//
// It restarts the controller, so it does not run beside others.
func TestNothingRestartsWithoutAChange(t *testing.T) {
	s := newSpace(t)
	s.create(newSet(withClaims))
	first := s.settled("db")
	calm := func(what string) {
		t.Helper()
		w := s.settled("db")
		if !maps.Equal(w.uids(), first.uids()) || !maps.Equal(w.numbers(), first.numbers()) {
			t.Fatalf("%s: pods are %v, were %v; revisions are %v", what, w.uids(), first.uids(), w.numbers())
		}
	}
	for _, patch := range []string{
		`{"spec":{"template":{"metadata":{"creationTimestamp":null}}}}`,
		`{"spec":{"template":{"spec":{"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler"}}}}`,
		containerPatch(`{"name":"main","resources":{},"terminationMessagePath":"/dev/termination-log"}`),
		`{"spec":{"minReadySeconds":1}}`,
		`{"spec":{"minReadySeconds":0,"revisionHistoryLimit":3}}`,
		`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}}}`,
		`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`,
		`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`,
		`{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`,
		`{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}`,
	} {
		s.patch("db", patch)
		calm(patch)
	}
	// The last of them changed no spec, so that nothing in the status tells that it is seen.
	seen := s.until("the label is seen", func(w world) string { return unless(w.sets["db"].Labels["a"] == "b", "there is none") })
	whole := seen.sets["db"].DeepCopy()
	whole.ResourceVersion, whole.ManagedFields = "", nil
	if _, err := env.client.AppsV1().StatefulSets(s.name).Update(t.Context(), whole, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	calm("the set written back to itself")
	before := s.now()
	restartController(t)
	s.quiet(2*time.Second, "after a start of the controller", anything)
	if changes := s.past(before); len(changes) > 0 {
		t.Errorf("a start of the controller makes it write: %v", changes)
	}

	s.scale("db", 4)
	first.pods["db-3"] = s.settled("db").pods["db-3"]
	calm("one pod more")
	s.patch("db", `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}}}}}`)
	w := s.settled("db")
	for name, uid := range w.uids() {
		if uid == first.pods[name].UID {
			t.Errorf("%s was not restarted", name)
		}
	}
	if len(w.revisions) != 2 {
		t.Errorf("revisions are %v", w.numbers())
	}
}

// Equal revisions do not pile up, whenever the controller is started anew: https://github.com/kubernetes/kubernetes/issues/80698.
//
// It restarts the controller, so it does not run beside others.
func TestRestartsMakeNoRevisions(t *testing.T) {
	s := newSpace(t)
	s.decide("", fate{After: 300 * time.Millisecond})
	s.create(newSet())
	one := s.settled("db").sets["db"].Status.UpdateRevision
	for _, next := range []string{"2", "1", "2"} {
		s.retemplate("db", next)
		for _, name := range []string{"db-2", "db-0"} {
			s.until(name+" is being updated", func(w world) string {
				pod, seen := w.pods[name], w.sets["db"].Status.ObservedGeneration == s.generations["db"]
				return unless(seen && (pod == nil || pod.DeletionTimestamp != nil || version(pod) == next), "it is not")
			})
			restartController(t)
		}
		w := s.settled("db")
		numbers := slices.Sorted(maps.Values(w.numbers()))
		update := w.sets["db"].Status.UpdateRevision
		if len(numbers) != 2 || numbers[0] == numbers[1] || w.revisions[update].Revision != numbers[1] {
			t.Errorf("at version %s the revisions are %v, the update revision is %s", next, w.numbers(), update)
		}
		if next == "1" && update != one {
			t.Errorf("back at version 1 the revision is %s, not %s", update, one)
		}
	}
}

// kubectl's own code for rollout history and rollout undo understands the revisions.
func TestUndo(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	one := s.settled("db").sets["db"].Status.UpdateRevision
	s.retemplate("db", "2")
	s.settled("db")
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind()
	undo, err := polymorphichelpers.RollbackerFor(kind, env.client)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		to            int64
		version, says string
	}{{1, "1", "rolled back"}, {0, "2", "rolled back"}, {4, "2", "skipped rollback"}} {
		said, err := undo.Rollback(s.look().sets["db"], nil, c.to, cmdutil.DryRunNone)
		if err != nil || !strings.HasPrefix(said, c.says) {
			t.Fatalf("undo to revision %d says %q (%v)", c.to, said, err)
		}
		w := s.until("it is rolled back", func(w world) string {
			s.generations["db"] = w.sets["db"].Generation
			return cmp.Or(unless(w.sets["db"].Spec.Template.Spec.Containers[0].Env[0].Value == c.version, "it is not"), s.unsettled(w, "db"))
		})
		if len(w.revisions) != 2 {
			t.Errorf("revisions are %v", w.numbers())
		}
		if update := w.sets["db"].Status.UpdateRevision; (update == one) != (c.version == "1") {
			t.Errorf("at version %s, the revision is %s, the first was %s", c.version, update, one)
		}
	}
	history, err := polymorphichelpers.HistoryViewerFor(kind, env.client)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := history.GetHistory(s.name, "db")
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(seen)), []int64{3, 4}) {
		t.Errorf("history is %v (%v)", slices.Sorted(maps.Keys(seen)), err)
	}
}

// Revisions that something still uses stay, even if no history is kept; those that nothing uses go, even while pods are
// refused.
func TestHistoryIsTrimmed(t *testing.T) {
	t.Parallel()
	limit := func(n int32) option {
		return func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = new(n) }
	}
	t.Run("in use", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.create(newSet(limit(0), partition(1)))
		one := s.settled("db").sets["db"].Status.CurrentRevision
		for _, next := range []string{"2", "3"} {
			if next == "3" {
				// While the update halts at db-2, db-1 still has the second one.
				s.decide("db-2", fate{Pending: true})
				s.retemplate("db", next)
				s.until("the update has halted", func(w world) string {
					pod := w.pods["db-2"]
					halted := pod != nil && version(pod) == next && w.sets["db"].Status.ReadyReplicas == 2
					return unless(halted && len(w.revisions) == 3, fmt.Sprintf("revisions are %v", w.numbers()))
				})
				s.quiet(time.Second, "a revision that is in use goes", func(c change) bool { return c.kind == watch.Deleted })
				s.decide("db-2", fate{})
			} else {
				s.retemplate("db", next)
			}
			w := s.until("the partition is rolled out", func(w world) string {
				st := w.sets["db"].Status
				whole := st.ObservedGeneration == s.generations["db"] && st.UpdatedReplicas == 2 && st.ReadyReplicas == 3
				return unless(whole && len(w.revisions) == 2, fmt.Sprintf("%+v, revisions are %v", st, w.numbers()))
			})
			if w.revisions[one] == nil || version(w.pods["db-0"]) != "1" {
				t.Errorf("of the first revision, there is %v and db-0 at version %s", w.revisions[one], version(w.pods["db-0"]))
			}
		}
		s.patch("db", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
		s.settled("db")
		s.untilGone("what is no longer used", func(w world) bool { return len(w.revisions) == 1 })
	})
	t.Run("pods are refused", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.create(newSet(limit(2), func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.PriorityClassName = "nobody-made-it" }))
		s.told("FailedCreate", "nobody-made-it")
		for n := range 15 {
			s.retemplate("db", strconv.Itoa(n+2))
			s.until("the template is seen", func(w world) string {
				return unless(w.sets["db"].Status.ObservedGeneration == s.generations["db"], "it is not")
			})
		}
		s.untilGone("what is beyond the limit", func(w world) bool { return len(w.revisions) <= 4 })
	})
}

// A stranger's revision may have the name that a revision would get: the set takes another, and remembers it.
func TestRevisionNameIsTaken(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	own := s.settled("db").revisions[s.look().sets["db"].Status.UpdateRevision]
	s.remove("db", metav1.DeletePropagationForeground)
	s.untilGone("all of the set", func(w world) bool { return len(w.pods)+len(w.sets)+len(w.revisions) == 0 })

	account, err := env.client.CoreV1().ServiceAccounts(s.name).Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stranger := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: own.Name, Labels: own.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(account, corev1.SchemeGroupVersion.WithKind("ServiceAccount"))},
		},
		Data: runtime.RawExtension{Raw: []byte(`{"spec":{}}`)}, Revision: 7,
	}
	stranger, err = env.client.AppsV1().ControllerRevisions(s.name).Create(t.Context(), stranger, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.create(newSet())
	w := s.settled("db")
	st := w.sets["db"].Status
	if *st.CollisionCount != 1 || st.UpdateRevision == own.Name || len(w.revisions) != 2 {
		t.Errorf("status is %+v, revisions are %v", st, w.numbers())
	}
	if got := w.revisions[own.Name]; got.UID != stranger.UID || got.ResourceVersion != stranger.ResourceVersion {
		t.Errorf("the stranger's revision is %+v", got)
	}
	s.quiet(time.Second, "it does not come to rest", anything)
}

// A set that is deleted without its pods and made anew takes over pods and history, and replaces only what its template
// changes: https://github.com/kubernetes/kubernetes/issues/84982.
func TestMadeAnewOverItsPods(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]option{
		"the same":             func(*appsv1.StatefulSet) {},
		"another service":      func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "others" },
		"larger claims":        func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = storage("16Mi") },
		"parallel":             parallel,
		"another pod template": func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Env[0].Value = "3" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			old := s.create(newSet(withClaims))
			s.settled("db")
			s.retemplate("db", "2")
			before := s.settled("db")
			from := s.now()
			s.orphan("db")
			w := s.look()
			if len(w.pods) != 3 || len(w.revisions) != 2 || len(w.claims) != 3 {
				t.Fatalf("left are %v, %v", w.uids(), w.numbers())
			}
			for _, pod := range w.pods {
				if len(pod.OwnerReferences) > 0 {
					t.Errorf("%s is still owned: %v", pod.Name, pod.OwnerReferences)
				}
			}
			fresh := newSet(withClaims)
			fresh.Spec.Template.Spec.Containers[0].Env[0].Value = "2"
			change(fresh)
			isOther := fresh.Spec.Template.Spec.Containers[0].Env[0].Value != "2"
			made := s.create(fresh)
			w = s.settled("db")
			checkTakenOver(t, before, w, made.UID, isOther)
			checkNotTakenBack(t, s.past(from), old.UID)
			if isOther {
				checkOneByOne(t, s.past(from))
			}
		})
	}
}

func checkTakenOver(t *testing.T, before, after world, owner types.UID, isOther bool) {
	t.Helper()
	if same := maps.Equal(before.uids(), after.uids()); same == isOther {
		t.Errorf("pods are %v, were %v", after.uids(), before.uids())
	}
	for name := range before.revisions {
		r := after.revisions[name]
		if r == nil || metav1.GetControllerOf(r) == nil || metav1.GetControllerOf(r).UID != owner {
			t.Errorf("revision %s is not taken over: %v", name, r)
		}
	}
	if current := after.sets["db"].Status.CurrentRevision; !isOther && current != before.sets["db"].Status.CurrentRevision {
		t.Errorf("the current revision is %s", current)
	}
	for name, claim := range after.claims {
		if !reflect.DeepEqual(claim.Spec, before.claims[name].Spec) || claim.UID != before.claims[name].UID {
			t.Errorf("claim %s has changed", name)
		}
	}
}

// checkNotTakenBack checks that no pod that was let go gets its former owner again.
func checkNotTakenBack(t *testing.T, changes []change, old types.UID) {
	t.Helper()
	free := map[types.UID]bool{}
	for _, c := range changes {
		pod := c.pod()
		if pod == nil {
			continue
		}
		owner := metav1.GetControllerOf(pod)
		if owner == nil {
			free[pod.UID] = true
		} else if owner.UID == old && free[pod.UID] {
			t.Errorf("%s was taken back", pod.Name)
		}
	}
}

// checkOneByOne checks that never more than one pod is away or not ready.
func checkOneByOne(t *testing.T, changes []change) {
	t.Helper()
	down := map[string]bool{}
	for _, c := range changes {
		pod := c.pod()
		if pod == nil {
			continue
		}
		down[pod.Name] = pod.DeletionTimestamp != nil || !isReady(pod.Status.Conditions)
		maps.DeleteFunc(down, func(_ string, isDown bool) bool { return !isDown })
		if len(down) > 1 {
			t.Errorf("down at once are %v", slices.Sorted(maps.Keys(down)))
		}
	}
}

// Whatever is edited, the status says soon that it was seen, so that tools that wait for it do not wait for ever:
// https://github.com/kubernetes/kubernetes/issues/72212.
func TestStatusFollowsEveryEdit(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	set := newSet(replicas(0))
	s.create(set)
	done := func(what string) {
		t.Helper()
		w := s.settled("db")
		if message, done := rolloutStatus(t, w.sets["db"]); !done {
			t.Errorf("after %s, kubectl rollout status waits: %s", what, message)
		}
	}
	done("creation without pods")
	s.scale("db", 3)
	done("scaling up")
	for _, patch := range []string{
		`{"metadata":{"annotations":{"a":"b"}}}`, `{"spec":{"replicas":3}}`, `{"spec":{"minReadySeconds":1}}`, `{"spec":{"replicas":0}}`,
		`{"spec":{"minReadySeconds":0,"replicas":2}}`,
	} {
		s.patch("db", patch)
		done(patch)
	}
	s.retemplate("db", "2")
	s.retemplate("db", "1")
	done("going back at once")
	s.patch("db", `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`)
	s.retemplate("db", "3")
	s.until("the template is seen", func(w world) string {
		st := w.sets["db"].Status
		return unless(st.ObservedGeneration == s.generations["db"] && st.CurrentRevision != st.UpdateRevision, fmt.Sprintf("%+v", st))
	})
}
