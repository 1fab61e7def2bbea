// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// started are informers of a scope that run until the test ends.
func started(t *testing.T, s Scope, client *fake.Clientset, policies PolicyClient, wake func(Key)) *Informers {
	t.Helper()
	i, err := s.NewInformers(client, policies, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Handle(wake); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	i.Start(ctx)
	t.Cleanup(func() {
		stop()
		i.Shutdown()
	})
	return i
}

func in[T metav1.Object](namespace string, o T) T {
	o.SetNamespace(namespace)
	return o
}

// Only the namespaces of the scope are asked for, and only what is there is seen.
func TestScopeOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(
			in("a", set("web")), in("a", pod("web-0", "StatefulSet/web")), in("b", set("web")), in("c", set("web")), in("c", pod("web-0", "StatefulSet/web")))
		var mu sync.Mutex
		var woken []string
		i := started(t, Scope{Namespaces: []string{"a", "b"}}, client, newFakePolicies(t, in("b", policyOf("p", "web"))).client, func(k Key) {
			mu.Lock()
			defer mu.Unlock()
			woken = append(woken, k.String())
		})
		if !i.WaitForSync(t.Context().Done()) || i.Filled() != nil {
			t.Fatalf("it is not filled: %v", i.Filled())
		}
		synctest.Wait()
		o := New(i, NewWatermark(i), plan.Options{})
		for namespace, want := range map[string]struct {
			view           View
			pods, policies int
		}{"a": {Fresh, 1, 0}, "b": {Fresh, 0, 1}, "c": {Foreign, 0, 0}} {
			k := Key{Namespace: namespace, Name: "web"}
			s, view, err := o.Look(k, time.Time{})
			policies, policiesErr := o.Policies(k)
			if err != nil || policiesErr != nil || view != want.view || len(s.Pods) != want.pods || len(policies) != want.policies {
				t.Errorf("of %s there are %d pods and %d policies, view %v, %v, %v", k, len(s.Pods), len(policies), view, err, policiesErr)
			}
		}
		for _, a := range client.Actions() {
			if !slices.Contains([]string{"a", "b"}, a.GetNamespace()) {
				t.Errorf("%s %s of namespace %q is asked for", a.GetVerb(), a.GetResource().Resource, a.GetNamespace())
			}
		}
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(woken)
		if woken = slices.Compact(woken); !slices.Equal(woken, []string{"a/web", "b/web"}) {
			t.Errorf("woken are %q", woken)
		}
	})
}

// A new leader has to see all that the one before it did, so what is listed is not what an API server happens to have cached.
func TestListsAreUpToDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, policies := fake.NewClientset(), newFakePolicies(t)
		i := started(t, Scope{}, client, policies.client, func(Key) {})
		if !i.WaitForSync(t.Context().Done()) {
			t.Fatal("it is not filled")
		}
		lists := 0
		for _, a := range append(client.Actions(), policies.fake.Actions()...) {
			if list, ok := a.(clienttesting.ListActionImpl); ok {
				lists++
				if v := list.ListOptions.ResourceVersion; v != "" {
					t.Errorf("%s are listed as of version %q", a.GetResource().Resource, v)
				}
			}
		}
		if lists != 5 {
			t.Errorf("%d kinds are listed", lists)
		}
	})
}

// A namespace that may not be read holds up no other, and is looked at once it may be.
func TestNamespaceThatMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(in("a", set("web")), in("b", set("web")), in("b", pod("web-0", "StatefulSet/web")))
		var allowed atomic.Bool
		client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() == "b" && !allowed.Load() {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
			}
			return false, nil, nil
		})
		i := started(t, Scope{Namespaces: []string{"a", "b"}}, client, nil, func(Key) {})
		if !i.WaitForSync(t.Context().Done()) {
			t.Fatal("it is not waited for")
		}
		synctest.Wait() // what else is in b may be read, and is not waited for either
		if err := i.Filled(); err == nil || err.Error() != "not all is read yet of Pod in b" {
			t.Errorf("what is missing is told as %v", err)
		}
		o := New(i, NewWatermark(i), plan.Options{})
		look := func(namespace string) View {
			t.Helper()
			_, view, err := o.Look(Key{Namespace: namespace, Name: "web"}, time.Time{})
			if err != nil {
				t.Error(err)
			}
			return view
		}
		if a, b := look("a"), look("b"); a != Fresh || b != Stale {
			t.Errorf("the views are %v and %v", a, b)
		}
		allowed.Store(true)
		<-time.After(2 * longestPause)
		synctest.Wait()
		if a, b := look("a"), look("b"); a != Fresh || b != Fresh || i.Filled() != nil {
			t.Errorf("once it may be read, the views are %v and %v, and missing is %v", a, b, i.Filled())
		}
	})
}

