// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// withPolicies runs a test in virtual time, in a cluster that serves policies.
func withPolicies(t *testing.T, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.run(Options{Policies: c.policies})()
		test(c)
	})
}

func newPolicy(name string, change func(*v1alpha1.StatefulSetPolicySpec)) *v1alpha1.StatefulSetPolicy {
	p := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Generation: 1}}
	p.Spec.TargetRef.Name = "web"
	p.Spec.Rollout, p.Spec.Scaling = &v1alpha1.RolloutPolicy{}, &v1alpha1.ScalingPolicy{}
	change(&p.Spec)
	return p
}

func evicting(s *v1alpha1.StatefulSetPolicySpec) { s.Rollout.Disruption = v1alpha1.Evict }

// policy reads a policy.
func (c *cluster) policy(name string) *v1alpha1.StatefulSetPolicy {
	c.t.Helper()
	p, err := c.policies(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// editPolicy changes a policy as a user.
func (c *cluster) editPolicy(name string, change func(*v1alpha1.StatefulSetPolicy)) {
	c.t.Helper()
	p := c.policy(name).DeepCopy()
	change(p)
	p.Generation++
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(policiesResource, p)
}

// accepted is the reason of the policy's condition Accepted.
func (c *cluster) accepted(name string) string {
	c.t.Helper()
	if a := meta.FindStatusCondition(c.policy(name).Status.Conditions, v1alpha1.ConditionAccepted); a != nil {
		return a.Reason
	}
	return ""
}

// An eviction that a PodDisruptionBudget holds up is asked for again, ever less often; that is no failure, and is told once.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, metrics := newCluster(t), telemetry.New()
		defer c.run(Options{Policies: c.policies, Metrics: metrics})()
		var attempts []time.Time
		held := true
		c.refuse = func(a clienttesting.Action) error {
			if create, ok := a.(clienttesting.CreateActionImpl); ok {
				if _, ok := create.GetObject().(*policyv1.Eviction); ok && held {
					attempts = append(attempts, time.Now())
					return apierrors.NewTooManyRequests("the budget is spent", 0)
				}
			}
			return nil
		}
		c.create(policiesResource, newPolicy("p", evicting))
		c.create(setsResource, newSet())
		settle()
		c.drain()
		c.told()
		c.image("two")
		pass(5 * time.Minute)
		if n := len(attempts); n < 10 || n > 16 {
			c.t.Errorf("in 5 minutes there are %d attempts", n)
		}
		for i := 1; i < len(attempts); i++ {
			if gap := attempts[i].Sub(attempts[i-1]); gap < firstEvictDelay || gap > maxDelay {
				c.t.Errorf("attempt %d follows after %v", i, gap)
			}
		}
		if n := syncs(t, metrics, telemetry.SyncFailed); n != 0 {
			t.Errorf("%d syncs fail", n)
		}
		blocked := slices.DeleteFunc(c.told(), func(e string) bool { return !strings.Contains(e, "Evict") })
		if want := "Normal EvictionBlocked Evict Pod web-2"; len(blocked) != 1 || !strings.HasPrefix(blocked[0], want) {
			c.t.Errorf("events are %q, want one of %q", blocked, want)
		}
		if w := slices.DeleteFunc(c.work(), func(w string) bool { return !strings.Contains(w, "pods") }); len(w) != 0 {
			c.t.Errorf("writes are %q", w)
		}
		c.mu.Lock()
		held = false
		c.mu.Unlock()
		pass(maxDelay + time.Minute)
		if s := c.set().Status; s.UpdatedReplicas != 3 || s.ReadyReplicas != 3 || s.CurrentRevision != s.UpdateRevision {
			c.t.Errorf("status is %+v", s)
		}
	})
}

// syncs counts the syncs that ended in a result.
func syncs(t *testing.T, m *telemetry.Metrics, result string) uint64 {
	t.Helper()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if f.GetName() == "ordinal_sync_duration_seconds" && metric.GetLabel()[0].GetValue() == result {
				return metric.GetHistogram().GetSampleCount()
			}
		}
	}
	t.Fatalf("no metric counts syncs that are %s", result)
	return 0
}

