// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What cannot be changed is refused by name, and nothing of the edit is done: https://github.com/kubernetes/kubernetes/issues/69041.
func TestFieldsThatCannotChange(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet(withClaims))
	before := s.settled("db")
	const claims = `{"spec":{"volumeClaimTemplates":[{"metadata":{"name":"data"%s},
		"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":%q}}}}]}}`
	for _, c := range []struct{ field, patch string }{
		{"spec.serviceName", `{"spec":{"serviceName":"others"}}`},
		{"spec.podManagementPolicy", `{"spec":{"podManagementPolicy":"Parallel"}}`},
		{"spec.selector", `{"spec":{"selector":{"matchLabels":{"more":"1"}},"template":{"metadata":{"labels":{"more":"1"}}}}}`},
		{"spec.volumeClaimTemplates", fmt.Sprintf(claims, "", "16Mi")},
		{"spec.volumeClaimTemplates", fmt.Sprintf(claims, `,"labels":{"a":"b"}`, "8Mi")},
		{"spec.serviceName", `{"spec":{"replicas":5,"serviceName":"others"}}`},
	} {
		_, err := s.tryPatch("db", types.MergePatchType, c.patch)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s is answered with %v", c.patch, err)
		}
	}
	s.quiet(time.Second, "what is refused changes something", anything)
	if got := s.look().sets["db"]; got.Generation != before.sets["db"].Generation || *got.Spec.Replicas != 3 {
		t.Errorf("the set is at generation %d with %d replicas", got.Generation, *got.Spec.Replicas)
	}
	for _, patch := range []string{
		`{"spec":{"replicas":2}}`,
		`{"spec":{"minReadySeconds":1}}`,
		`{"spec":{"revisionHistoryLimit":1}}`,
		`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}}}`,
		`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`,
		`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"}}}`,
		containerPatch(`{"name":"main","image":"ordinal.dev/model:2"}`),
		`{"spec":{"ordinals":{"start":1}}}`,
	} {
		s.patch("db", patch)
		s.settled("db")
	}
	w := s.look()
	if w.pods["db-1"] == nil || w.pods["db-2"] == nil || w.pods["db-1"].Spec.Containers[0].Image != "ordinal.dev/model:2" {
		t.Errorf("pods are %v", w.uids())
	}
}

// A template of which no pod could be made is refused at once, with all its faults and where they are.
func TestTemplatesThatCannotBe(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	const containers = "spec.template.spec.containers"
	both := newSet()
	both.Spec.Template.Spec.Containers = append(both.Spec.Template.Spec.Containers, both.Spec.Template.Spec.Containers[0])
	both.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "nowhere", MountPath: "/x"}}
	for _, c := range []struct {
		set    *appsv1.StatefulSet
		fields []string
	}{
		{both, []string{containers + "[1].name", containers + "[0].volumeMounts[0].name"}},
		{newSet(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, Name: "longer-than-fifteen"}}
		}), []string{containers + "[0].ports[0].name"}},
		{newSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }), []string{"spec.template.spec.restartPolicy"}},
		{newSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(5)) }), []string{"spec.template.spec.activeDeadlineSeconds"}},
		{newSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Labels["app"] = "other" }), []string{"spec.template.metadata.labels"}},
	} {
		_, err := env.client.AppsV1().StatefulSets(s.name).Create(t.Context(), c.set, metav1.CreateOptions{})
		for _, field := range c.fields {
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field) {
				t.Errorf("instead of naming %s, the answer is %v", field, err)
			}
		}
	}
	s.create(newSet())
	s.settled("db")
	_, err := s.tryPatch("db", types.StrategicMergePatchType, containerPatch(`{"name":"main","volumeMounts":[{"name":"nowhere","mountPath":"/x"}]}`))
	if !apierrors.IsInvalid(err) {
		t.Errorf("an edit that no pod could be made of is answered with %v", err)
	}
}

