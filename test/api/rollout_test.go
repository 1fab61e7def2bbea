// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubectl/pkg/polymorphichelpers"
)

// A pod is updated only when the one before has been ready for long enough: https://github.com/kubernetes/kubernetes/issues/112307.
func TestUpdateWaitsUntilPodsAreAvailable(t *testing.T) {
	t.Parallel()
	const seconds = 3
	for name, policy := range map[string]option{"in order": func(*appsv1.StatefulSet) {}, "parallel": parallel} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			s.create(newSet(policy, minReady(seconds)))
			s.settled("db")
			from := s.now()
			s.retemplate("db", "2")
			s.settled("db")
			var readyAt time.Time
			var order []string
			for _, c := range s.past(from) {
				pod := c.pod()
				if pod == nil || c.kind != watch.Modified {
					continue
				}
				switch deleted := pod.DeletionTimestamp; {
				case deleted == nil && version(pod) == "2" && isReady(pod.Status.Conditions):
					readyAt = readySince(pod)
				case deleted != nil && version(pod) == "1" && !slices.Contains(order, pod.Name):
					order = append(order, pod.Name)
					asked := deleted.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
					if wait := asked.Sub(readyAt); !readyAt.IsZero() && wait < seconds*time.Second {
						t.Errorf("%s is deleted %v after its predecessor became ready", pod.Name, wait)
					}
				}
			}
			if want := []string{"db-2", "db-1", "db-0"}; !reflect.DeepEqual(order, want) {
				t.Errorf("updated are %v, want %v", order, want)
			}
		})
	}
}

func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// Pods that never were available cost nothing of the budget: https://github.com/kubernetes/kubernetes/issues/137409.
func TestBrokenSetIsMendedWithinItsBudget(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	made := s.create(newSet(parallel, replicas(4), maxUnavailable(1), image(brokenImage)))
	if got := made.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; got == nil || *got != intstr.FromInt(1) {
		t.Fatalf("the server keeps maxUnavailable as %v", got)
	}
	s.until("all pods are there", func(w world) string { return unless(len(w.members("db")) == 4, "some are missing") })
	s.setImage("db", "ordinal.dev/model:2")
	s.settled("db")

	// A pod that serves does not go while another does not.
	s.decide("db-0", fate{Unready: true})
	s.ready("db", 3)
	s.setImage("db", "ordinal.dev/model:3")
	s.until("the broken pod is updated", func(w world) string {
		pod := w.pods["db-0"]
		return unless(pod != nil && pod.Spec.Containers[0].Image == "ordinal.dev/model:3", "it is not")
	})
	before := s.look().uids()
	delete(before, "db-0")
	s.quiet(2*time.Second, "a pod that serves goes", func(c change) bool {
		return c.pod() != nil && c.pod().DeletionTimestamp != nil && c.pod().UID == before[c.pod().Name]
	})
	s.decide("db-0", fate{})
	s.settled("db")
}

// What a pod that dies during an update comes back as depends on how the strategy was written: with a partition, of 0 too,
// as what the partition says; without the block, as it was.
func TestPodDiesDuringUpdate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		strategy string // as the server keeps it
		returns  string // version
	}{
		"":                         {`{"type":"RollingUpdate","rollingUpdate":{"partition":0}}`, "2"},
		`{"type":"RollingUpdate"}`: {`{"type":"RollingUpdate"}`, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			set := newSet()
			if name != "" {
				set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
			}
			made := s.create(set)
			rolling := made.Spec.UpdateStrategy.RollingUpdate
			if has := rolling != nil && *rolling.Partition == 0; has != strings.Contains(c.strategy, "partition") {
				t.Fatalf("the server keeps the strategy as %+v", made.Spec.UpdateStrategy)
			}
			old := s.settled("db").pods["db-0"]
			s.decide("db-2", fate{Lingering: true})
			s.retemplate("db", "2")
			s.until("db-2 is going", func(w world) string {
				return unless(w.pods["db-2"].DeletionTimestamp != nil, "it is not")
			})
			s.kill("db-0")
			if got := version(s.replaced("db-0", old.UID)); got != c.returns {
				t.Errorf("db-0 returns at version %s, want %s", got, c.returns)
			}
			s.decide("db-2", fate{})
			s.settled("db")
		})
	}
}

