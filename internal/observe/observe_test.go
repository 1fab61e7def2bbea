// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

// caches are informers that hold these objects without a server.
func caches(t *testing.T, objects ...runtime.Object) *Informers {
	t.Helper()
	i, err := NewInformers(fake.NewClientset(), newFakePolicies(t).client, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		put(t, i, o)
	}
	return i
}

func put(t *testing.T, i *Informers, o runtime.Object) {
	t.Helper()
	stripped, err := strip(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := store(i, o).Add(stripped); err != nil {
		t.Fatal(err)
	}
}

func store(i *Informers, o runtime.Object) cache.Store {
	switch o.(type) {
	case *appsv1.StatefulSet:
		return i.all.of(plan.KindSet).GetStore()
	case *corev1.Pod:
		return i.all.of(plan.KindPod).GetStore()
	case *corev1.PersistentVolumeClaim:
		return i.all.of(plan.KindClaim).GetStore()
	case *v1alpha1.StatefulSetPolicy:
		return i.all.of(KindPolicy).GetStore()
	default:
		return i.all.of(plan.KindRevision).GetStore()
	}
}

func named(name string, owner string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"}}
	if owner != "" {
		kind, name, _ := strings.Cut(owner, "/")
		m.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
	}
	return m
}

func set(name string, templates ...string) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: named(name, "")}
	s.Spec.Replicas = new(int32(2))
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for _, t := range templates {
		s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: t}})
	}
	return s
}

func pod(name, owner string) *corev1.Pod { return &corev1.Pod{ObjectMeta: named(name, owner)} }

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: named(name, "")}
}

func revision(name, owner string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{ObjectMeta: named(name, owner)}
}

// Of all that there is in a namespace, a snapshot holds what may belong to the set, and no more.
func TestLook(t *testing.T) {
	other := revision("b-1", "StatefulSet/other")
	unmatched := revision("c-1", "")
	unmatched.Labels = nil
	elsewhere := pod("web-1", "")
	elsewhere.Namespace = "elsewhere"
	i := caches(t,
		set("web", "data"), set("web-1"),
		pod("web-0", "StatefulSet/web"), pod("web-7", ""), pod("odd", "StatefulSet/web"), pod("web-1-0", "StatefulSet/web-1"),
		pod("job-0", "Job/job"), pod("web-3", "Job/job"), elsewhere,
		newClaim("data-web-0"), newClaim("data-web-1"), newClaim("data-web-7"), newClaim("data-web-9"), newClaim("logs-web-0"), newClaim("data-web-1-0"),
		revision("a-1", "StatefulSet/web"), revision("a-2", ""), other, unmatched,
	)
	o := New(i, NewWatermark(i), plan.Options{Recreate: true})
	now := time.Unix(5, 0)
	s, view, err := o.Look(Key{Namespace: "default", Name: "web"}, now)
	if err != nil || view != Fresh {
		t.Fatalf("view is %d, %v", view, err)
	}
	if s.Set.Name != "web" || !s.Now.Equal(now) || !s.Options.Recreate {
		t.Errorf("snapshot is of %s at %v with %+v", s.Set.Name, s.Now, s.Options)
	}
	expect(t, "pods", s.Pods, "odd", "web-0", "web-3", "web-7")
	expect(t, "claims", s.Claims, "data-web-0", "data-web-1", "data-web-7")
	expect(t, "revisions", s.Revisions, "a-1", "a-2")
}

func expect[T metav1.Object](t *testing.T, what string, got []T, want ...string) {
	t.Helper()
	names := make([]string, len(got))
	for i, o := range got {
		names[i] = o.GetName()
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("%s are %q, want %q", what, names, want)
	}
}

func TestLookAtNothing(t *testing.T) {
	i := caches(t)
	if _, view, err := New(i, NewWatermark(i), plan.Options{}).Look(Key{Namespace: "default", Name: "web"}, time.Time{}); view != Gone || err != nil {
		t.Errorf("view is %d, %v", view, err)
	}
}

func TestLookAtAHugeSet(t *testing.T) {
	s := set("web", "data")
	s.Spec.Replicas = new(int32(1<<31 - 1))
	i := caches(t, s, newClaim("data-web-5"))
	got, _, err := New(i, NewWatermark(i), plan.Options{}).Look(Key{Namespace: "default", Name: "web"}, time.Time{})
	if err != nil || len(got.Claims) != 1 {
		t.Errorf("%d claims, %v", len(got.Claims), err)
	}
	if n := len(plan.Make(got).Actions()); n == 0 || n > 2*plan.MaxCreates+1 {
		t.Errorf("%d actions are planned", n)
	}
}

func TestLookWithoutASelector(t *testing.T) {
	s := set("web")
	s.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	i := caches(t, s, revision("a-1", "StatefulSet/web"))
	got, view, err := New(i, NewWatermark(i), plan.Options{}).Look(Key{Namespace: "default", Name: "web"}, time.Time{})
	if err != nil || view != Fresh || len(got.Revisions) != 0 {
		t.Errorf("view is %d with %d revisions, %v", view, len(got.Revisions), err)
	}
}

