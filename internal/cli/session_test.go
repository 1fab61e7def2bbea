// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/why"
)

// policyStore are the policies of a cluster.
type policyStore struct {
	clienttesting.Fake
}

func newPolicyStore(t *testing.T, policies ...*v1alpha1.StatefulSetPolicy) *policyStore {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	for _, p := range policies {
		if err := tracker.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	s := &policyStore{}
	s.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	return s
}

// uninstall lets the cluster serve no policies.
func (s *policyStore) uninstall() {
	s.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		resource := v1alpha1.GroupVersion().WithResource(v1alpha1.Resource).GroupResource()
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "list", resource, "", "404 page not found", 0, true)
	})
}

func (s *policyStore) client(namespace string) observe.PolicyAPI {
	version := v1alpha1.GroupVersion()
	return gentype.NewFakeClientWithList(&s.Fake, namespace, version.WithResource(v1alpha1.Resource), version.WithKind(v1alpha1.Kind),
		func() *v1alpha1.StatefulSetPolicy { return &v1alpha1.StatefulSetPolicy{} },
		func() *v1alpha1.StatefulSetPolicyList { return &v1alpha1.StatefulSetPolicyList{} },
		func(to, from *v1alpha1.StatefulSetPolicyList) { to.ListMeta = from.ListMeta },
		func(l *v1alpha1.StatefulSetPolicyList) []*v1alpha1.StatefulSetPolicy {
			return gentype.ToPointerSlice(l.Items)
		},
		func(l *v1alpha1.StatefulSetPolicyList, items []*v1alpha1.StatefulSetPolicy) {
			l.Items = gentype.FromPointerSlice(items)
		})
}

// get is the policy of that name.
func (s *policyStore) get(t *testing.T, name string) *v1alpha1.StatefulSetPolicy {
	t.Helper()
	p, err := s.client("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func policyFor(name, set string, rules v1alpha1.RolloutPolicy) *v1alpha1.StatefulSetPolicy {
	p := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.TargetRef.Name = set
	p.Spec.Rollout = &rules
	return p
}

// settled is a world with a set of 3 that has come to rest.
func settled(t *testing.T, changes ...func(*appsv1.StatefulSet)) *sim.World {
	t.Helper()
	w := sim.New(sim.NewSet("web", 3, changes...))
	settle(t, w)
	return w
}

func settle(t *testing.T, w *sim.World) {
	t.Helper()
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
}

func setImage(w *sim.World, image string) {
	w.Edit(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = image })
}

// sessionOf connects to a cluster that holds a world.
func sessionOf(w *sim.World, policies *policyStore, extra ...runtime.Object) (session, *fake.Clientset) {
	objects := append([]runtime.Object{w.Set.DeepCopy()}, extra...)
	for _, p := range w.Pods {
		objects = append(objects, p.DeepCopy())
	}
	for _, r := range w.Revisions {
		objects = append(objects, r.DeepCopy())
	}
	for _, c := range w.Claims {
		objects = append(objects, c.DeepCopy())
	}
	client := fake.NewClientset(objects...)
	tools := why.Tools{Kubectl: "kubectl", Ordinal: "ordinal", Flags: " -n default"}
	return session{client: client, policies: policies.client, namespace: "default", tools: tools}, client
}

// run runs a command of `ordinal rollout` and gives what it printed.
func run(t *testing.T, s session, makeCommand func(connector) *cobra.Command, args ...string) (string, error) {
	t.Helper()
	return call(t, makeCommand(func() (session, error) { return s, nil }), "", args...)
}

// isLike complains about a text or error that does not hold what it should.
func isLike(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) || want == "" {
		t.Errorf("got %q, want something with %q", got, want)
	}
}

func isErrorLike(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("it goes well, want the error %q", want)
		return
	}
	isLike(t, err.Error(), want)
}