// Pods below the partition keep the current revision whenever they are made:
// https://github.com/kubernetes/kubernetes/issues/119684.
func TestPodsBelowThePartitionKeepTheirRevision(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet(partition(2)))
	current := s.settled("db").sets["db"].Status.CurrentRevision
	s.retemplate("db", "2")
	check := func() {
		t.Helper()
		w := s.until("the partition is rolled out", func(w world) string {
			st := w.sets["db"].Status
			whole := len(w.pods) == 3 && st.UpdatedReplicas == 1 && st.CurrentReplicas == 2 && st.ReadyReplicas == 3
			return unless(whole && w.sets["db"].Status.ObservedGeneration == s.generations["db"], fmt.Sprintf("%+v", st))
		})
		for name, want := range map[string]string{"db-0": "1", "db-1": "1", "db-2": "2"} {
			if got := version(w.pods[name]); got != want {
				t.Errorf("%s has version %s, want %s", name, got, want)
			}
		}
		if got := w.sets["db"].Status; got.CurrentRevision != current || got.UpdateRevision == current {
			t.Errorf("revisions are %s and %s, current was %s", got.CurrentRevision, got.UpdateRevision, current)
		}
	}
	again := func(names ...string) {
		t.Helper()
		uids := s.look().uids()
		s.kill(names...)
		for _, name := range names {
			s.replaced(name, uids[name])
		}
		check()
	}
	check()
	again("db-0")
	again("db-0", "db-1", "db-2")

	// Also while another is still being made.
	s.decide("db-0", fate{Pending: true})
	uids := s.look().uids()
	s.kill("db-0")
	s.replaced("db-0", uids["db-0"])
	s.kill("db-1")
	s.decide("db-0", fate{})
	s.replaced("db-1", uids["db-1"])
	check()
	for _, c := range s.past(0) {
		if pod := c.pod(); pod != nil && pod.Name != "db-2" && version(pod) != "1" {
			t.Errorf("%v has version %s", c, version(pod))
		}
	}
}

// A pod that goes back to the current revision gets its template and nothing of the other:
// https://github.com/kubernetes/kubernetes/issues/91674.
func TestPodsOfTheCurrentRevisionAreNoMixture(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	set := newSet(partition(1))
	template := &set.Spec.Template
	template.Annotations = map[string]string{"one": "1"}
	template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "VERSION", Value: "1"}, {Name: "A", Value: "a"}}
	template.Spec.Containers = append(template.Spec.Containers, corev1.Container{Name: "side", Image: "ordinal.dev/model:1"})
	s.create(set)
	s.settled("db")
	s.patch("db", `{"spec":{"template":{"metadata":{"annotations":{"one":null,"two":"2"}},"spec":{
		"volumes":[{"name":"v","emptyDir":null,"configMap":{"name":"c"}}],
		"containers":[{"name":"side","$patch":"delete"},
			{"name":"main","env":[{"$patch":"replace"},{"name":"A","value":"b"},{"name":"VERSION","value":"2"}]}]}}}}`)
	w := s.until("the partition is rolled out", func(w world) string {
		st := w.sets["db"].Status
		return unless(st.UpdatedReplicas == 2 && st.ReadyReplicas == 3, fmt.Sprintf("%+v", st))
	})
	if got := w.pods["db-2"]; len(got.Spec.Containers) != 1 || got.Spec.Volumes[0].ConfigMap == nil {
		t.Fatalf("db-2 is %+v", got.Spec)
	}
	before := w.uids()
	s.patch("db", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":3}}}}`)
	s.until("the partition is seen", func(w world) string {
		return unless(w.sets["db"].Status.ObservedGeneration == s.generations["db"], "it is not")
	})
	s.quiet(time.Second, "moving the partition up restarts a pod", func(c change) bool { return c.pod() != nil })
	s.kill("db-2", "db-1")
	s.replaced("db-2", before["db-2"])
	s.replaced("db-1", before["db-1"])
	w = s.ready("db", 3)
	want := likeOthers(w.pods["db-0"])
	for _, name := range []string{"db-1", "db-2"} {
		if got := likeOthers(w.pods[name]); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v\nwant %+v", name, got, want)
		}
	}
}

