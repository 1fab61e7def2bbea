// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/why"
)

// cluster holds what is in a scene.
func (s *scene) cluster(extra ...runtime.Object) *fake.Clientset {
	objects := append([]runtime.Object{s.Set}, extra...)
	for _, p := range s.Pods {
		objects = append(objects, p)
	}
	for _, r := range s.Revisions {
		objects = append(objects, r)
	}
	for _, c := range s.Claims {
		objects = append(objects, c)
	}
	return fake.NewClientset(objects...)
}

func (s *scene) question(client *fake.Clientset) why.Question {
	return why.Question{
		Client: client, Key: observe.Key{Namespace: "default", Name: "web"}, Now: s.Now.Add(s.later), Tools: s.facts.Tools,
	}
}

func eventOf(kind, name, reason, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: kind + name + reason},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "default", Name: name}, Reason: reason, Message: message,
	}
}

// crashing is a set whose second pod keeps ending, and what is said about it.
func crashing(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, 2)
	s.stops(sim.Unready)
	s.of("web-1", func(c *corev1.ContainerStatus) {
		c.RestartCount = 3
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.Time{Time: s.Now}}
	})
	return s
}

func TestRead(t *testing.T) {
	s := crashing(t)
	f, err := why.Read(t.Context(), s.question(s.cluster(
		eventOf("StatefulSet", "web", "SuccessfulCreate", "one"),
		eventOf("Pod", "web-1", "BackOff", "two"),
		eventOf("Pod", "web-0", "Pulled", "of a pod that fares well"),
		eventOf("PersistentVolumeClaim", "data-web-1", "Provisioning", "three"),
		eventOf("PersistentVolumeClaim", "data-web-0", "Provisioning", "of a pod that fares well"),
	)))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, e := range f.Events {
		seen[e.Message]++
	}
	if len(f.Events) != 3 || seen["one"] != 1 || seen["two"] != 1 || seen["three"] != 1 {
		t.Errorf("the events are %v, want one, two and three", seen)
	}
	// It is what the fake clientset has for a log.
	if got := f.Logs[why.Container{Pod: "web-1", Name: "main"}]; len(got) != 1 || got[0] != "fake logs" {
		t.Errorf("the log is %q", got)
	}
	if f.Actor != why.Unknown || f.Snapshot.Options.Strict {
		t.Errorf("the controller is %q, strict %t; nothing tells who it is", f.Actor, f.Snapshot.Options.Strict)
	}
	if r := why.Of(f); r.State != why.Stuck || len(r.Waits) == 0 || r.Waits[0].Object != "pod web-1" {
		t.Errorf("it is %s and waits for %+v, want it stuck at pod web-1", r.State, r.Waits)
	}
}

// Where kube-controller-manager decides, its rules are told, and policies are not asked for.
func TestReadOfTheIncumbent(t *testing.T) {
	s := newScene(t, 2)
	s.stops(sim.Stuck)
	s.Set.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Subresource: "status", Time: &metav1.Time{Time: s.Now}}}
	q := s.question(s.cluster())
	q.Policies = func(string) observe.PolicyAPI {
		t.Error("policies are asked for")
		return nil
	}
	f, err := why.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if f.Actor != why.Incumbent || !f.Snapshot.Options.Strict {
		t.Errorf("the controller is %q, strict %t", f.Actor, f.Snapshot.Options.Strict)
	}
}

// A person may be allowed to see sets and pods, and no events or logs.
func TestReadWithoutPermission(t *testing.T) {
	s := crashing(t)
	client := s.cluster()
	forbidden := apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("not for you"))
	client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
	f, err := why.Read(t.Context(), s.question(client))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := why.Of(f).Print(&out, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "The events could not be read") {
		t.Errorf("it does not tell that events are missing:\n%s", out.String())
	}

	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
	if _, err := why.Read(t.Context(), s.question(client)); !apierrors.IsForbidden(err) {
		t.Errorf("without pods it ends with %v", err)
	}
}

func TestReadOfNoSet(t *testing.T) {
	q := newScene(t, 1).question(fake.NewClientset())
	if _, err := why.Read(t.Context(), q); !apierrors.IsNotFound(err) {
		t.Errorf("it ends with %v", err)
	}
}

// Budgets are read only where they may be in the way.
func TestReadOfBudgets(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
	s := newScene(t, 2)
	s.settle()
	s.Edit(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = "two" })
	s.later = time.Second
	f, err := why.Read(t.Context(), s.question(s.cluster(budget)))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Budgets) != 0 {
		t.Errorf("%d budgets are read though nothing is evicted", len(f.Budgets))
	}
}

// Colours are for the headline of what is well and of what is not.
func TestColours(t *testing.T) {
	for state, want := range map[why.State]string{
		why.Up: "\x1b[32mso\x1b[0m\n", why.Stuck: "\x1b[31mso\x1b[0m\n", why.Progressing: "so\n",
	} {
		var out bytes.Buffer
		if err := (why.Report{State: state, Headline: "so"}).Print(&out, true); err != nil || out.String() != want {
			t.Errorf("%s is printed as %q (%v), want %q", state, out.String(), err, want)
		}
	}
}