// Where the whole cluster may not be read, nothing begins.
func TestClusterThatMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
		})
		i := started(t, Scope{}, client, nil, func(Key) {})
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if i.WaitForSync(ctx.Done()) {
			t.Error("without pods it is said to be filled")
		}
		if err := i.Filled(); err == nil || err.Error() != "not all is read yet of Pod in all namespaces" {
			t.Errorf("what is missing is told as %v", err)
		}
	})
}

// A set that the selector does not match is foreign, wakes nobody but to be forgotten, and is kept only as far as its claims matter.
func TestScopeOfSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := set("web", "data-x"), set("x-web", "data")
		ours.Labels = map[string]string{"team": "db"}
		theirs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		theirs.Annotations = map[string]string{"large": "text"}
		theirs.Status.Replicas = 3
		client := fake.NewClientset(ours, theirs, pod("x-web-0", "StatefulSet/x-web"), newClaim("data-x-web-0"), revision("x-web-1", "StatefulSet/x-web"))
		var mu sync.Mutex
		woken := map[string]int{}
		i := started(t, Scope{Selector: labels.SelectorFromSet(ours.Labels)}, client, nil, func(k Key) {
			mu.Lock()
			defer mu.Unlock()
			woken[k.Name]++
		})
		if !i.WaitForSync(t.Context().Done()) {
			t.Fatal("it is not filled")
		}
		synctest.Wait()
		o := New(i, NewWatermark(i), plan.Options{})
		look := func(name string) (plan.Snapshot, View) {
			t.Helper()
			s, view, err := o.Look(Key{Namespace: "default", Name: name}, time.Time{})
			if err != nil {
				t.Error(err)
			}
			return s, view
		}
		s, view := look("web")
		if view != Fresh || len(s.Rivals) != 1 || s.Rivals[0].Set.Name != "x-web" || !s.Rivals[0].Ordinals[0] {
			t.Errorf("of our set the view is %v, with the rivals %+v", view, s.Rivals)
		}
		if _, view := look("x-web"); view != Foreign {
			t.Errorf("of the other set the view is %v", view)
		}
		kept, ok := lookup(i.all.sets.GetStore(), "default", "x-web").(*appsv1.StatefulSet)
		if !ok || len(kept.Spec.Template.Spec.Containers) != 0 || kept.Annotations != nil || kept.Status.Replicas != 0 || !hasTemplate(kept, "data") {
			t.Errorf("kept of the other set is %+v", kept)
		}
		count := func() (ours, theirs int) {
			mu.Lock()
			defer mu.Unlock()
			defer clear(woken)
			return woken["web"], woken["x-web"]
		}
		count()
		p := pod("x-web-0", "StatefulSet/x-web")
		p.ResourceVersion, p.Labels = "7", map[string]string{"a": "b"}
		if _, err := client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, n := count(); n != 0 {
			t.Errorf("a pod of the other set wakes it %d times", n)
		}
		// Labels change what is ours, at once, and then all of it is there.
		theirs.Labels, theirs.ResourceVersion = map[string]string{"team": "db"}, "8"
		theirs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		ours.Labels, ours.ResourceVersion = nil, "9"
		for _, s := range []*appsv1.StatefulSet{theirs, ours} {
			if _, err := client.AppsV1().StatefulSets("default").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if a, b := count(); a == 0 || b == 0 {
			t.Errorf("the sets are woken %d and %d times", a, b)
		}
		if _, view := look("web"); view != Foreign {
			t.Errorf("of the set that was ours the view is %v", view)
		}
		s, view = look("x-web")
		if view != Fresh || len(s.Pods) != 1 || len(s.Set.Spec.Template.Spec.Containers) != 1 {
			t.Errorf("of the set that is ours now the view is %v: %+v", view, s)
		}
	})
}

// What another controller writes of its own sets is no news.
func TestForeignWriteOfForeignSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		stream := watch.NewRaceFreeFake()
		client.PrependWatchReactor("statefulsets", clienttesting.DefaultWatchReactor(stream, nil))
		i, err := Scope{Selector: labels.SelectorFromSet(labels.Set{"team": "db"})}.NewInformers(client, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var told []string
		if err := i.OnForeignWrite(func(s *appsv1.StatefulSet, _ string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, s.ResourceVersion)
		}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer i.Shutdown()
		defer stop()
		i.Start(ctx)
		synctest.Wait()
		for n, team := range []string{"web", "web", "db", "db", "web"} {
			s := set("web")
			s.Labels, s.ResourceVersion = map[string]string{"team": team}, strconv.Itoa(n)
			s.ManagedFields = []metav1.ManagedFieldsEntry{wrote("kube-controller-manager", "status", counters, int64(n))}
			stream.Modify(s)
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told, []string{"3"}) {
			t.Errorf("told is of the versions %q, want that of the write to a set that is ours", told)
		}
	})
}
