// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func newWatcher() *watcher {
	return &watcher{
		sets:   cache.NewStore(cache.MetaNamespaceKeyFunc),
		status: map[types.UID][]expectation{}, pods: map[string]expectation{}, seen: map[string][]time.Duration{},
	}
}

func setAt(generation, observed int64) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db-0000", UID: "set", Generation: generation},
		Status:     appsv1.StatefulSetStatus{ObservedGeneration: observed},
	}
}

func TestStatusAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher()
		w.expectStatus(scaled, setAt(2, 1), time.Now())
		w.expectStatus(rolled, setAt(3, 1), time.Now())
		<-time.After(time.Second)
		w.seeSet(setAt(3, 2))
		<-time.After(4 * time.Second)
		got := w.latencies(2 * time.Second)
		if l := got[scaled]; l.Count != 1 || l.Most != 1 || l.Open != 0 {
			t.Errorf("what the status told of is %+v", l)
		}
		if l := got[rolled]; l.Count != 1 || l.Most != 5 || l.Open != 1 {
			t.Errorf("what it did not tell of is %+v", l)
		}
	})
}

func TestNextPodAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher()
		pod := func(uid types.UID) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0000-0", UID: uid}}
		}
		w.expectPod(podDeleted, "db-0000-0")
		w.seePod(pod("old"))
		w.seePodGone(pod("old"))
		<-time.After(time.Second)
		w.seePod(pod("new"))
		if l := w.latencies(time.Minute)[podDeleted]; l.Count != 1 || l.Most != 1 {
			t.Errorf("it is %+v", l)
		}
	})
}

func TestBrokenPromises(t *testing.T) {
	good := func() *report {
		return &report{
			Promises: promises{MemoryRatio: 1.2, P99: time.Second, Settle: time.Minute, RestCPU: 1}, MemoryWarm: 100, MemoryEnd: 120,
			Changes: map[string]int{scaled: 5}, Latencies: map[string]latency{scaled: {Count: 5, P99: 1}}, Settle: 60, RestCPU: 1,
		}
	}
	if err := good().broken(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*report){
		"memory at the end is 1.21 ×": func(r *report) { r.MemoryEnd = 121 },
		"the p99 is 1.50 s":           func(r *report) { r.Latencies[scaled] = latency{Count: 5, P99: 1.5} },
		"not answered before the end": func(r *report) { r.Latencies[scaled] = latency{Count: 5, Open: 1} },
		"answered none of 5":          func(r *report) { clear(r.Latencies) },
		"only 61.0 s after":           func(r *report) { r.Settle = 61 },
		"at rest it uses 1.10 %":      func(r *report) { r.RestCPU = 1.1 },
	} {
		r := good()
		change(r)
		if err := r.broken(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestEnds(t *testing.T) {
	values := make([]uint64, 100)
	for n := range values {
		values[n] = uint64(n)
	}
	if first, last := ends(values); first != 5 || last != 95 {
		t.Errorf("they are %d and %d", first, last)
	}
}

func TestSummarize(t *testing.T) {
	var times []time.Duration
	for n := range 1000 {
		times = append(times, time.Duration(n)*time.Second)
	}
	if l := summarize(times); l.Count != 1000 || l.Median != 500 || l.P99 != 990 || l.Most != 999 {
		t.Errorf("they are %+v", l)
	}
}

// Each change changes something, and all kinds come.
func TestNext(t *testing.T) {
	f := newFleet(nil, nil, rand.New(rand.NewPCG(1, 0)), 10, 5)
	for range 500 {
		before := f.wanted()
		next := f.next()
		if next.set == "" {
			t.Fatal("no set is free")
		}
		if (next.size != before[next.set]) != (next.kind == scaled) || next.size < 1 || next.size > 8 {
			t.Errorf("%+v of a set of %d", next, before[next.set])
		}
		delete(f.busy, next.set)
	}
	for _, kind := range []string{scaled, rolled, podDeleted, setDeleted} {
		if f.done[kind] == 0 {
			t.Errorf("%s never came", kind)
		}
	}
}
