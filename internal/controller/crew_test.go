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

// crewOf counts how many do a job at once that hangs until it is let go.
func crewOf(size int) (c *crew, busy *atomic.Int32, stop, release chan struct{}) {
	busy, stop, release = &atomic.Int32{}, make(chan struct{}), make(chan struct{})
	c = &crew{size: size}
	job := func() {
		busy.Add(1)
		defer busy.Add(-1)
		<-release
	}
	c.work = func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if !c.do(job) {
				return
			}
		}
	}
	return c, busy, stop, release
}

// Who is slow is relieved, but not for ever more; and when all is well again, no more are left than there were.
func TestReliefIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, busy, stop, release := crewOf(2)
		c.start()
		expect := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if got := int(busy.Load()); got != want {
				t.Errorf("%s %d work, want %d", when, got, want)
			}
		}
		expect("at first", 2)
		<-time.After(patience - time.Millisecond)
		expect("before anybody loses patience", 2)
		<-time.After(time.Millisecond)
		expect("then", 4)
		<-time.After(time.Hour)
		expect("at most", 2+2*maxRelief)
		// Those who are let go are the ones that have been relieved, and the others, who begin anew.
		for range 2 + 2*maxRelief {
			release <- struct{}{}
		}
		expect("in the end", 2)
		if n := c.relieved.Load(); n != 0 {
			t.Errorf("%d count as relieved", n)
		}
		close(stop)
		close(release)
		c.wait()
	})
}
