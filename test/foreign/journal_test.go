// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// journal is what became of the pods of the sets: every pod that there was, and what went wrong on the way.
type journal struct {
	mu     sync.Mutex
	pods   map[string]*story // by name
	budget bool              // whether at most one pod of each set may be down
	broken []string
}

// story is all that bore one pod's name.
type story struct {
	set   string
	lives []life // in the order in which they came
}

type life struct {
	uid      types.UID
	revision string
	node     string
	gone     bool
	ready    bool
}

// watchPods keeps a journal of the sets' pods until the test ends.
func (p *plane) watchPods(t *testing.T) *journal {
	t.Helper()
	j := &journal{pods: map[string]*story{}}
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: j.note, UpdateFunc: func(_, pod any) { j.note(pod) }, DeleteFunc: j.noteGone,
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(t.Context())
	t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the pods cannot be watched")
	}
	return j
}

// note records a pod as it is.
func (j *journal) note(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Labels["app"] == "" {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.pods[pod.Name]
	if s == nil {
		s = &story{set: pod.Labels["app"]}
		j.pods[pod.Name] = s
	}
	if len(s.lives) == 0 || s.last().uid != pod.UID {
		s.lives = append(s.lives, life{uid: pod.UID, revision: pod.Labels[appsv1.ControllerRevisionHashLabelKey]})
	}
	s.last().node = pod.Spec.NodeName
	s.last().ready = podstate.IsReady(pod) && pod.DeletionTimestamp == nil
	j.check(s.set)
}

// noteGone records that a pod is gone.
func (j *journal) noteGone(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.pods[pod.Name]; s != nil && s.last().uid == pod.UID {
		s.last().gone, s.last().ready = true, false
		j.check(s.set)
	}
}

func (s *story) last() *life { return &s.lives[len(s.lives)-1] }

// check looks whether more pods of a set are down than may be.
func (j *journal) check(set string) {
	if !j.budget {
		return
	}
	var down []string
	for _, name := range slices.Sorted(maps.Keys(j.pods)) {
		if s := j.pods[name]; s.set == set && !s.last().ready {
			down = append(down, name)
		}
	}
	if len(down) > 1 {
		j.broken = append(j.broken, "down at once: "+strings.Join(down, ", "))
	}
}

// mindBudget sets whether at most one pod of each set may be down from now on.
func (j *journal) mindBudget(yes bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.budget = yes
}

// counts gives how many pods have borne each name so far.
func (j *journal) counts() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	counts := map[string]int{}
	for name, s := range j.pods {
		counts[name] = len(s.lives)
	}
	return counts
}

// replaced gives how many pods have come since the names were counted.
func (j *journal) replaced(since map[string]int) int {
	sum := 0
	for name, count := range j.counts() {
		sum += count - since[name]
	}
	return sum
}

// mustHaveGrown checks that as many pods have borne each name since the names were counted as a rule says, and that never more were
// down than may be.
func (j *journal) mustHaveGrown(t *testing.T, since map[string]int, by func(pod string) int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(j.pods)) {
		lives := j.pods[name].lives
		if got, want := len(lives)-since[name], by(name); got != want {
			t.Errorf("%s was made %d times, and should have been %d times: %s", name, got, want, describe(lives))
		}
	}
	for _, fault := range j.broken {
		t.Error(fault)
	}
}

func describe(lives []life) string {
	parts := make([]string, 0, len(lives))
	for _, l := range lives {
		parts = append(parts, fmt.Sprintf("%s at %s on %s", l.uid, l.revision, l.node))
	}
	return strings.Join(parts, ", then ")
}

// always is a rule that says the same of every pod.
func always(times int) func(string) int { return func(string) int { return times } }