func TestSetName(t *testing.T) {
	for args, want := range map[string]string{
		"web": "web", "sts/web": "web", "statefulset/web": "web", "statefulsets/web": "web", "statefulsets.apps/web": "web",
		"StatefulSet/web": "web", "statefulsets.v1.apps/web": "web", "sts web": "web",
		"deploy/web": "", "sts/": "", "sts/a/b": "", "a b": "", "": "",
	} {
		got, err := setName(strings.Fields(args))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q names %q (%v), want %q", args, got, err, want)
		}
	}
}

func TestOffer(t *testing.T) {
	for _, tt := range []struct {
		names string
		want  string
	}{
		{"", ", which has none"},
		{"wed api", "; did you mean wed"},
		{"website zookeeper", "; did you mean website"},
		{"zookeeper api", "; it has api, zookeeper"},
		{"f11 f12 f13 f14 f15 f16 f17", "; it has f11, f12, f13, f14, f15 and 2 more"},
	} {
		if got := offer("web", strings.Fields(tt.names)); got != tt.want {
			t.Errorf("of %q it offers %q, want %q", tt.names, got, tt.want)
		}
	}
}

func TestNoSuchSet(t *testing.T) {
	s, client := sessionOf(settled(t), newPolicyStore(t))
	_, err := run(t, s, newRolloutHistoryCommand, "sts/wep")
	isErrorLike(t, err, "no StatefulSet wep in namespace default; did you mean web")
	s.namespace = "shop"
	_, err = run(t, s, newRolloutHistoryCommand, "sts/web")
	isErrorLike(t, err, "no StatefulSet web in namespace shop; there is one in namespace default (-n default)")

	client.PrependReactor("*", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(appsv1.Resource("statefulsets"), "web", errors.New("not for you"))
	})
	_, err = run(t, s, newRolloutHistoryCommand, "sts/web")
	isErrorLike(t, err, "no permission: ")
}

// writeKubeconfig writes a kubeconfig with one context.
func writeKubeconfig(t *testing.T, path, namespace string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", Namespace: namespace}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

// TestConnect covers which cluster is taken, and how it is named in remedies.
func TestConnect(t *testing.T) {
	dir := t.TempDir()
	own, home, other := filepath.Join(dir, "data"), filepath.Join(dir, "home"), filepath.Join(dir, "other")
	writeKubeconfig(t, filepath.Join(own, "kubeconfig"), "own")
	writeKubeconfig(t, home, "home")
	writeKubeconfig(t, other, "other")
	homeFile := clientcmd.RecommendedHomeFile
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = homeFile })
	none := filepath.Join(dir, "none")
	for name, tt := range map[string]struct {
		dataDir, home, env string
		args               string
		plugin             bool
		namespace          string
		kubectl, flags     string
		err                string
	}{
		"this machine's cluster":      {dataDir: own, home: none, namespace: "own", kubectl: "ordinal --data-dir " + own + " kubectl"},
		"before that of kubectl":      {dataDir: own, home: home, namespace: "own", kubectl: "ordinal --data-dir " + own + " kubectl"},
		"kubectl's":                   {dataDir: none, home: home, namespace: "home", kubectl: "kubectl"},
		"kubectl's for its plugin":    {dataDir: own, home: home, plugin: true, namespace: "home", kubectl: "kubectl"},
		"the environment's":           {dataDir: own, home: home, env: other, namespace: "other", kubectl: "kubectl"},
		"the flag's":                  {dataDir: own, home: home, env: home, args: "--kubeconfig " + other, namespace: "other", kubectl: "kubectl", flags: " --kubeconfig " + other},
		"another namespace":           {dataDir: own, home: none, args: "-n shop --context c", namespace: "shop", kubectl: "ordinal --data-dir " + own + " kubectl", flags: " -n shop --context c"},
		"none":                        {dataDir: none, home: none, err: "no cluster in " + none + "; start one with: ordinal up; or name a cluster with --kubeconfig or KUBECONFIG"},
		"no such context":             {dataDir: own, home: none, args: "--context d", err: `context "d" does not exist`},
		"a kubeconfig without a file": {dataDir: own, home: none, args: "--kubeconfig " + none, err: none},
	} {
		t.Run(name, func(t *testing.T) {
			clientcmd.RecommendedHomeFile = tt.home
			t.Setenv(kubeconfigEnv, tt.env)
			if tt.env == "" {
				if err := os.Unsetenv(kubeconfigEnv); err != nil {
					t.Fatal(err)
				}
			}
			cmd := &cobra.Command{}
			connect := addConnection(cmd, &globals{dataDir: tt.dataDir, isPlugin: tt.plugin})
			if err := cmd.ParseFlags(strings.Fields(tt.args)); err != nil {
				t.Fatal(err)
			}
			s, err := connect()
			if tt.err != "" {
				isErrorLike(t, err, tt.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.namespace != tt.namespace || s.tools.Kubectl != tt.kubectl || s.tools.Flags != tt.flags {
				t.Errorf("namespace %q, %q with flags %q; want %q, %q, %q",
					s.namespace, s.tools.Kubectl, s.tools.Flags, tt.namespace, tt.kubectl, tt.flags)
			}
		})
	}
}

// kubectl runs kubectl-ordinal for "kubectl ordinal", and then texts say so.
func TestPlugin(t *testing.T) {
	if !isPlugin("/usr/local/bin/kubectl-ordinal") || isPlugin("/usr/local/bin/ordinal") {
		t.Error("it is not known by its name that kubectl runs us")
	}
	for plugin, want := range map[bool]string{true: "kubectl ordinal why sts/NAME", false: "  ordinal why sts/NAME"} {
		root := newRootCommand(plugin)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{"why", "--help"})
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		isLike(t, out.String(), want)
	}
}