// A change wakes exactly the sets that it concerns.
func TestWake(t *testing.T) {
	stranger := revision("x-1", "")
	stranger.Labels = nil
	tests := map[string]struct {
		object runtime.Object
		want   []string
	}{
		"set":                           {set("web"), []string{"web"}},
		"set with a rival":              {set("x-web", "data"), []string{"web", "x-web"}},
		"rival under another template":  {set("web", "logs", "data-x"), []string{"web", "x-web"}},
		"rival of another template":     {set("x-web", "logs"), []string{"x-web"}},
		"rival that comes":              {set("b-x-web", "data"), []string{"b-x-web"}},
		"rival that the sets outlive":   {set("gone", "data-x-web"), []string{"gone"}},
		"policy":                        {policyOf("p", "web"), []string{"web"}},
		"policy of no set":              {policyOf("p", "gone"), []string{"gone"}},
		"own pod":                       {pod("web-0", "StatefulSet/web"), []string{"web"}},
		"own pod of an odd name":        {pod("odd", "StatefulSet/web"), []string{"web"}},
		"orphan with a name":            {pod("web-0", ""), []string{"web"}},
		"stranger with a name":          {pod("web-0", "Job/job"), []string{"web"}},
		"pod of one, named for another": {pod("db-0", "StatefulSet/web"), []string{"db", "web"}},
		"pod of no set":                 {pod("job-0", "Job/job"), nil},
		"pod of a set that is gone":     {pod("gone-0", "StatefulSet/gone"), nil},
		"own claim":                     {newClaim("data-web-0"), []string{"web"}},
		"claim of two sets":             {newClaim("data-x-web-0"), []string{"web", "x-web"}},
		"claim of no template":          {newClaim("cache-web-0"), nil},
		"claim of no set":               {newClaim("data"), nil},
		"own revision":                  {revision("a-1", "StatefulSet/web"), []string{"web"}},
		"orphaned revision":             {revision("a-1", ""), []string{"db", "web", "x-web"}},
		"orphaned revision of others":   {stranger, nil},
		"revision of another kind":      {revision("a-1", "DaemonSet/web"), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			i := caches(t, set("web", "data", "data-x"), set("x-web", "data"), set("db"))
			var woken []string
			h := map[plan.Kind]handler{}
			for kind, concerns := range i.all.concerns() {
				h[kind] = handler{concerns: concerns, wake: func(k Key) { woken = append(woken, k.Name) }}
			}
			kind := plan.KindRevision
			switch test.object.(type) {
			case *appsv1.StatefulSet:
				kind = plan.KindSet
			case *corev1.Pod:
				kind = plan.KindPod
			case *corev1.PersistentVolumeClaim:
				kind = plan.KindClaim
			case *v1alpha1.StatefulSetPolicy:
				kind = KindPolicy
			}
			check := func(how string) {
				t.Helper()
				slices.Sort(woken)
				if !slices.Equal(woken, test.want) {
					t.Errorf("%s wakes %q, want %q", how, woken, test.want)
				}
				woken = nil
			}
			h[kind].OnAdd(test.object, false)
			check("adding")
			h[kind].OnDelete(test.object)
			check("deleting")
			h[kind].OnDelete(cache.DeletedFinalStateUnknown{Obj: test.object})
			check("having missed the deletion")
		})
	}
}

func TestWakeOnUpdate(t *testing.T) {
	i := caches(t, set("web"), set("db"))
	var woken []string
	h := handler{concerns: i.all.setsOfPod, wake: func(k Key) { woken = append(woken, k.Name) }}
	before, after := pod("web-0", "StatefulSet/db"), pod("web-0", "")
	before.ResourceVersion, after.ResourceVersion = "1", "2"
	h.OnUpdate(before, after)
	slices.Sort(woken)
	if woken = slices.Compact(woken); !slices.Equal(woken, []string{"db", "web"}) {
		t.Errorf("a change of owner wakes %q", woken)
	}
	woken = nil
	h.OnUpdate(after, after)
	h.OnUpdate("x", "y")
	h.OnAdd("x", false)
	if len(woken) != 0 {
		t.Errorf("a resync wakes %q", woken)
	}
}

