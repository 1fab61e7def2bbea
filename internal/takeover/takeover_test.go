// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

func TestIsOn(t *testing.T) {
	for flag, want := range map[string]bool{
		"": true, "*": true, "*,-statefulset-controller": false, "*,-statefulset": false, "-statefulset-controller,*": false,
		"*,bootstrapsigner,tokencleaner": true, "garbage-collector-controller": false, "statefulset-controller": true,
		"statefulset-controller,-statefulset-controller": true, "*,-statefulset-controller-x": true,
	} {
		if got := isOn(flag); got != want {
			t.Errorf("with --controllers=%s it is on: %t", flag, got)
		}
	}
}

// pod is one of kube-system that runs those words.
func pod(name string, command []string, args ...string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Command: command, Args: args}}},
	}
}

func TestManagers(t *testing.T) {
	got := managersOf([]corev1.Pod{
		pod("dns", []string{"/coredns"}, "--controllers=*"),
		pod("a", []string{"kube-controller-manager", "--controllers=*,-statefulset-controller"}),
		pod("b", []string{"/usr/local/bin/kube-controller-manager"}, "--v=2", "--controllers", "*"),
		pod("c", nil, "/kube-controller-manager", "--controllers"),
	})
	want := []manager{{"a", "*,-statefulset-controller", false}, {"b", "*", true}, {"c", "", true}}
	if !slices.Equal(got, want) {
		t.Errorf("they are %+v, want %+v", got, want)
	}
}

func TestWhoIsOn(t *testing.T) {
	now := time.Unix(10_000, 0)
	foreign := func(ago time.Duration) *statusWrite {
		return &statusWrite{"default/web", "kube-controller-manager", now.Add(-ago)}
	}
	did := func(managers ...string) map[string][]string {
		all := map[string][]string{}
		for _, m := range managers {
			all[m] = []string{"wrote its status"}
		}
		return all
	}
	on, off := manager{pod: "a", on: true}, manager{pod: "b", controllers: "*,-statefulset-controller"}
	for name, test := range map[string]struct {
		past past
		seen sighting
		want State
	}{
		"it reacts":                            {past{}, sighting{ran: true, did: did("k3s")}, On},
		"only ours reacts":                     {past{}, sighting{ran: true, alive: true, did: did("ordinal-controller", "ordinal-events")}, Off},
		"nobody reacts":                        {past{foreign: foreign(time.Second)}, sighting{ran: true, alive: true}, Off},
		"nothing at all does":                  {past{managers: []manager{off}}, sighting{ran: true}, Unknown},
		"another of several still has it":      {past{managers: []manager{off, on, off}}, sighting{ran: true, alive: true}, On},
		"no canary, off by flag":               {past{managers: []manager{off}}, sighting{}, Off},
		"no canary, on by flag":                {past{managers: []manager{on}}, sighting{}, On},
		"no canary, a write of just now":       {past{foreign: foreign(time.Minute)}, sighting{}, On},
		"no canary, a write of the day before": {past{foreign: foreign(24 * time.Hour)}, sighting{}, Unknown},
		"nothing is known":                     {past{}, sighting{}, Unknown},
	} {
		test.past.now = now
		if got := test.past.builtIn(&test.seen); got.State != test.want {
			t.Errorf("%s: it is %s, want %s", name, got.State, test.want)
		}
	}
	held := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("host"), RenewTime: new(metav1.NewMicroTime(now.Add(-time.Second))),
	}}
	late := held.DeepCopy()
	late.Spec.RenewTime.Time = now.Add(-time.Hour)
	for name, test := range map[string]struct {
		lease *coordinationv1.Lease
		known bool
		seen  sighting
		want  State
	}{
		"it leads":          {held, true, sighting{ran: true}, On},
		"nobody leads":      {late, true, sighting{}, Off},
		"no lease":          {nil, true, sighting{}, Off},
		"leases are unseen": {nil, false, sighting{}, Unknown},
		"it reacts":         {nil, true, sighting{ran: true, did: did("ordinal-controller")}, On},
	} {
		p := past{now: now, leases: map[string]*coordinationv1.Lease{ourLease: test.lease}, leasesKnown: test.known}
		if got := p.ordinal(&test.seen); got.State != test.want {
			t.Errorf("%s: it is %s, want %s", name, got.State, test.want)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		builtIn, ordinal State
		changes          int
		known            bool
		want             Verdict
	}{
		{On, On, 0, true, Both},
		{On, Off, 0, true, NotYet},
		{On, Unknown, 1, true, NotYet},
		{Unknown, On, 0, true, Undecided},
		{Off, On, 0, false, Undecided},
		{Off, Off, 1, true, Changes},
		{Off, On, 0, true, Ready},
	} {
		r := Report{BuiltIn: Controller{State: test.builtIn}, Ordinal: Controller{State: test.ordinal}}
		r.Sets.Changes = make([]Set, test.changes)
		if r.judge(test.known); r.Verdict != test.want || r.Text == "" {
			t.Errorf("%+v: the verdict is %s (%s)", test, r.Verdict, r.Text)
		}
	}
}

// running is a world at rest in which a set of three runs.
func running(t *testing.T, changes ...func(*appsv1.StatefulSet)) *sim.World {
	t.Helper()
	w := sim.New(sim.NewSet("web", 3, changes...))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	return w
}

func outlookIn(w *sim.World) Sets {
	all := noSets()
	all.add(w.Snapshot())
	return all
}