// The status of a policy that could not be written is written later.
func TestPolicyStatusIsWrittenInTheEnd(t *testing.T) {
	withPolicies(t, func(c *cluster) {
		left := 3
		c.refuse = func(a clienttesting.Action) error {
			if left == 0 || a.GetVerb() != "update" {
				return nil
			}
			left--
			return errors.New("no")
		}
		c.create(setsResource, newSet())
		settle()
		c.create(policiesResource, newPolicy("p", evicting))
		settle()
		if got := c.accepted("p"); got != v1alpha1.ReasonAccepted || left != 0 {
			c.t.Errorf("the policy is %q, and %d refusals are left", got, left)
		}
	})
}

// client-go must not repeat an eviction by itself.
func TestEvictionIsAskedForOnce(t *testing.T) {
	answer := func(path string) http.Header {
		inner := roundTripper(func(*http.Request) (*http.Response, error) {
			header := http.Header{"Retry-After": {"10"}}
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: header, Body: io.NopCloser(strings.NewReader(""))}, nil
		})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		got, err := impatient(inner).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		return got.Header
	}
	if h := answer("/api/v1/namespaces/default/pods/web-0/eviction"); h.Get("Retry-After") != "" {
		t.Errorf("client-go is told %v", h)
	}
	if h := answer("/api/v1/namespaces/default/pods"); h.Get("Retry-After") != "10" {
		t.Errorf("other writes are told %v", h)
	}
}

// What a policy says holds from the moment on that it is there, and its status tells if it is obeyed.
func TestPolicyIsObeyed(t *testing.T) {
	withPolicies(t, func(c *cluster) {
		c.create(policiesResource, newPolicy("p", func(s *v1alpha1.StatefulSetPolicySpec) { s.Rollout.Paused = true }))
		settle()
		if got := c.accepted("p"); got != v1alpha1.ReasonTargetNotFound {
			c.t.Errorf("without its set, the policy is %q", got)
		}
		c.create(setsResource, newSet())
		settle()
		if got := c.accepted("p"); got != v1alpha1.ReasonAccepted {
			c.t.Errorf("the policy is %q", got)
		}
		c.drain()
		c.image("two")
		settle()
		if w := slices.DeleteFunc(c.work(), func(w string) bool { return !strings.Contains(w, "pods") }); len(w) != 0 {
			c.t.Errorf("although it is paused, writes are %q", w)
		}
		if r := c.policy("p").Status.Rollout; r == nil || r.Phase != v1alpha1.RolloutPaused {
			c.t.Errorf("the rollout is %+v", r)
		}
		c.editPolicy("p", func(p *v1alpha1.StatefulSetPolicy) { p.Spec.Rollout.Paused = false })
		settle()
		if r := c.policy("p").Status.Rollout; r == nil || r.Phase != v1alpha1.RolloutComplete || c.set().Status.UpdatedReplicas != 3 {
			c.t.Errorf("the rollout is %+v", r)
		}
		c.mu.Lock()
		err := c.tracker().Delete(setsResource, namespace, "web")
		c.mu.Unlock()
		if err != nil {
			c.t.Fatal(err)
		}
		settle()
		if got := c.accepted("p"); got != v1alpha1.ReasonTargetNotFound {
			c.t.Errorf("when its set is gone, the policy is %q", got)
		}
	})
}

// A settled set with a policy is left alone.
func TestPolicyIsQuiet(t *testing.T) {
	withPolicies(t, func(c *cluster) {
		c.create(policiesResource, newPolicy("p", evicting))
		c.create(setsResource, newSet())
		settle()
		c.drain()
		pass(time.Hour)
		if w := c.drain(); len(w) != 0 {
			c.t.Errorf("writes are %q", w)
		}
	})
}

// Two policies contradict each other, whatever they say. Nothing is replaced then, and an event says so.
func TestPoliciesConflict(t *testing.T) {
	withPolicies(t, func(c *cluster) {
		c.create(setsResource, newSet())
		c.create(policiesResource, newPolicy("p", evicting))
		c.create(policiesResource, newPolicy("q", evicting))
		settle()
		c.drain()
		c.told()
		c.image("two")
		settle()
		if w := slices.DeleteFunc(c.work(), func(w string) bool { return !strings.Contains(w, "pods") }); len(w) != 0 {
			c.t.Errorf("writes are %q", w)
		}
		want := "Warning PolicyConflict its policies contradict each other or cannot be read: no pod is replaced or scaled down"
		if got := c.told(); !slices.Equal(got, []string{want}) {
			c.t.Errorf("events are %q, want %q", got, want)
		}
		for _, name := range []string{"p", "q"} {
			if got := c.accepted(name); got != v1alpha1.ReasonConflict {
				c.t.Errorf("policy %s is %q", name, got)
			}
		}
		c.mu.Lock()
		err := c.tracker().Delete(policiesResource, namespace, "q")
		c.mu.Unlock()
		if err != nil {
			c.t.Fatal(err)
		}
		settle()
		if got := c.accepted("p"); got != v1alpha1.ReasonAccepted || c.set().Status.UpdatedReplicas != 3 {
			c.t.Errorf("policy p is %q, and the status %+v", got, c.set().Status)
		}
	})
}

