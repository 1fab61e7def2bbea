// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/ordinal-dev/ordinal/internal/observe"
)

// slowClient is a client whose creations of pods take as long as a function takes.
type slowClient struct {
	*fake.Clientset
	create func(context.Context, *corev1.Pod) error
}

func (s slowClient) CoreV1() typedcorev1.CoreV1Interface { return slowCore{s.Clientset.CoreV1(), s} }

type slowCore struct {
	typedcorev1.CoreV1Interface
	client slowClient
}

func (s slowCore) Pods(namespace string) typedcorev1.PodInterface {
	return slowPods{s.CoreV1Interface.Pods(namespace), s.client}
}

type slowPods struct {
	typedcorev1.PodInterface
	client slowClient
}

func (s slowPods) Create(ctx context.Context, pod *corev1.Pod, o metav1.CreateOptions) (*corev1.Pod, error) {
	if err := s.client.create(ctx, pod); err != nil {
		return nil, err
	}
	return s.PodInterface.Create(ctx, pod, o)
}

// Sets whose pods are refused only after half a minute, and more of them than there are workers, delay no other set, neither
// one that comes after them nor one that has always been there.
func TestHangingWritesDelayNoOtherSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		hanging := make(chan struct{}, 1000)
		c.api = slowClient{c.client, func(ctx context.Context, pod *corev1.Pod) error {
			if pod.Labels["app"] != "slow" {
				return nil
			}
			hanging <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}}
		defer c.run(Options{Workers: 2})()
		c.create(setsResource, newSet())
		settle()
		for n := range 20 {
			c.create(setsResource, newSet(func(s *appsv1.StatefulSet) {
				s.Name = fmt.Sprint("slow", n)
				s.Spec.Selector.MatchLabels = map[string]string{"app": "slow"}
				s.Spec.Template.Labels = map[string]string{"app": "slow"}
			}))
		}
		pass(10 * time.Millisecond)
		if n := len(hanging); n != 2 {
			t.Errorf("%d sets hang, want one for each worker", n)
		}
		c.create(setsResource, newSet(func(s *appsv1.StatefulSet) { s.Name, s.Spec.Replicas = "db", new(int32(1)) }))
		c.kill("web-1")
		pass(11 * patience)
		if n := len(hanging); n != 20 {
			t.Errorf("%d sets hang, want all", n)
		}
		if p := c.pod("db-0"); time.Since(p.CreationTimestamp.Time) < patience/2 {
			t.Errorf("db-0 is made after %v", p.CreationTimestamp)
		}
		c.kill("web-2")
		pass(grace + time.Second)
		if p := c.pod("web-2"); p.DeletionTimestamp != nil {
			t.Error("web-2 does not come back while others hang")
		}
	})
}

// gang is a crew that has one piece of work after the other, each of which hangs until it is let go.
type gang struct {
	crew
	busy, late atomic.Int32
	// next gives the set to work on.
	next          func() observe.Key
	stop, release chan struct{}
}

func newGang(size int, next func() observe.Key) *gang {
	g := &gang{next: next, stop: make(chan struct{}), release: make(chan struct{})}
	g.size = size
	g.work = func() {
		for g.workOnce() {
		}
	}
	return g
}

func (g *gang) workOnce() bool {
	select {
	case <-g.stop:
		return false
	default:
	}
	switch g.do(g.next(), g.hang) {
	case leaves:
		return false
	case postponed:
		g.late.Add(1)
		<-g.stop
	case stays:
	}
	return true
}

func (g *gang) hang() {
	g.busy.Add(1)
	defer g.busy.Add(-1)
	<-g.release
}

func (g *gang) letGo(n int) {
	for range n {
		g.release <- struct{}{}
	}
}

func (g *gang) expect(t *testing.T, when string, want int) {
	t.Helper()
	synctest.Wait()
	if got := int(g.busy.Load()); got != want {
		t.Errorf("%s %d work, want %d", when, got, want)
	}
}

func (g *gang) end() {
	close(g.stop)
	close(g.release)
	g.wait()
}

// Who is slow is relieved, but not for ever more; and when all is well again, no more are left than there were.
func TestReliefIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sets atomic.Int32
		g := newGang(2, func() observe.Key { return observe.Key{Name: fmt.Sprint("set", sets.Add(1))} })
		g.start()
		g.expect(t, "at first", 2)
		<-time.After(patience - time.Millisecond)
		g.expect(t, "before anybody loses patience", 2)
		<-time.After(time.Millisecond)
		g.expect(t, "then", 4)
		<-time.After(time.Hour)
		g.expect(t, "at most", 2+maxRelief)
		// Those who are let go are the ones that have been relieved, and the others, who begin anew.
		g.letGo(2 + 2*maxRelief)
		g.expect(t, "in the end", 2)
		if n := g.relieved.Load(); n != 0 {
			t.Errorf("%d count as relieved", n)
		}
		g.end()
	})
}

// However many are slow for the first time, who comes after them does not wait for each of them.
func TestPatienceIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sets atomic.Int32
		g := newGang(5, func() observe.Key { return observe.Key{Name: fmt.Sprint("set", sets.Add(1))} })
		g.start()
		<-time.After(3 * patience)
		synctest.Wait()
		if n := sets.Load(); n <= 40 {
			t.Errorf("after %v, only %d sets had their turn", 3*patience, n)
		}
		g.end()
	})
}

// Work that was slow is held to be slow until it was not, and nobody waits for it; nor is it begun by the last who could do
// something else.
func TestSlowSetsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGang(1, func() observe.Key { return observe.Key{Name: "slow"} })
		g.start()
		<-time.After(patience)
		g.expect(t, "when the first is relieved, with the second at it too,", 2)
		g.letGo(1)
		g.expect(t, "when that one is done", 1)
		// The set is known to be slow now. So whoever begins with it when the second is relieved is relieved at once too.
		<-time.After(patience)
		g.expect(t, "at most", maxRelief)
		if g.late.Load() != 1 {
			t.Errorf("%d are free for other work, want 1", g.late.Load())
		}
		g.letGo(1)
		synctest.Wait()
		if !g.slow[observe.Key{Name: "slow"}] {
			t.Error("what was slow again is forgotten")
		}
		// This one has only just begun.
		g.letGo(1)
		g.expect(t, "in the end", maxRelief-2)
		if g.slow[observe.Key{Name: "slow"}] {
			t.Error("what was done in time is slow")
		}
		g.end()
	})
}
