// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/install"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// without are the controller's rules but for some verbs on some resources.
func without(missing ...string) []rbacv1.PolicyRule {
	var kept []rbacv1.PolicyRule
	for _, one := range rightsOf(controller.ClusterRole()) {
		if !slices.Contains(missing, one.String()) {
			kept = append(kept, rbacv1.PolicyRule{APIGroups: []string{one.group}, Resources: []string{one.resource}, Verbs: []string{one.verb}})
		}
	}
	return kept
}

// Rights that are missing are named exactly, and what can be done without them is done.
func TestMissingRights(t *testing.T) {
	alone(t)
	s := newLoneSpace(t)
	user := "faults-" + s.name
	grant(t, user, s.name, without("create events", "patch persistentvolumeclaims",
		"list statefulsetpolicies.ordinal.dev", "watch statefulsetpolicies.ordinal.dev", "delete controllerrevisions.apps"))
	s.create(newSet(withClaims))
	c := newSolo(t, user, controller.Options{Scope: observe.Scope{Namespaces: []string{s.name}}})
	c.start()
	s.settled("db")
	s.retemplate("db", "2")
	s.settled("db")
	s.scale("db", 1)
	s.settled("db")
	want := []string{s.name + ` {apiGroups: [""], resources: ["events"], verbs: ["create"]}`}
	for _, verb := range []string{"list", "watch"} {
		want = append(want, fmt.Sprintf(`%s {apiGroups: ["ordinal.dev"], resources: ["statefulsetpolicies"], verbs: [%q]}`, s.name, verb))
	}
	// Policies are first watched, and listed where that cannot be. Which of the two comes first is client-go's affair.
	poll(t, "what is missing is named", func(context.Context) string {
		got := c.missing()
		ok := slices.Contains(got, want[0]) && (slices.Contains(got, want[1]) || slices.Contains(got, want[2])) && len(got) <= len(want)
		return unless(ok && len(got) == len(slices.Compact(slices.Clone(got))), fmt.Sprintf("%q", got))
	})
}

// Where policies are not served, sets are kept without them; once they are, they are obeyed.
func TestPoliciesAreInstalledLater(t *testing.T) {
	alone(t)
	definitions, err := apiextensionsclient.NewForConfig(env.config)
	if err != nil {
		t.Fatal(err)
	}
	api := definitions.CustomResourceDefinitions()
	if err := api.Delete(t.Context(), v1alpha1.DefinitionName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "policies are not served", func(ctx context.Context) string {
		_, err := api.Get(ctx, v1alpha1.DefinitionName, metav1.GetOptions{})
		_, listErr := policies(t, metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		return unless(apierrors.IsNotFound(err) && apierrors.IsNotFound(listErr), "they are")
	})
	defer func() {
		if err := install.Policies(context.WithoutCancel(t.Context()), env.config); err != nil {
			t.Error(err)
		}
	}()
	s := newLoneSpace(t)
	user := "faults-" + s.name
	grant(t, user, "", controller.ClusterRole().Rules)
	s.create(newSet())
	c := newSolo(t, user, controller.Options{})
	c.start()
	s.settled("db")
	if err := install.Policies(t.Context(), env.config); err != nil {
		t.Fatal(err)
	}
	policy := newPolicy(t, "hold", fmt.Sprintf(rolloutOf, `{"paused":true}`))
	if _, err := policies(t, s.name).Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, "the policy is obeyed", func(ctx context.Context) string {
		got, err := policies(t, s.name).Get(ctx, "hold", metav1.GetOptions{})
		return unless(err == nil && strings.Contains(fmt.Sprint(got.Object["status"]), "Accepted"), fmt.Sprint(got, err))
	})
	s.retemplate("db", "2")
	s.quiet(2*time.Second, "a paused set is updated", func(c change) bool { return c.kind == watch.Deleted && c.pod() != nil })
	said := 0
	for _, entry := range c.log.Data() {
		if strings.Contains(entry.Message, "serves no StatefulSetPolicies") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("that there are no policies is said %d times", said)
	}
}

// leased are the options of a controller with a short lease, which writes slowly, so that it is in the midst of a batch for long.
func leased(namespace string, qps float32) controller.Options {
	return controller.Options{
		Scope: observe.Scope{Namespaces: []string{namespace}}, QPS: qps, Burst: 5, Health: &telemetry.Health{},
		LeaderElect: true, LeaseNamespace: namespace, LeaseName: "faults",
		LeaseDuration: 6 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 500 * time.Millisecond,
	}
}

