// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

func policyOf(name, target string) *v1alpha1.StatefulSetPolicy {
	return &v1alpha1.StatefulSetPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       v1alpha1.StatefulSetPolicySpec{TargetRef: v1alpha1.TargetRef{Name: target}},
	}
}

// fakePolicies are the policies of an API server.
type fakePolicies struct {
	tracker clienttesting.ObjectTracker
	fake    clienttesting.Fake
	// trouble, if set, is the answer to all calls.
	trouble atomic.Pointer[apierrors.StatusError]
	lists   atomic.Int32
	// gate, if set, is waited for by each list.
	gate chan struct{}
}

func newFakePolicies(t *testing.T, policies ...*v1alpha1.StatefulSetPolicy) *fakePolicies {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &fakePolicies{tracker: clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())}
	for _, p := range policies {
		if err := f.tracker.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	f.fake.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetVerb() == "list" {
			f.lists.Add(1)
			if f.gate != nil {
				<-f.gate
			}
		}
		if err := f.trouble.Load(); err != nil {
			return true, nil, err
		}
		return clienttesting.ObjectReaction(f.tracker)(a)
	})
	f.fake.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		if err := f.trouble.Load(); err != nil {
			return true, nil, err
		}
		w, err := f.tracker.Watch(a.GetResource(), a.GetNamespace())
		return true, w, err
	})
	return f
}

// unstreamed is a client whose watches do not begin with what is there.
type unstreamed struct{ PolicyAPI }

func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

func (f *fakePolicies) client(namespace string) PolicyAPI {
	version := v1alpha1.GroupVersion()
	return unstreamed{gentype.NewFakeClientWithList(&f.fake, namespace,
		version.WithResource(v1alpha1.Resource), version.WithKind(v1alpha1.Kind),
		func() *v1alpha1.StatefulSetPolicy { return &v1alpha1.StatefulSetPolicy{} },
		func() *v1alpha1.StatefulSetPolicyList { return &v1alpha1.StatefulSetPolicyList{} },
		func(to, from *v1alpha1.StatefulSetPolicyList) { to.ListMeta = from.ListMeta },
		func(l *v1alpha1.StatefulSetPolicyList) []*v1alpha1.StatefulSetPolicy {
			return gentype.ToPointerSlice(l.Items)
		},
		func(l *v1alpha1.StatefulSetPolicyList, items []*v1alpha1.StatefulSetPolicy) {
			l.Items = gentype.FromPointerSlice(items)
		})}
}

func notServed() *apierrors.StatusError {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "list", v1alpha1.GroupVersion().WithResource(v1alpha1.Resource).GroupResource(),
		"", "404 page not found", 0, true)
}

// longestPause is how long client-go waits at most until it asks again.
const longestPause = 61 * time.Second

// watched are informers that run in virtual time.
type watched struct {
	*Informers
	t      *testing.T
	buffer ktesting.Buffer
	mu     sync.Mutex
	woken  []string
}

// watching runs informers. It is called in a bubble.
func watching(t *testing.T, f *fakePolicies, test func(*watched)) {
	t.Helper()
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	sink, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the log cannot be read")
	}
	i, err := NewInformers(fake.NewClientset(), f.client, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{Informers: i, t: t, buffer: sink.GetBuffer()}
	err = i.Handle(func(k Key) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.woken = append(w.woken, k.Name)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer i.Shutdown()
	defer stop()
	i.Start(ctx)
	test(w)
}

// pass lets some time pass.
func (w *watched) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// isSynced tells if the caches are filled, or will be within a moment.
func (w *watched) isSynced() bool {
	ctx, stop := context.WithTimeout(w.t.Context(), 2*time.Second)
	defer stop()
	return w.WaitForSync(ctx.Done())
}

// expect compares what was woken since the last call, in any order, each set once.
func (w *watched) expect(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.woken)
	if got := slices.Compact(w.woken); !slices.Equal(got, want) {
		w.t.Errorf("woken are %q, want %q", got, want)
	}
	w.woken = nil
}

// logged counts the entries of the log that hold a text.
func (w *watched) logged(text string) int {
	n := 0
	for _, entry := range w.buffer.Data() {
		if strings.Contains(fmt.Sprint(entry.Message, entry.Err), text) {
			n++
		}
	}
	return n
}