func askWhy(t *testing.T, s session, output string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	err := s.why(cmd, "web", output)
	return out.String(), err
}

func TestWhy(t *testing.T) {
	w := settled(t)
	s, _ := sessionOf(w, newPolicyStore(t))
	out, err := askWhy(t, s, "")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "web is up: 3 of 3 pods are available")

	w.Change("web-1", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
	s, _ = sessionOf(w, newPolicyStore(t))
	out, err = askWhy(t, s, "json")
	if !errors.Is(err, errSilent) {
		t.Errorf("a set that is stuck ends it with %v", err)
	}
	var report why.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.State != why.Stuck || len(report.Waits) != 1 || report.Waits[0].Object != "pod web-1" {
		t.Errorf("the report is %+v", report)
	}
}

// A policy that evicts is obeyed, and what is in the way of that is read.
func TestWhyOfAnEviction(t *testing.T) {
	w := settled(t)
	setImage(w, "two")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "strict"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 3, DesiredHealthy: 3, ExpectedPods: 3},
	}
	s, _ := sessionOf(w, newPolicyStore(t, policyFor("gentle", "web", v1alpha1.RolloutPolicy{Disruption: v1alpha1.Evict})), budget)
	out, err := askWhy(t, s, "")
	if !errors.Is(err, errSilent) {
		t.Errorf("a budget that allows nothing ends it with %v", err)
	}
	isLike(t, out, "budget strict allows no disruption: 3 of 3 pods are healthy")
}

func TestPause(t *testing.T) {
	w := settled(t)
	store := newPolicyStore(t)
	s, _ := sessionOf(w, store)
	out, err := run(t, s, newRolloutPauseCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "web paused: its new policy web lets no pod be replaced")
	if p := store.get(t, "web"); p.Spec.TargetRef.Name != "web" || !p.Spec.Rollout.Paused || p.Namespace != "default" {
		t.Errorf("the new policy is %+v", p)
	}
	out, err = run(t, s, newRolloutPauseCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "web is paused already, by its policy web")

	// What else the policy says stays.
	store = newPolicyStore(t, policyFor("careful", "web", v1alpha1.RolloutPolicy{Disruption: v1alpha1.Evict}), policyFor("other", "db", v1alpha1.RolloutPolicy{}))
	s, _ = sessionOf(w, store)
	if _, err := run(t, s, newRolloutPauseCommand, "web"); err != nil {
		t.Fatal(err)
	}
	if p := store.get(t, "careful"); !p.Spec.Rollout.Paused || p.Spec.Rollout.Disruption != v1alpha1.Evict {
		t.Errorf("the policy is %+v", p.Spec.Rollout)
	}
	if store.get(t, "other").Spec.Rollout.Paused {
		t.Error("another set's policy is paused")
	}
}

