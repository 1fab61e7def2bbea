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

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/takeover"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// question is what is asked of the namespace of a fleet.
func (f *fleet) question() takeover.Question {
	return takeover.Question{
		Client: env.client, Namespace: f.namespace, Now: time.Now, Wait: 3 * time.Second,
		Options: plan.Options{Defaulter: appsdefaults.SetObjectDefaults_StatefulSet},
	}
}

// check runs a check, and tells of it in the log of the test.
func check(t *testing.T, q takeover.Question) *takeover.Report {
	t.Helper()
	report, err := takeover.Check(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := report.Write(&b); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	return report
}

// canaries are the namespaces of canaries that nobody has removed.
func canaries(t *testing.T) []string {
	t.Helper()
	list, err := env.client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: "ordinal.dev/takeover-check"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// Whichever controllers work, the check finds out, and leaves nothing behind.
func TestCheckFindsOutWhoWorks(t *testing.T) {
	runKubelet(t)
	manage(t, true)
	f := newFleet(t)
	f.launch(1)
	for _, step := range []struct {
		name         string
		do           func()
		builtIn, own takeover.State
		verdict      takeover.Verdict
		evidence     string
	}{
		{"built-in alone", func() {}, takeover.On, takeover.Off, takeover.NotYet, builtIn + " reacted to a canary"},
		{"both", func() { control(t) }, takeover.On, takeover.On, takeover.Both, builtIn + " reacted to a canary"},
		{"both, and Ordinal has stopped", func() {
			f.retemplate("ordinal.invalid/model:3")
			poll(t, "ours stops", func(context.Context) string { return unless(env.ours.yields(t), "it works") })
			f.settled(asWanted)
		}, takeover.On, takeover.On, takeover.Both, builtIn + " reacted to a canary"},
		{"Ordinal alone", func() { manage(t, false) }, takeover.Off, takeover.On, takeover.Ready, "it did nothing to a canary"},
		{"none", func() { stopOurs(t) }, takeover.Off, takeover.Off, takeover.Ready, "it did nothing to a canary"},
		{"kube-controller-manager is down", stopManager, takeover.Unknown, takeover.Off, takeover.Undecided, "seems to be down"},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do()
			r := check(t, f.question())
			if r.BuiltIn.State != step.builtIn || r.Ordinal.State != step.own || r.Verdict != step.verdict {
				t.Errorf("built-in is %s, Ordinal %s, the verdict %s", r.BuiltIn.State, r.Ordinal.State, r.Verdict)
			}
			if !strings.Contains(strings.Join(r.BuiltIn.Evidence, "\n"), step.evidence) {
				t.Errorf("evidence is %q, without %q", r.BuiltIn.Evidence, step.evidence)
			}
			if r.Sets.Total != 10 || r.Sets.Same != 10 || len(r.Missing) != 0 {
				t.Errorf("of %d sets %d stay; changes are %v, under way %v, missing %v", r.Sets.Total, r.Sets.Same,
					r.Sets.Changes, r.Sets.UnderWay, r.Missing)
			}
			if left := canaries(t); len(left) > 0 {
				t.Errorf("left are %v", left)
			}
		})
	}
}

// Ordinal reacts to a canary by its own name, so that the other is seen beside it.
func TestCheckTellsTheTwoApart(t *testing.T) {
	manage(t, false)
	f := newFleet(t)
	control(t)
	r := check(t, f.question())
	if text := strings.Join(r.Ordinal.Evidence, "\n"); !strings.Contains(text, telemetry.Manager+" reacted to a canary") {
		t.Errorf("evidence of Ordinal is %s", text)
	}
}