func (w *watched) policiesOf(set string) []string {
	w.t.Helper()
	policies, err := New(w.Informers, NewWatermark(w.Informers), plan.Options{}).Policies(Key{Namespace: "default", Name: set})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, p := range policies {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// A policy belongs to the set that it names, and wakes that set, and the one that it named before.
func TestPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakePolicies(t, policyOf("a", "web"), policyOf("b", "db"))
		watching(t, f, func(w *watched) {
			if !w.isSynced() {
				t.Fatal("the caches are not filled")
			}
			w.pass(time.Second)
			w.expect("db", "web")
			if got := w.policiesOf("web"); !slices.Equal(got, []string{"a"}) {
				t.Errorf("policies of web are %q", got)
			}
			moved := policyOf("b", "web")
			moved.ResourceVersion = "2"
			if err := f.tracker.Update(v1alpha1.GroupVersion().WithResource(v1alpha1.Resource), moved, "default"); err != nil {
				t.Fatal(err)
			}
			w.pass(time.Second)
			w.expect("db", "web")
			if got := w.policiesOf("web"); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("policies of web are %q", got)
			}
			if got := w.policiesOf("db"); got != nil {
				t.Errorf("policies of db are %q", got)
			}
		})
	})
}

// A cluster need not serve policies. Once it does, they count; and as long as it does not, that is said once.
func TestPoliciesAreServedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakePolicies(t, policyOf("a", "web"))
		f.trouble.Store(notServed())
		watching(t, f, func(w *watched) {
			if !w.isSynced() {
				t.Fatal("policies are waited for that no one serves")
			}
			w.pass(time.Hour)
			if n := f.lists.Load(); n < 100 || n > 400 {
				t.Errorf("in an hour policies are asked for %d times", n)
			}
			if said, errs := w.logged("serves no StatefulSetPolicies"), w.logged("Failed to watch"); said != 1 || errs != 0 {
				t.Errorf("it is said %d times, and %d errors are logged", said, errs)
			}
			w.expect()
			f.trouble.Store(nil)
			w.pass(longestPause)
			w.expect("web")
			if got := w.policiesOf("web"); !slices.Equal(got, []string{"a"}) {
				t.Errorf("policies of web are %q", got)
			}
		})
	})
}

// Policies that are served are waited for: one of them may say that nothing is to be done.
func TestPoliciesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakePolicies(t, policyOf("a", "web"))
		f.gate = make(chan struct{})
		watching(t, f, func(w *watched) {
			w.pass(time.Minute)
			if w.isSynced() {
				t.Error("policies that are still to come are not waited for")
			}
			close(f.gate)
			if !w.isSynced() {
				t.Error("policies are waited for although they are there")
			}
		})
	})
}

// Where policies may not be read, sets are kept without them. That is said once, as an error, until they may be read.
func TestPoliciesThatMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakePolicies(t, policyOf("a", "web"))
		forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion().WithResource(v1alpha1.Resource).GroupResource(), "", errors.New("no rights"))
		f.trouble.Store(forbidden)
		watching(t, f, func(w *watched) {
			if !w.isSynced() {
				t.Fatal("policies are waited for that may not be read")
			}
			w.pass(time.Hour)
			if n := w.logged("may not be read"); n != 1 {
				t.Errorf("it is said %d times", n)
			}
			if n := w.logged("no rights"); n != 1 {
				t.Errorf("the reason is said %d times", n)
			}
			f.trouble.Store(nil)
			w.pass(longestPause)
			w.expect("web")
		})
	})
}

func TestWithoutPolicies(t *testing.T) {
	i, err := NewInformers(fake.NewClientset(), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Handle(func(Key) {}); err != nil {
		t.Error(err)
	}
	o := New(i, NewWatermark(i), plan.Options{})
	if got, err := o.Policies(Key{Namespace: "default", Name: "web"}); got != nil || err != nil {
		t.Errorf("policies are %v, %v", got, err)
	}
}

func TestSnapshotHasPolicies(t *testing.T) {
	i := caches(t, set("web"), policyOf("a", "web"), policyOf("b", "db"), policyOf("c", "web"))
	s, _, err := New(i, NewWatermark(i), plan.Options{}).Look(Key{Namespace: "default", Name: "web"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "policies", s.Policies, "a", "c")
}

// What the client asks an API server, and that it understands the answer.
func TestPolicyClient(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Accept"))
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"apiVersion":"ordinal.dev/v1alpha1","kind":"StatefulSetPolicyList","items":[{"spec":{"targetRef":{"name":"web"}}}]}`)
			return
		}
		fmt.Fprint(w, `{"apiVersion":"ordinal.dev/v1alpha1","kind":"StatefulSetPolicy","status":{"observedGeneration":3}}`)
	}))
	defer server.Close()
	client, err := NewPolicyClient(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := client("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Spec.TargetRef.Name != "web" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	p, err := client("default").UpdateStatus(t.Context(), policyOf("p", "web"), metav1.UpdateOptions{})
	if err != nil || p.Status.ObservedGeneration != 3 {
		t.Errorf("the policy is %+v, %v", p, err)
	}
	want := []string{
		"GET /apis/ordinal.dev/v1alpha1/statefulsetpolicies application/json",
		"PUT /apis/ordinal.dev/v1alpha1/namespaces/default/statefulsetpolicies/p/status application/json",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked is %q, want %q", asked, want)
	}
}
