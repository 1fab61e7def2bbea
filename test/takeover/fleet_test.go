// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kind is a kind of set.
type kind struct {
	name string
	set  func(*appsv1.StatefulSet)
	// edit is what is changed once all pods run; empty for nothing. Then ready and updated pods are as many as these.
	edit           string
	ready, updated int32
}

// template is an edit of the template.
func template(image string) string {
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image)
}

const (
	firstImage, secondImage = "ordinal.invalid/model:1", "ordinal.invalid/model:2"
	// orphaned sets are deleted without their pods, and made anew, whenever no controller works.
	orphaned = "orphaned"
)

// kinds are ten kinds of sets of three pods.
func kinds() []kind {
	rolling := func(r appsv1.RollingUpdateStatefulSetStrategy) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &r}
		}
	}
	return []kind{
		{"ordered", func(*appsv1.StatefulSet) {}, template(secondImage), 3, 3},
		{"parallel", func(s *appsv1.StatefulSet) {
			s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			withClaims(s)
		}, "", 3, 3},
		{"retained", func(s *appsv1.StatefulSet) {
			withClaims(s)
			s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			}
		}, "", 3, 3},
		{"partition", rolling(appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}), template(secondImage), 3, 1},
		{"ondelete", func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}, template(secondImage), 3, 0},
		{"two", rolling(appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: new(intstr.FromInt32(2))}), template(secondImage), 3, 3},
		{"minready", func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 1 }, "", 3, 3},
		{"start", func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5} }, "", 3, 3},
		{"stopped", func(*appsv1.StatefulSet) {}, template(brokenImage), 2, 1},
		{orphaned, withClaims, "", 3, 3},
	}
}

func withClaims(s *appsv1.StatefulSet) {
	s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Mi")}},
		},
	}}
	s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
}

// fleet are the sets of a namespace.
type fleet struct {
	t         *testing.T
	namespace string
	kinds     map[string]kind
	specs     map[string]*appsv1.StatefulSet
}

// newFleet makes a namespace. kube-controller-manager has to run.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fleet-"}}
	ns, err := env.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "pods may be created", func(ctx context.Context) string {
		_, err := env.client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return text(err)
	})
	return &fleet{t: t, namespace: ns.Name, kinds: map[string]kind{}, specs: map[string]*appsv1.StatefulSet{}}
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// add creates a set.
func (f *fleet) add(name string, k kind) {
	f.t.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "peers", Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: firstImage}}},
			},
		},
	}
	k.set(set)
	f.kinds[name], f.specs[name] = k, set
	f.create(set)
}