// What would change is told, set by set.
func TestCheckTellsWhatWouldChange(t *testing.T) {
	runKubelet(t)
	manage(t, true)
	f := newFleet(t)
	stuck := kind{name: "stuck", set: kinds()[0].set, ready: 2, updated: 1}
	f.add("web", kinds()[4])
	f.add("stuck", stuck)
	f.settled(func(kind) (int32, int32) { return 3, 3 })
	f.patch("stuck", template(brokenImage))
	f.patch("web", template(secondImage))
	f.settled(asWanted)
	// Its template is mended, which helps only with Ordinal.
	f.patch("stuck", template(firstImage))
	poll(t, "it is seen", func(ctx context.Context) string {
		set, err := env.client.AppsV1().StatefulSets(f.namespace).Get(ctx, "stuck", metav1.GetOptions{})
		return unless(err == nil && set.Status.ObservedGeneration == set.Generation, "it is not")
	})
	manage(t, false)
	q := f.question()
	r := check(t, q)
	if len(r.Sets.Changes) != 1 || r.Sets.Changes[0].Name != "stuck" || r.Sets.Same != 1 || r.Verdict != takeover.Changes {
		t.Fatalf("the verdict is %s, the sets are %+v", r.Verdict, r.Sets)
	}
	if text := strings.Join(r.Sets.Changes[0].Told, "\n"); !strings.Contains(text, "stuck-2") {
		t.Errorf("told is %s", text)
	}
	// And is what happens.
	control(t)
	f.kinds["stuck"] = kind{name: "mended", ready: 3, updated: 3}
	f.settled(asWanted)
	stopOurs(t)
	q.Options.Strict = true
	if r := check(t, q); len(r.Sets.Changes) != 0 || r.Verdict != takeover.Ready {
		t.Errorf("afterwards the verdict is %s, the sets are %+v", r.Verdict, r.Sets)
	}
}

// Who has no rights is told which are missing, and gets the rest. Nothing is written without a canary.
func TestCheckWithoutRights(t *testing.T) {
	manage(t, true)
	f := newFleet(t)
	user := "user-of-" + f.namespace
	cfg, err := env.As(pki.Subject{User: user})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	q := f.question()
	q.Client = client
	r := check(t, q)
	if r.Verdict != takeover.Undecided || r.BuiltIn.State != takeover.Unknown || r.Ordinal.State != takeover.Unknown || len(r.Missing) < 10 {
		t.Errorf("the report is %+v", r)
	}
	_, roleErr := env.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	if roleErr != nil {
		t.Fatal(roleErr)
	}
	f.add("web", kinds()[4])
	q.NoCanary = true
	poll(t, "the rights are known", func(ctx context.Context) string {
		_, err := client.AppsV1().StatefulSets(f.namespace).List(ctx, metav1.ListOptions{})
		return text(err)
	})
	poll(t, "the set is seen", func(ctx context.Context) string {
		set, err := client.AppsV1().StatefulSets(f.namespace).Get(ctx, "web", metav1.GetOptions{})
		return unless(err == nil && set.Status.ObservedGeneration == 1, "it is not")
	})
	r = check(t, q)
	if r.BuiltIn.State != takeover.On || r.Verdict != takeover.NotYet || r.Sets.Total != 1 {
		t.Errorf("with --no-canary, the report is %+v", r)
	}
	if left := canaries(t); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// A check that is interrupted removes its canary, and what one that was killed has left is removed by a later one.
func TestCheckRemovesCanaries(t *testing.T) {
	manage(t, false)
	f := newFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := f.question()
	q.Wait = patience
	ended := make(chan error, 1)
	go func() {
		_, err := takeover.Check(ctx, q)
		ended <- err
	}()
	poll(t, "there is a canary", func(context.Context) string { return unless(len(canaries(t)) == 1, "there is none") })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, takeover.ErrCanaryLeft) {
		t.Errorf("it ends with %v", err)
	}
	if left := canaries(t); len(left) > 0 {
		t.Errorf("left by the one that was interrupted are %v", left)
	}
	names := []string{"ordinal-takeover-check-old", "ordinal-takeover-check-used"}
	for n, use := range []string{"1", "3600"} {
		_, err := env.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: names[n], Labels: map[string]string{"ordinal.dev/takeover-check": use},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	<-time.After(2100 * time.Millisecond)
	q.Wait = time.Second
	check(t, q)
	if left := canaries(t); !slices.Equal(left, names[1:]) {
		t.Errorf("left are %v", left)
	}
	if err := env.client.CoreV1().Namespaces().Delete(t.Context(), names[1], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