func TestResume(t *testing.T) {
	w := settled(t)
	ahead := metav1.Time{Time: time.Now().Add(time.Hour)}
	paused := policyFor("careful", "web", v1alpha1.RolloutPolicy{Paused: true})
	paused.Status.Rollout = &v1alpha1.RolloutStatus{LastProgressTime: ahead}
	store := newPolicyStore(t, paused)
	s, _ := sessionOf(w, store)
	out, err := run(t, s, newRolloutResumeCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "web resumed: its policy careful pauses it no longer")
	p := store.get(t, "careful")
	if p.Spec.Rollout.Paused {
		t.Error("it is paused still")
	}
	// The controller's clock may be ahead of ours.
	if at := timeIn(t, p, v1alpha1.ResumeAtAnnotation); !at.After(ahead.Time) {
		t.Errorf("it is resumed at %s, before the pause", at)
	}
	out, err = run(t, s, newRolloutResumeCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "lets the next batch begin")

	s, _ = sessionOf(w, newPolicyStore(t))
	out, err = run(t, s, newRolloutResumeCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "web has no policy, so nothing pauses it")
}

func timeIn(t *testing.T, p *v1alpha1.StatefulSetPolicy, annotation string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, p.Annotations[annotation])
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestRetry(t *testing.T) {
	w := settled(t)
	failed := policyFor("careful", "web", v1alpha1.RolloutPolicy{})
	failed.Status.FailedRevision, failed.Status.FailedTime = "web-bad", &metav1.Time{Time: time.Now().Add(time.Hour)}
	store := newPolicyStore(t, failed)
	s, _ := sessionOf(w, store)
	out, err := run(t, s, newRolloutRetryCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "web: its policy careful lets web-bad be tried again")
	if at := timeIn(t, store.get(t, "careful"), v1alpha1.RetryAtAnnotation); !at.After(failed.Status.FailedTime.Time) {
		t.Errorf("it is tried again at %s, before it failed", at)
	}
	s, _ = sessionOf(w, newPolicyStore(t))
	_, err = run(t, s, newRolloutRetryCommand, "sts/web")
	isErrorLike(t, err, "web has no policy, so no rollout of it was given up")
}

func TestPoliciesThatCannotBeChanged(t *testing.T) {
	w := settled(t)
	two := newPolicyStore(t, policyFor("a", "web", v1alpha1.RolloutPolicy{}), policyFor("b", "web", v1alpha1.RolloutPolicy{}))
	absent := newPolicyStore(t)
	absent.uninstall()
	for name, tt := range map[string]struct {
		store *policyStore
		want  string
	}{
		"two policies":  {two, "web has several policies, so that none is obeyed: a and b; delete all but one"},
		"not installed": {absent, "this cluster knows no StatefulSetPolicies"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := sessionOf(w, tt.store)
			for _, cmd := range []func(connector) *cobra.Command{newRolloutPauseCommand, newRolloutResumeCommand, newRolloutRetryCommand} {
				_, err := run(t, s, cmd, "sts/web")
				isErrorLike(t, err, tt.want)
			}
		})
	}
}

// Where kube-controller-manager decides, a policy has no effect, and that is said.
func TestPauseOfTheIncumbent(t *testing.T) {
	w := settled(t)
	w.Set.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Subresource: "status", Time: new(metav1.Now())}}
	s, _ := sessionOf(w, newPolicyStore(t))
	out, err := run(t, s, newRolloutPauseCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "But kube-controller-manager works on this set")
}