func TestOutlook(t *testing.T) {
	w := running(t)
	if got := outlookIn(w); got.Same != 1 || got.Total != 1 || len(got.Notes) != 0 {
		t.Errorf("of a set at rest it tells %+v", got)
	}
	// Any controller would make the pod.
	w.Kill("web-1")
	w.Kubelet()
	if got := outlookIn(w); len(got.UnderWay) != 1 || len(got.Changes) != 0 || got.Same != 0 {
		t.Errorf("of a set without a pod it tells %+v", got)
	}
	// The template is new, and was not seen by the controller before.
	w = running(t)
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "two" })
	if got := outlookIn(w); len(got.UnderWay) != 1 || len(got.Changes) != 0 {
		t.Errorf("of a new template it tells %+v", got)
	}
	// It is said to have been seen, and ours would record it otherwise: all pods would be replaced.
	w.Set.Status.ObservedGeneration = w.Set.Generation
	got := outlookIn(w)
	if len(got.Changes) != 1 || !strings.Contains(strings.Join(got.Changes[0].Told, "\n"), "web-2") {
		t.Errorf("of a template that is recorded otherwise it tells %+v", got)
	}
	// Labels that only ours gives to old pods.
	w = running(t)
	w.Change("web-0", func(p *corev1.Pod) { delete(p.Labels, appsv1.PodIndexLabel) })
	if got := outlookIn(w); len(got.Changes) != 1 {
		t.Errorf("of a pod without its label it tells %+v", got)
	}
}

func TestNotes(t *testing.T) {
	w := running(t, func(s *appsv1.StatefulSet) {
		s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
		s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType}
	})
	s := w.Snapshot()
	s.Rivals = []claim.Rival{{Set: sim.NewSet("other", 1), Template: "data"}}
	if got := notes(s); len(got) != 2 || !strings.Contains(got[0], "Parallel") || !strings.Contains(got[1], "other") {
		t.Errorf("notes are %q", got)
	}
	w = running(t, func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.RecreateStatefulSetStrategyType })
	s = w.Snapshot()
	s.Options.Recreate = false
	if got := notes(s); len(got) != 1 || !strings.Contains(got[0], "--recreate-strategy") {
		t.Errorf("notes are %q", got)
	}
}

// server is a fake API server that allows everything but the verbs on resources that are named.
func server(denied ...string) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := &authorizationv1.SelfSubjectAccessReview{}
		if create, ok := a.(clienttesting.CreateAction); ok {
			review, _ = create.GetObject().(*authorizationv1.SelfSubjectAccessReview)
		}
		asked := review.Spec.ResourceAttributes
		review = review.DeepCopy()
		review.Status.Allowed = !slices.Contains(denied, asked.Verb+" "+asked.Resource)
		return true, review, nil
	})
	return client
}

// A cluster may refuse the canary, by a policy or for want of rights; all else is looked at all the same, and nothing is left.
func TestCanaryIsRefused(t *testing.T) {
	refused := server()
	refused.PrependReactor("create", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(appsv1.Resource("statefulsets"), "canary", errors.New("no canaries here"))
	})
	for name, test := range map[string]struct {
		client *fake.Clientset
		words  string
	}{
		"by a policy": {refused, "no canaries here"},
		"by rights":   {server("create namespaces"), "rights are missing"},
	} {
		r, err := Check(t.Context(), Question{Client: test.client, Now: time.Now, Wait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict != Undecided || !strings.Contains(strings.Join(r.BuiltIn.Evidence, "\n"), test.words) {
			t.Errorf("%s: the report is %+v", name, r)
		}
		list, err := test.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			t.Errorf("%s: left are %v, %v", name, list.Items, err)
		}
	}
}

// A canary that could not be removed is told of.
func TestCanaryIsLeft(t *testing.T) {
	client := server()
	client.PrependReactor("delete", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no")
	})
	ctx, cancel := context.WithCancel(t.Context())
	client.PrependReactor("create", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return false, nil, nil
	})
	_, err := Check(ctx, Question{Client: client, Now: time.Now, Wait: time.Minute})
	if !errors.Is(err, ErrCanaryLeft) || !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
}

// Nothing is written without a canary.
func TestNoCanary(t *testing.T) {
	client := server()
	if _, err := Check(t.Context(), Question{Client: client, Now: time.Now, NoCanary: true}); err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "list" && a.GetVerb() != "get" && a.GetResource().Resource != "selfsubjectaccessreviews" {
			t.Errorf("it does %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// A report keeps within the width of a terminal.
func TestReportIsNarrow(t *testing.T) {
	long := strings.Repeat("a-word-of-many ", 12)
	set := Set{"default", "web", []string{long, "b", "c", "d", "e", "f", "g", "h"}}
	r := Report{
		Verdict: NotYet, Text: "the " + long, BuiltIn: Controller{On, []string{long}}, Ordinal: Controller{Off, nil},
		Sets:    Sets{Total: 2, Namespaces: 1, Changes: []Set{set}, UnderWay: []Set{set}, Notes: []Set{set}},
		Missing: []Right{{"list", "pods", "", forSets}, {"get", "leases", "kube-system", forLeases}},
	}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(b.String()) {
		if len(text) > width+1 {
			t.Errorf("a line of %d characters: %s", len(text)-1, text)
		}
	}
	for _, words := range []string{"Verdict: not yet. The a-word", "default/web", "and 2 more", "get leases in namespace kube-system, to see who leads", "1 namespace,"} {
		if !strings.Contains(b.String(), words) {
			t.Errorf("%q is not said:\n%s", words, b.String())
		}
	}
}