// created counts how often each pod was made.
func (s *space) created() map[string]int {
	count := map[string]int{}
	for _, c := range s.past(0) {
		if pod := c.pod(); pod != nil && c.kind == watch.Added {
			count[pod.Name]++
		}
	}
	return count
}

// A leader whose lease is taken in the midst of a batch makes no further pod, and the next leader makes those that are left, each
// once.
func TestLeaseIsTakenInTheMidstOfABatch(t *testing.T) {
	alone(t)
	s := newLoneSpace(t)
	user := "faults-" + s.name
	grant(t, user, s.name, controller.ClusterRole().Rules)
	const pods = 100
	s.create(newSet(parallel, replicas(pods)))
	c := newSolo(t, user, leased(s.name, 10))
	c.start()
	s.until("a batch is at work", func(w world) string { return unless(len(w.pods) >= 20, fmt.Sprint(len(w.pods), " pods")) })
	leases := env.client.CoordinationV1().Leases(s.name)
	poll(t, "the lease is taken", func(ctx context.Context) string {
		lease, err := leases.Get(ctx, "faults", metav1.GetOptions{})
		if err == nil {
			lease.Spec = coordinationv1.LeaseSpec{
				HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(1)), RenewTime: new(metav1.NowMicro()), AcquireTime: new(metav1.NowMicro()),
			}
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
		return text(err)
	})
	select {
	case err := <-c.ended:
		c.ended <- err
		if err == nil || !strings.Contains(err.Error(), "the lease is lost") {
			t.Errorf("the end is %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	made := len(s.look().pods)
	if made >= pods {
		t.Fatalf("all %d pods are made", made)
	}
	s.quiet(2*time.Second, "a pod is made without the lease", func(c change) bool { return c.kind == watch.Added && c.pod() != nil })

	next := newSolo(t, user, leased(s.name, 200))
	next.start()
	s.settled("db")
	for name, n := range s.created() {
		if n != 1 {
			t.Errorf("%s is made %d times", name, n)
		}
	}
}

// severed is a way to the API server on which the lease cannot be reached once it is cut, while all else can.
type severed struct {
	next http.RoundTripper
	cut  atomic.Bool

	mu sync.Mutex
	// renewed is when the last renewal that succeeded was begun, and wrote when the last write was.
	renewed, wrote time.Time
}

// RoundTrip passes a request on.
func (s *severed) RoundTrip(r *http.Request) (*http.Response, error) {
	isLease := strings.Contains(r.URL.Path, "/leases")
	if isLease && s.cut.Load() {
		return nil, errors.New("cut off")
	}
	began := time.Now()
	answer, err := s.next.RoundTrip(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch isEvent := strings.Contains(r.URL.Path, "/events"); {
	case r.Method == http.MethodGet || isEvent:
	case !isLease:
		s.wrote = began
	case err == nil && answer.StatusCode < http.StatusBadRequest:
		s.renewed = began
	}
	return answer, err
}

// A leader that cannot renew its lease writes nothing from the moment on at which another may take it.
func TestLeaseCannotBeRenewed(t *testing.T) {
	alone(t)
	s := newLoneSpace(t)
	user := "faults-" + s.name
	grant(t, user, s.name, controller.ClusterRole().Rules)
	s.create(newSet(parallel, replicas(100)))
	way := &severed{}
	c := newSolo(t, user, leased(s.name, 10))
	// All clients of the controller share it, as they share the way.
	var once sync.Once
	c.wrap = func(next http.RoundTripper) http.RoundTripper {
		once.Do(func() { way.next = next })
		return way
	}
	c.start()
	s.until("a batch is at work", func(w world) string { return unless(len(w.pods) >= 10, fmt.Sprint(len(w.pods), " pods")) })
	way.cut.Store(true)
	select {
	case err := <-c.ended:
		c.ended <- err
		if err == nil || !strings.Contains(err.Error(), "the lease is lost") {
			t.Errorf("the end is %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	way.mu.Lock()
	defer way.mu.Unlock()
	if late := way.wrote.Sub(way.renewed); late > c.options.RenewDeadline+c.options.RetryPeriod {
		t.Errorf("the last write is %s after the last renewal", late)
	}
	if len(s.look().pods) == 100 {
		t.Error("the set was complete before its lease was lost")
	}
}