// Who applies a set again resets what it says and nothing else; none of it makes a revision:
// https://github.com/kubernetes/kubernetes/issues/25238.
func TestApplyingAgain(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	const manifest = `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db"},"spec":{%s"serviceName":"peers",
		"selector":{"matchLabels":{"app":"db"}},"template":{"metadata":{"labels":{"app":"db"}},
		"spec":{"containers":[{"name":"main","image":"ordinal.dev/model:1","env":[{"name":"VERSION","value":"1"}]}]}}}}`
	sets := env.client.AppsV1().StatefulSets(s.name)
	apply := func(manager, replicas string, want int32) {
		t.Helper()
		set, err := sets.Patch(t.Context(), "db", types.ApplyPatchType, fmt.Appendf(nil, manifest, replicas),
			metav1.PatchOptions{FieldManager: manager, Force: new(true)})
		if err != nil {
			t.Fatal(err)
		}
		s.generations["db"] = set.Generation
		if *set.Spec.Replicas != want {
			t.Errorf("applying %q gives %d replicas, want %d", replicas, *set.Spec.Replicas, want)
		}
		s.settled("db")
	}
	scale := func(replicas int32, version string) error {
		wanted := &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: s.name, ResourceVersion: version},
			Spec:       autoscalingv1.ScaleSpec{Replicas: replicas},
		}
		_, err := sets.UpdateScale(t.Context(), "db", wanted, metav1.UpdateOptions{FieldManager: "scaler"})
		if err == nil {
			set, getErr := sets.Get(t.Context(), "db", metav1.GetOptions{})
			if getErr != nil {
				return getErr
			}
			s.generations["db"] = set.Generation
		}
		return err
	}
	apply("file", "", 1)
	if err := scale(3, ""); err != nil {
		t.Fatal(err)
	}
	apply("file", "", 3)
	apply("file", `"replicas":2,`, 2)
	if err := scale(4, ""); err != nil {
		t.Fatal(err)
	}
	s.settled("db")
	got, err := sets.GetScale(t.Context(), "db", metav1.GetOptions{})
	if err != nil || got.Spec.Replicas != 4 || got.Status.Replicas != 4 || got.Status.Selector != "app=db" {
		t.Errorf("the scale is %+v (%v)", got, err)
	}
	if err := scale(1, "1"); !apierrors.IsConflict(err) {
		t.Errorf("scaling what is no longer so is answered with %v", err)
	}
	apply("file", `"replicas":2,`, 2)
	apply("other", `"replicas":2,`, 2)
	apply("file", "", 2)  // Another one still says so.
	apply("other", "", 1) // Nobody does any more.
	s.patch("db", `{"spec":{"replicas":3}}`)
	if set := s.patch("db", `{"spec":{"replicas":null}}`); *set.Spec.Replicas != 1 {
		t.Errorf("without the field there are %d replicas", *set.Spec.Replicas)
	}
	if w := s.settled("db"); len(w.revisions) != 1 {
		t.Errorf("revisions are %v", w.numbers())
	}
}

// A disruption budget counts the pods of the set and holds up evictions, but not the set's own work. A pod that is not ready
// may be evicted while the others are enough: https://github.com/kubernetes/kubernetes/issues/72320.
func TestDisruptionBudget(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	s.settled("db")
	budgets := env.client.PolicyV1().PodDisruptionBudgets(s.name)
	atLeast := func(n int, healthy int32) {
		t.Helper()
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "db"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt(n)), Selector: newSet().Spec.Selector},
		}
		_, err := budgets.Create(t.Context(), budget, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			_, err = budgets.Patch(t.Context(), "db", types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, n), metav1.PatchOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		poll(t, "the budget is counted", func(ctx context.Context) string {
			b, err := budgets.Get(ctx, "db", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			st := b.Status
			counted := st.ObservedGeneration == b.Generation && st.ExpectedPods == 3 && st.CurrentHealthy == healthy
			return unless(counted && st.DesiredHealthy == int32(n), fmt.Sprintf("%+v", st))
		})
	}
	evict := func(name string) error {
		return env.client.PolicyV1().Evictions(s.name).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name},
		})
	}
	atLeast(3, 3)
	if err := evict("db-0"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evicting db-0 is answered with %v", err)
	}
	s.retemplate("db", "2")
	before := s.settled("db")
	s.decide("db-1", fate{Unready: true})
	s.ready("db", 2)
	atLeast(2, 2)
	if err := evict("db-0"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("evicting db-0 is answered with %v", err)
	}
	if err := evict("db-1"); err != nil {
		t.Errorf("evicting db-1, which is not ready, is answered with %v", err)
	}
	s.decide("db-1", fate{})
	s.replaced("db-1", before.pods["db-1"].UID)
	after := s.settled("db")
	delete(before.pods, "db-1")
	delete(after.pods, "db-1")
	if !maps.Equal(before.uids(), after.uids()) {
		t.Errorf("pods are %v, were %v", after.uids(), before.uids())
	}
	s.scale("db", 1)
	s.settled("db")
}