func TestStrip(t *testing.T) {
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	p := pod("web-0", "StatefulSet/web")
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	p.Annotations = map[string]string{"a": "b", "ordinal.dev/stop-reason": "Update", "ordinal.dev/stop-at": "then"}
	p.Spec = corev1.PodSpec{
		NodeName:   "node",
		Volumes:    []corev1.Volume{{Name: "tmp"}, {Name: "data", VolumeSource: source}},
		Containers: []corev1.Container{{Name: "main"}},
	}
	ended := metav1.NewTime(time.Unix(1, 0))
	p.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Reason:     "why",
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		PodIP:      "10.0.0.1",
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Image: "img", ImageID: "sha", RestartCount: 3,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
			LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, FinishedAt: ended, Message: "long", ContainerID: "id"},
			},
		}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", Ready: true, AllocatedResources: corev1.ResourceList{}}},
	}
	want := pod("web-0", "StatefulSet/web")
	want.Annotations = map[string]string{"ordinal.dev/stop-reason": "Update", "ordinal.dev/stop-at": "then"}
	want.Spec = corev1.PodSpec{NodeName: "node", Volumes: p.Spec.Volumes[1:]}
	want.Status = corev1.PodStatus{Phase: corev1.PodRunning, Reason: "why", Conditions: p.Status.Conditions}

	unready, wantUnready := p.DeepCopy(), want.DeepCopy()
	unready.Status.Conditions[0].Status, wantUnready.Status.Conditions[0].Status = corev1.ConditionFalse, corev1.ConditionFalse
	wantUnready.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Image: "img", RestartCount: 3,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, FinishedAt: ended}},
	}}
	wantUnready.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", Ready: true}}
	bare := pod("web-1", "")
	bare.Annotations = map[string]string{"a": "b"}

	c := newClaim("data-web-0")
	c.Spec.VolumeName = "pv"
	obeyed := policyOf("p", "web")
	obeyed.Annotations = map[string]string{"ordinal.dev/retry-at": "then"}
	for what, test := range map[string]struct{ full, want runtime.Object }{
		"a ready pod":      {p, want},
		"an unready pod":   {unready, wantUnready},
		"a pod of no note": {bare, pod("web-1", "")},
		"a claim":          {c, newClaim("data-web-0")},
		"a policy":         {obeyed, obeyed.DeepCopy()},
	} {
		if got, err := strip(test.full); err != nil || !equality.Semantic.DeepEqual(got, test.want) {
			t.Errorf("%s is cached as %+v, want %+v, %v", what, got, test.want, err)
		}
	}
	if o, err := strip(cache.DeletedFinalStateUnknown{Key: "k"}); err != nil || o == nil {
		t.Errorf("tombstone is %v, %v", o, err)
	}
}

func TestWatermark(t *testing.T) {
	key := Key{Namespace: "default", Name: "web"}
	at := func(name, uid, version string) *corev1.Pod {
		p := pod(name, "StatefulSet/web")
		p.UID, p.ResourceVersion = types.UID(uid), version
		return p
	}
	going := at("web-0", "u", "6")
	going.DeletionTimestamp = new(metav1.Now())
	wrote := func(w *Watermark) { w.Wrote(key, plan.KindPod, at("web-0", "u", "10")) }
	ref := plan.Ref{Kind: plan.KindPod, Name: "web-0", UID: "u"}
	deleted := func(w *Watermark) { w.Deleted(key, ref) }
	gone := func(w *Watermark) { w.Gone(key, ref) }
	tests := map[string]struct {
		write  func(*Watermark)
		cached []runtime.Object
		want   bool
	}{
		"nothing written":           {func(*Watermark) {}, nil, true},
		"not there yet":             {wrote, nil, false},
		"there as before":           {wrote, []runtime.Object{at("web-0", "u", "9")}, false},
		"there as written":          {wrote, []runtime.Object{at("web-0", "u", "10")}, true},
		"there, newer":              {wrote, []runtime.Object{at("web-0", "u", "123")}, true},
		"the one before":            {wrote, []runtime.Object{at("web-0", "old", "9")}, false},
		"gone again":                {wrote, []runtime.Object{at("web-9", "x", "12")}, true},
		"the one after":             {wrote, []runtime.Object{at("web-0", "next", "12")}, true},
		"still there":               {deleted, []runtime.Object{at("web-0", "u", "5")}, false},
		"going":                     {deleted, []runtime.Object{going}, true},
		"gone":                      {deleted, nil, true},
		"replaced":                  {deleted, []runtime.Object{at("web-0", "next", "12")}, true},
		"found gone, and going":     {gone, []runtime.Object{going}, false},
		"found gone, and gone":      {gone, nil, true},
		"of another set":            {func(w *Watermark) { w.Deleted(Key{Name: "x"}, plan.Ref{Kind: plan.KindPod}) }, nil, true},
		"written, and then deleted": {func(w *Watermark) { wrote(w); deleted(w) }, []runtime.Object{at("web-0", "u", "10")}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			i := caches(t, test.cached...)
			for _, o := range test.cached {
				if p, ok := o.(*corev1.Pod); ok {
					i.all.pods.GetStore().Bookmark(p.ResourceVersion)
				}
			}
			w := NewWatermark(i)
			test.write(w)
			if got := w.IsReached(key); got != test.want {
				t.Errorf("reached is %t, want %t", got, test.want)
			}
			if test.want != w.IsReached(key) {
				t.Error("the second answer is another")
			}
		})
	}
}