func (f *fleet) create(set *appsv1.StatefulSet) {
	f.t.Helper()
	if _, err := env.client.AppsV1().StatefulSets(f.namespace).Create(f.t.Context(), set, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) patch(name, patch string) {
	f.t.Helper()
	sets := env.client.AppsV1().StatefulSets(f.namespace)
	_, err := sets.Patch(f.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

// launch creates all kinds of sets, so many of each, and brings them where they stay.
func (f *fleet) launch(each int) {
	f.t.Helper()
	for _, k := range kinds() {
		for n := range each {
			f.add(fmt.Sprintf("%s-%c", k.name, 'a'+n), k)
		}
	}
	f.settled(func(kind) (int32, int32) { return 3, 3 })
	for _, name := range slices.Sorted(maps.Keys(f.kinds)) {
		if edit := f.kinds[name].edit; edit != "" {
			f.patch(name, edit)
		}
	}
	f.settled(asWanted)
}

// asWanted is what a kind of set comes to.
func asWanted(k kind) (ready, updated int32) { return k.ready, k.updated }

// settled waits until all sets are observed, and have so many pods that are ready and updated.
func (f *fleet) settled(wanted func(kind) (ready, updated int32)) {
	f.t.Helper()
	poll(f.t, "all sets have settled", func(ctx context.Context) string {
		list, err := env.client.AppsV1().StatefulSets(f.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			set := &list.Items[i]
			st := set.Status
			ready, updated := wanted(f.kinds[set.Name])
			switch {
			case st.ObservedGeneration < set.Generation, st.Replicas != 3, st.ReadyReplicas != ready, st.UpdatedReplicas != updated:
			case ready == 3 && st.AvailableReplicas != 3:
			case ready == 3 && updated == 3 && st.CurrentRevision != st.UpdateRevision:
			default:
				continue
			}
			return fmt.Sprintf("%s has the status %+v", set.Name, st)
		}
		return unless(len(list.Items) >= len(f.kinds), "sets are missing")
	})
}

func unless(ok bool, lack string) string {
	if ok {
		return ""
	}
	return lack
}

// orphan deletes the sets of that kind without their pods, and makes them anew. No controller may work on sets.
func (f *fleet) orphan() {
	f.t.Helper()
	sets := env.client.AppsV1().StatefulSets(f.namespace)
	for name, k := range f.kinds {
		if k.name != orphaned {
			continue
		}
		err := sets.Delete(f.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)})
		if err != nil {
			f.t.Fatal(err)
		}
		poll(f.t, name+" is gone", func(ctx context.Context) string {
			_, err := sets.Get(ctx, name, metav1.GetOptions{})
			return unless(apierrors.IsNotFound(err), "it is still there")
		})
		f.create(f.specs[name])
	}
}

// probe makes a set, and waits until the named controller has brought its pod up. All sets were looked at before.
func (f *fleet) probe(by string) {
	f.t.Helper()
	name := fmt.Sprintf("probe-%d", len(f.kinds))
	f.add(name, kind{name: "probe", set: func(*appsv1.StatefulSet) {}, ready: 3, updated: 3})
	poll(f.t, by+" has worked on "+name, func(ctx context.Context) string {
		set, err := env.client.AppsV1().StatefulSets(f.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, m := range set.ManagedFields {
			if m.Subresource == "status" && m.Manager != by {
				f.t.Fatalf("%s has worked on %s, and not %s", m.Manager, name, by)
			}
		}
		return unless(set.Status.AvailableReplicas == 3, fmt.Sprintf("its status is %+v", set.Status))
	})
	f.settled(asWanted)
	// What is done wrongly is done soon.
	<-time.After(2 * time.Second)
}

// state is what must not change, by kind and name.
type state map[string]string

// look takes the state of all but probes.
func (f *fleet) look() state {
	f.t.Helper()
	all := state{}
	ctx, apps, core := f.t.Context(), env.client.AppsV1(), env.client.CoreV1()
	sets, err := apps.StatefulSets(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range sets.Items {
		s := &sets.Items[i]
		st := s.Status
		st.Conditions, st.ObservedGeneration = nil, 0
		identity := fmt.Sprint(s.UID, " ", s.Generation)
		if f.kinds[s.Name].name == orphaned {
			identity = ""
		}
		all["set "+s.Name] = fmt.Sprint(identity, f.encode(s.Spec), f.encode(st))
	}
	pods, err := core.Pods(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		all["pod "+p.Name] = fmt.Sprint(p.UID, p.DeletionTimestamp, f.encode(p.Spec), f.encode(p.Labels))
	}
	claims, err := core.PersistentVolumeClaims(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		all["claim "+c.Name] = fmt.Sprint(c.UID, c.DeletionTimestamp, f.encode(c.OwnerReferences))
	}
	revisions, err := apps.ControllerRevisions(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range revisions.Items {
		r := &revisions.Items[i]
		all["revision "+r.Name] = fmt.Sprint(r.UID, r.Revision, string(r.Data.Raw))
	}
	maps.DeleteFunc(all, func(what, _ string) bool { return isProbe(what) })
	return all
}

func isProbe(what string) bool {
	var kind, name string
	if _, err := fmt.Sscanf(what, "%s %s", &kind, &name); err != nil {
		return false
	}
	return len(name) > 6 && name[:6] == "probe-"
}

func (f *fleet) encode(o any) string {
	f.t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// same sees to it that nothing has changed since.
func (f *fleet) same(when string, before state) {
	f.t.Helper()
	now := f.look()
	for _, what := range slices.Sorted(maps.Keys(before)) {
		if now[what] != before[what] {
			f.t.Errorf("%s, %s is\n%s\nand was\n%s", when, what, now[what], before[what])
		}
	}
	for what := range now {
		if _, known := before[what]; !known {
			f.t.Errorf("%s, there is a new %s", when, what)
		}
	}
}