func TestUndo(t *testing.T) {
	w := settled(t)
	setImage(w, "two")
	settle(t, w)
	image := func(client *fake.Clientset) string {
		set, err := client.AppsV1().StatefulSets("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set.Spec.Template.Spec.Containers[0].Image
	}
	s, client := sessionOf(w, newPolicyStore(t))
	out, err := run(t, s, newRolloutUndoCommand, "sts/web", "--dry-run=client")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "Image:\tone")
	if got := image(client); got != "two" {
		t.Errorf("a dry run writes the image %s", got)
	}
	out, err = run(t, s, newRolloutUndoCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "web rolled back")
	if got := image(client); got != "one" {
		t.Errorf("the image is %s, want one", got)
	}
	if _, err = run(t, s, newRolloutUndoCommand, "sts/web", "--to-revision=2"); err != nil {
		t.Fatal(err)
	}
	if got := image(client); got != "two" {
		t.Errorf("the image is %s, want two", got)
	}
	_, err = run(t, s, newRolloutUndoCommand, "sts/web", "--to-revision=9")
	isErrorLike(t, err, "unable to find specified revision 9")
}

func TestHistory(t *testing.T) {
	w := settled(t)
	setImage(w, "two")
	settle(t, w)
	s, _ := sessionOf(w, newPolicyStore(t))
	out, err := run(t, s, newRolloutHistoryCommand, "sts/web")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "current,update   0-2")
	out, err = run(t, s, newRolloutHistoryCommand, "sts/web", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, `"revision": 2`)
	out, err = run(t, s, newRolloutHistoryCommand, "sts/web", "--revision=1")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "Image:\tone")
	_, err = run(t, s, newRolloutHistoryCommand, "sts/web", "--revision=7")
	isErrorLike(t, err, "show revision 7 of web")
}

func TestRolloutStatusOnce(t *testing.T) {
	w := settled(t)
	s, _ := sessionOf(w, newPolicyStore(t))
	out, err := run(t, s, newRolloutStatusCommand, "sts/web", "--watch=false")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "web is rolled out: 3 pods are at")

	setImage(w, "two")
	w.Sync()
	s, _ = sessionOf(w, newPolicyStore(t))
	out, err = run(t, s, newRolloutStatusCommand, "sts/web", "--watch=false")
	if err != nil {
		t.Fatal(err)
	}
	isLike(t, out, "0 of 3 pods updated")
	s, _ = sessionOf(w, newPolicyStore(t, policyFor("careful", "web", v1alpha1.RolloutPolicy{Paused: true})))
	out, err = run(t, s, newRolloutStatusCommand, "sts/web", "--watch=false")
	isErrorLike(t, err, "the rollout of web is paused by its policy careful; go on with: ordinal rollout resume sts/web -n default")
	if out != "" {
		t.Errorf("it prints %q besides", out)
	}
}

func TestRolloutStatusOfOnDelete(t *testing.T) {
	w := settled(t, func(set *appsv1.StatefulSet) {
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	})
	setImage(w, "two")
	settle(t, w)
	s, _ := sessionOf(w, newPolicyStore(t))
	_, err := run(t, s, newRolloutStatusCommand, "sts/web")
	isErrorLike(t, err, "until somebody deletes them; go on with: kubectl delete pod web-0 web-1 web-2 -n default")
}

// publish writes the world's set and pods into the cluster.
func publish(t *testing.T, w *sim.World, client *fake.Clientset) {
	t.Helper()
	tracker := client.Tracker()
	sets, pods := appsv1.SchemeGroupVersion.WithResource("statefulsets"), corev1.SchemeGroupVersion.WithResource("pods")
	if err := tracker.Update(sets, w.Set.DeepCopy(), "default"); err != nil {
		t.Fatal(err)
	}
	for _, p := range w.Pods {
		if err := tracker.Update(pods, p.DeepCopy(), "default"); err != nil {
			t.Fatal(err)
		}
	}
}

