// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a watch can tell of a pod.
const (
	created  = "created"
	ready    = "ready"
	unready  = "unready"
	deleting = "deleting"
	gone     = "gone"
)

// chapter is one turn in a pod's life, and when the watch told it.
type chapter struct {
	pod, turn string
	address   string
	at        time.Time
}

func (c chapter) String() string { return c.pod + " " + c.turn }

// story is the lives of pods as one watch tells them: the API server gives the changes in the order in which they were made,
// so the order of chapters is the order of the world.
type story struct {
	*testing.T
	mu       sync.Mutex
	chapters []chapter
	last     map[types.UID]corev1.Pod
}

// watchPods starts a story of the pods with the label of the walk-through. It misses nothing that happens after it returns.
func (s *space) watchPods() *story {
	s.Helper()
	story := &story{T: s.T, last: map[types.UID]corev1.Pod{}}
	// The log level makes kubectl tell when the API server has accepted the watch.
	cmd := s.command("get", "pods", "-l", "app=my-app", "--watch", "--output-watch-events", "-o", "json", "-v=6")
	events, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	messages, err := cmd.StderrPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	watching := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() { story.read(json.NewDecoder(events)) })
	readers.Go(func() {
		accepted := sync.OnceFunc(func() { close(watching) })
		_ = lines(messages, func(line string) { // ends with the process
			if strings.Contains(line, "watch=true") && strings.Contains(line, "200 OK") {
				accepted()
			}
		})
	})
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		readers.Wait()
		_ = cmd.Wait()
		if s.Failed() {
			s.Logf("the story of the pods:\n%s", story)
		}
	})
	select {
	case <-watching:
	case <-time.After(patience):
		s.Fatal("the watch was not accepted")
	}
	pods := s.pods()
	s.eventually(patience, "the story knows the pods that are there already", func() error { return story.knows(pods) })
	return story
}

// knows is nil once the story has come to all these pods.
func (s *story) knows(pods map[string]corev1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, pod := range pods {
		if _, known := s.last[pod.UID]; !known {
			return fmt.Errorf("it does not know %s", name)
		}
	}
	return nil
}

// read takes the watch's events until it ends.
func (s *story) read(events *json.Decoder) {
	for {
		var event struct {
			Type   string
			Object corev1.Pod
		}
		if err := events.Decode(&event); err != nil {
			return
		}
		s.tell(time.Now(), event.Type, event.Object)
	}
}

// tell turns one event into the chapters that are new in it.
func (s *story) tell(at time.Time, event string, pod corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.last[pod.UID]
	turn := func(happened bool, turn string) {
		if happened {
			s.chapters = append(s.chapters, chapter{pod: pod.Name, turn: turn, address: pod.Status.PodIP, at: at})
		}
	}
	terminating := pod.DeletionTimestamp != nil
	turn(!known, created)
	turn(isReady(&pod) && !isReady(&before), ready)
	turn(!isReady(&pod) && isReady(&before) && !terminating, unready)
	turn(terminating && before.DeletionTimestamp == nil, deleting)
	turn(event == "DELETED", gone)
	s.last[pod.UID] = pod
}

// since gives the chapters from the n-th on, and how many there are now.
func (s *story) since(n int) ([]chapter, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.chapters[n:]), len(s.chapters)
}

// now is how many chapters there are.
func (s *story) now() int {
	_, n := s.since(0)
	return n
}

func (s *story) String() string {
	all, _ := s.since(0)
	var text strings.Builder
	for _, c := range all {
		fmt.Fprintf(&text, "  %s %s\n", c.at.Format("15:04:05.000"), c)
	}
	return text.String()
}

// expect waits until the story has gone on from the n-th chapter by exactly these chapters in this order.
func (s *story) expect(n int, want ...string) {
	s.Helper()
	eventually(s.T, patience, "the story goes on by "+strings.Join(want, ", "), func() error {
		var got []string
		all, _ := s.since(n)
		for _, c := range all {
			got = append(got, c.String())
		}
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			s.Fatalf("the story went\n  %s\nbut should have gone\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		if len(got) < len(want) {
			return fmt.Errorf("it has only come to %v", got)
		}
		return nil
	})
}

// await waits for a chapter after the n-th and gives it.
func (s *story) await(n int, pod, turn string) chapter {
	s.Helper()
	var found chapter
	eventually(s.T, patience, pod+" "+turn, func() error {
		all, _ := s.since(n)
		i := slices.IndexFunc(all, func(c chapter) bool { return c.pod == pod && c.turn == turn })
		if i < 0 {
			return fmt.Errorf("so far: %v", all)
		}
		found = all[i]
		return nil
	})
	return found
}

// inOrder is the story of a set whose pods of these ordinals are created one after the other, each when its predecessor is ready.
func inOrder(ordinals ...int) []string {
	var want []string
	for _, i := range ordinals {
		want = append(want, fmt.Sprintf("web-%d created", i), fmt.Sprintf("web-%d ready", i))
	}
	return want
}

// deletedInOrder is the story of pods of these ordinals that go one after the other.
func deletedInOrder(ordinals ...int) []string {
	var want []string
	for _, i := range ordinals {
		want = append(want, fmt.Sprintf("web-%d deleting", i), fmt.Sprintf("web-%d gone", i))
	}
	return want
}

// replacedInOrder is the story of a rolling update of these ordinals.
func replacedInOrder(ordinals ...int) []string {
	var want []string
	for _, i := range ordinals {
		want = append(append(want, deletedInOrder(i)...), inOrder(i)...)
	}
	return want
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