// likeOthers is what pods of one revision have in common.
func likeOthers(pod *corev1.Pod) *corev1.Pod {
	p := &corev1.Pod{Spec: *pod.Spec.DeepCopy()}
	p.Annotations = maps.Clone(pod.Annotations)
	p.Labels = maps.Clone(pod.Labels)
	delete(p.Labels, appsv1.StatefulSetPodNameLabel)
	delete(p.Labels, appsv1.PodIndexLabel)
	p.Spec.Hostname = ""
	generated := ""
	for i, v := range p.Spec.Volumes {
		if strings.HasPrefix(v.Name, "kube-api-access-") {
			generated = v.Name
			p.Spec.Volumes[i].Name = "token"
		}
	}
	for i := range p.Spec.Containers {
		for j, m := range p.Spec.Containers[i].VolumeMounts {
			if m.Name == generated {
				p.Spec.Containers[i].VolumeMounts[j].Name = "token"
			}
		}
	}
	return p
}

// A partition may be beyond the last pod, and is moved down step by step.
func TestPartitionMoves(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	first := s.settled("db")
	move := func(partition string) string {
		return fmt.Sprintf(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":%s}}}}`, partition)
	}
	s.patch("db", move("10"))
	s.retemplate("db", "2")
	w := s.until("the template is seen", func(w world) string {
		st := w.sets["db"].Status
		return unless(st.ObservedGeneration == s.generations["db"] && st.UpdateRevision != st.CurrentRevision, fmt.Sprintf("%+v", st))
	})
	if got := w.sets["db"].Status; got.UpdatedReplicas != 0 || got.CurrentReplicas != 3 {
		t.Errorf("status is %+v", got)
	}
	if message, done := rolloutStatus(t, w.sets["db"]); !done {
		t.Errorf("kubectl rollout status waits: %s", message)
	}
	for _, value := range []string{"-1", `"1"`, `"50%"`} {
		_, err := s.tryPatch("db", types.MergePatchType, move(value))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.updateStrategy.rollingUpdate.partition") &&
			!strings.Contains(err.Error(), "cannot unmarshal string") {
			t.Errorf("partition %s is answered with %v", value, err)
		}
	}
	s.quiet(time.Second, "a pod changes", func(c change) bool { return c.pod() != nil })
	if w := s.look(); !maps.Equal(w.uids(), first.uids()) || w.sets["db"].Generation != s.generations["db"] {
		t.Error("what was refused has changed something")
	}
	for updated, value := range []string{"3", "2", "1", "0"} {
		s.patch("db", move(value))
		w := s.until("partition "+value+" is rolled out", func(w world) string {
			st := w.sets["db"].Status
			whole := st.ObservedGeneration == s.generations["db"] && st.ReadyReplicas == 3
			return unless(whole && st.UpdatedReplicas == int32(updated), fmt.Sprintf("%+v", st))
		})
		for ordinal := range 3 {
			name := fmt.Sprintf("db-%d", ordinal)
			if isOld, wantOld := w.pods[name].UID == first.pods[name].UID, ordinal < 3-updated; isOld != wantOld {
				t.Errorf("at partition %s, %s is the old pod: %t", value, name, isOld)
			}
		}
	}
	s.settled("db")
	s.patch("db", move("10"))
	s.retemplate("db", "3")
	s.scale("db", 12)
	for name, pod := range s.ready("db", 12).pods {
		want := "2"
		if name == "db-10" || name == "db-11" {
			want = "3"
		}
		if got := version(pod); got != want {
			t.Errorf("%s has version %s, want %s", name, got, want)
		}
	}
}

// rolloutStatus is what `kubectl rollout status` makes of a set.
func rolloutStatus(t *testing.T, set *appsv1.StatefulSet) (string, bool) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	if err != nil {
		t.Fatal(err)
	}
	message, done, err := new(polymorphichelpers.StatefulSetStatusViewer).Status(&unstructured.Unstructured{Object: content}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return message, done
}
