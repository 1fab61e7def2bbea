// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// Fifty sets run, and controllers change under them, twice in each direction: no pod, claim or revision becomes another.
func TestNothingChangesWhenControllersDo(t *testing.T) {
	runKubelet(t)
	manage(t, true)
	f := newFleet(t)
	f.launch(5)
	f.probe(builtIn)
	before := f.look()
	if pods := count(before, "pod "); len(f.kinds)-1 != 50 || pods != 150 {
		t.Fatalf("%d sets have %d pods", len(f.kinds)-1, pods)
	}
	for n := range 2 {
		manage(t, false)
		f.orphan()
		control(t)
		f.probe(telemetry.Manager)
		f.same(fmt.Sprintf("with Ordinal, round %d", n), before)

		stopOurs(t)
		f.orphan()
		manage(t, true)
		f.probe(builtIn)
		f.same(fmt.Sprintf("with the built-in controller, round %d", n), before)
	}
}

func count(s state, prefix string) int {
	n := 0
	for what := range s {
		if strings.HasPrefix(what, prefix) {
			n++
		}
	}
	return n
}

// lives records which pods there were of each name, from now on until the test ends.
func (f *fleet) lives(ctx context.Context) func() map[string]map[types.UID]string {
	f.t.Helper()
	lives := map[string]map[types.UID]string{}
	stream, err := env.client.CoreV1().Pods(f.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range stream.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok || e.Type == watch.Error {
				return
			}
			if lives[pod.Name] == nil {
				lives[pod.Name] = map[types.UID]string{}
			}
			lives[pod.Name][pod.UID] = madeBy(pod)
		}
	}()
	return func() map[string]map[types.UID]string {
		stream.Stop()
		<-ended
		return lives
	}
}

// madeBy is which client made a pod.
func madeBy(pod *corev1.Pod) string {
	for _, m := range pod.ManagedFields {
		if m.Subresource == "" && strings.Contains(m.FieldsV1.String(), `"f:spec"`) {
			return m.Manager
		}
	}
	return ""
}

// A rollout goes on under the next controller where the one before has left it: each pod is replaced once.
func TestRolloutGoesOnUnderTheOther(t *testing.T) {
	runKubelet(t)
	manage(t, true)
	f := newFleet(t)
	slow := kind{name: "slow", ready: 3, updated: 3, set: func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 3 }}
	f.add("slow", slow)
	f.settled(asWanted)
	for _, swap := range []struct {
		image string
		to    func()
	}{
		{secondImage, func() {
			manage(t, false)
			control(t)
		}},
		{firstImage, func() {
			stopOurs(t)
			manage(t, true)
		}},
	} {
		lives := f.lives(t.Context())
		f.patch("slow", template(swap.image))
		poll(t, "the rollout has begun", func(ctx context.Context) string {
			set, err := env.client.AppsV1().StatefulSets(f.namespace).Get(ctx, "slow", metav1.GetOptions{})
			return unless(err == nil && set.Status.ObservedGeneration == set.Generation && set.Status.UpdatedReplicas == 1, "it has not")
		})
		swap.to()
		f.settled(asWanted)
		makers := map[string]bool{}
		for name, pods := range lives() {
			if len(pods) != 2 {
				t.Errorf("with %s, of %s there were the pods %v", swap.image, name, pods)
			}
			for _, by := range pods {
				makers[by] = true
			}
		}
		if !makers[builtIn] || !makers[telemetry.Manager] {
			t.Errorf("with %s, pods were made by %v alone", swap.image, makers)
		}
	}
}

// retemplate begins a rollout of each set that comes to an end.
func (f *fleet) retemplate(image string) {
	f.t.Helper()
	for name, k := range f.kinds {
		if k.updated == 3 {
			f.patch(name, template(image))
		}
	}
}

// When both are on, ours stops and says so, and leaves all to the other, which is not harmed.
func TestBothAtOnce(t *testing.T) {
	runKubelet(t)
	manage(t, false)
	f := newFleet(t)
	o := control(t)
	f.launch(1)
	claims := state{}
	for what, is := range f.look() {
		if strings.HasPrefix(what, "claim ") {
			claims[what] = is
		}
	}
	if o.yields(t) {
		t.Fatal("it stops though it works alone")
	}
	manage(t, true)
	// All of its controllers are started by now.
	newFleet(t)
	if o.yields(t) {
		t.Error("it stops though the other only looks on")
	}
	lives := f.lives(t.Context())
	f.retemplate("ordinal.invalid/model:3")
	poll(t, "ours stops", func(context.Context) string { return unless(o.yields(t), "it works") })
	f.settled(asWanted)
	before := lives()
	for name, pods := range before {
		// Two that delete a pod at once may delete its successor, which is why they must not go on together.
		if len(pods) > 3 {
			t.Errorf("of %s there were %v", name, pods)
		}
		if len(pods) > 2 {
			t.Log(name, pods)
		}
	}
	now := f.look()
	for what, is := range claims {
		if now[what] != is {
			t.Errorf("%s is %s, and was %s", what, now[what], is)
		}
	}
	poll(t, "an event tells of it", func(ctx context.Context) string {
		events, err := env.client.CoreV1().Events(f.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + telemetry.EventOtherController})
		return unless(err == nil && len(events.Items) > 0 && strings.Contains(events.Items[0].Message, builtIn), fmt.Sprint("there is none: ", err))
	})

	// From now on all is the other's.
	lives = f.lives(t.Context())
	f.retemplate(firstImage)
	f.settled(asWanted)
	for name, pods := range lives() {
		for uid, by := range pods {
			if _, known := before[name][uid]; !known && by != builtIn {
				t.Errorf("%s was made by %s while it is stopped", name, by)
			}
		}
	}
	if !o.yields(t) {
		t.Error("it works again although the other does")
	}
}