// A pod that is scaled away is told so, has its time, and is told otherwise when it stays.
func TestPodIsTold(t *testing.T) {
	withPolicies(t, func(c *cluster) {
		const drain = 30 * time.Second
		c.create(policiesResource, newPolicy("p", func(s *v1alpha1.StatefulSetPolicySpec) {
			s.Scaling.ScaleDown = &v1alpha1.ScaleDown{DrainSeconds: int32(drain.Seconds())}
		}))
		c.create(setsResource, newSet())
		settle()
		c.drain()
		c.scale(2)
		pass(time.Second)
		if a := c.pod("web-2").Annotations; a[v1alpha1.StopReasonAnnotation] != v1alpha1.StopScaleDown || a[v1alpha1.StopAtAnnotation] == "" {
			c.t.Errorf("web-2 is told %v", a)
		}
		c.scale(3)
		pass(time.Second)
		if a := c.pod("web-2").Annotations; len(a) != 0 {
			c.t.Errorf("web-2 stays, and is told %v", a)
		}
		c.expect("patch pods web-2", "patch pods web-2")
		c.scale(2)
		pass(drain - time.Second)
		c.expect("patch pods web-2")
		pass(3 * time.Second)
		c.expect("delete pods web-2")
	})
}

// Two sets can give the same name to their claims: the one that comes later has to wait until the other is gone.
func TestRivals(t *testing.T) {
	bubble(t, func(c *cluster) {
		rename := func(set, template string) func(*appsv1.StatefulSet) {
			return func(s *appsv1.StatefulSet) {
				s.Name, s.Spec.Replicas = set, new(int32(1))
				s.Spec.Selector.MatchLabels = map[string]string{"app": set}
				s.Spec.Template.Labels = map[string]string{"app": set}
				s.Spec.VolumeClaimTemplates[0].Name = template
			}
		}
		c.create(setsResource, newSet(rename("a-web", "data")))
		settle()
		c.told()
		c.create(setsResource, newSet(rename("web", "data-a")))
		settle()
		if n := len(c.pods()); n != 1 {
			c.t.Errorf("%d pods use one claim", n)
		}
		want := "Warning FailedCreate Create Pod web-0 in StatefulSet web failed error: " +
			"pvc data-a-web-0 belongs to StatefulSet a-web, whose claims have the same names"
		if got := c.told(); !slices.Equal(got, []string{want}) {
			c.t.Errorf("events are %q, want %q", got, want)
		}
		c.mu.Lock()
		err := c.tracker().Delete(setsResource, namespace, "a-web")
		c.mu.Unlock()
		if err != nil {
			c.t.Fatal(err)
		}
		pass(3 * time.Second)
		if !slices.ContainsFunc(c.pods(), func(p *corev1.Pod) bool { return p.Name == "web-0" }) {
			c.t.Error("when the rival is gone, web-0 is not made")
		}
	})
}

// A pod beyond the usual range, which takes the place of a reserved ordinal, finds its claim again.
func TestPodInPlaceOfAReservedOneHasItsClaim(t *testing.T) {
	withPolicies(t, func(c *cluster) {
		c.create(policiesResource, newPolicy("p", func(s *v1alpha1.StatefulSetPolicySpec) {
			s.Scaling.ReservedOrdinals = []intstr.IntOrString{intstr.FromInt(1)}
		}))
		c.create(setsResource, newSet())
		settle()
		c.drain()
		c.kill("web-3")
		pass(time.Minute)
		if got, want := c.work(), []string{"delete pods web-3", "create pods web-3"}; !slices.Equal(got, want) {
			c.t.Errorf("done is %q, want %q", got, want)
		}
		var names []string
		for _, p := range c.pods() {
			names = append(names, p.Name)
		}
		if slices.Sort(names); !slices.Equal(names, []string{"web-0", "web-2", "web-3"}) {
			c.t.Errorf("pods are %v", names)
		}
	})
}