// It waits until all pods have the template, and tells each step in a line.
func TestRolloutStatusWaits(t *testing.T) {
	w := settled(t)
	setImage(w, "two")
	w.Sync()
	s, client := sessionOf(w, newPolicyStore(t))
	synctest.Test(t, func(t *testing.T) {
		var out string
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			out, err = run(t, s, newRolloutStatusCommand, "sts/web")
		}()
		<-time.After(time.Second)
		settle(t, w)
		publish(t, w, client)
		<-done
		if err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != 2 {
			t.Fatalf("it prints %q, want two lines", out)
		}
		isLike(t, lines[0], "0 of 3 pods updated")
		isLike(t, lines[1], "web is rolled out: 3 pods are at")
	})
}

func TestRolloutStatusEnds(t *testing.T) {
	w := settled(t)
	setImage(w, "two")
	w.Sync()
	for name, tt := range map[string]struct {
		meanwhile func(*testing.T, *fake.Clientset)
		args      []string
		want      string
	}{
		"timeout": {func(*testing.T, *fake.Clientset) {}, []string{"--timeout=1m"}, "timed out after 1m0s: rolling out web-"},
		"deleted": {func(t *testing.T, client *fake.Clientset) {
			t.Helper()
			if err := client.Tracker().Delete(appsv1.SchemeGroupVersion.WithResource("statefulsets"), "default", "web"); err != nil {
				t.Fatal(err)
			}
		}, nil, "set default/web is gone"},
		"failed": {func(t *testing.T, client *fake.Clientset) {
			t.Helper()
			set := w.Set.DeepCopy()
			set.Status.Conditions = []appsv1.StatefulSetCondition{{
				Type: appsv1.StatefulSetProgressing, Status: corev1.ConditionFalse, Reason: "RolledBack", Message: "web-1 never became ready",
			}}
			if err := client.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("statefulsets"), set, "default"); err != nil {
				t.Fatal(err)
			}
		}, nil, "failed and was rolled back: web-1 never became ready; go on with: ordinal rollout retry sts/web -n default"},
	} {
		t.Run(name, func(t *testing.T) {
			s, client := sessionOf(w, newPolicyStore(t))
			synctest.Test(t, func(t *testing.T) {
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, err = run(t, s, newRolloutStatusCommand, append([]string{"sts/web"}, tt.args...)...)
				}()
				<-time.After(time.Second)
				tt.meanwhile(t, client)
				<-done
				isErrorLike(t, err, tt.want)
			})
		})
	}
}

// Whoever interrupts it needs no word about that.
func TestRolloutStatusIsInterrupted(t *testing.T) {
	w := settled(t)
	setImage(w, "two")
	w.Sync()
	s, _ := sessionOf(w, newPolicyStore(t))
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithTimeoutCause(t.Context(), time.Second, context.Canceled)
		defer interrupt()
		if err := s.rolloutStatus(ctx, io.Discard, "web", rolloutStatusOptions{watch: true}); !errors.Is(err, errSilent) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// Without permission to watch, it does not wait for ever.
func TestRolloutStatusWithoutPermission(t *testing.T) {
	w := settled(t)
	setImage(w, "two")
	s, client := sessionOf(w, newPolicyStore(t))
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("not for you"))
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := run(t, s, newRolloutStatusCommand, "sts/web")
		isErrorLike(t, err, "no permission: ")
	})
}

func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	line := &progressLine{out: &out, columns: 8}
	for _, text := range []string{"one", "one", "a long text"} {
		line.tell(text)
	}
	line.end()
	if got, want := out.String(), "\r\x1b[Kone\r\x1b[Ka long \n"; got != want {
		t.Errorf("on a terminal it is %q, want %q", got, want)
	}
	out.Reset()
	line = &progressLine{out: &out}
	for _, text := range []string{"one", "one", "two"} {
		line.tell(text)
	}
	line.end()
	if got, want := out.String(), "one\ntwo\n"; got != want {
		t.Errorf("elsewhere it is %q, want %q", got, want)
	}
}
