// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

const namespace = "default"

// server is an API server that answers each call with what the test says.
type server struct {
	*Applier
	client *fake.Clientset
	events *record.FakeRecorder
	mu     sync.Mutex
	calls  []string
}

// newServer makes a server that holds these objects, and answers calls by errors where there are any.
func newServer(t *testing.T, answer func(clienttesting.Action) error, objects ...runtime.Object) *server {
	t.Helper()
	s := &server{client: fake.NewClientset(objects...), events: record.NewFakeRecorder(100)}
	s.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls = append(s.calls, describe(a))
		if answer == nil {
			return false, nil, nil
		}
		err := answer(a)
		return err != nil, nil, err
	})
	informers, err := observe.NewInformers(s.client, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Applier = &Applier{
		Client: s.client, Recorder: s.events, Watermark: observe.NewWatermark(informers), Metrics: telemetry.New(),
	}
	return s
}

func describe(a clienttesting.Action) string {
	text := a.GetVerb() + " " + a.GetResource().Resource
	if s := a.GetSubresource(); s != "" {
		text += "/" + s
	}
	switch a := a.(type) {
	case clienttesting.PatchActionImpl:
		text += fmt.Sprintf(" %s %s %s", a.GetName(), a.GetPatchType(), a.GetPatch())
	case clienttesting.DeleteActionImpl:
		text += fmt.Sprintf(" %s if %s", a.GetName(), *a.GetDeleteOptions().Preconditions.UID)
	case clienttesting.CreateActionImpl:
		if e, ok := a.GetObject().(*policyv1.Eviction); ok {
			text += fmt.Sprintf(" %s/%s if %s", e.Namespace, e.Name, *e.DeleteOptions.Preconditions.UID)
		}
	}
	return text
}

var set = &appsv1.StatefulSet{
	ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace, UID: "set", ResourceVersion: "7"},
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: "uid"}}
}

func ref(kind plan.Kind, name string) plan.Ref {
	return plan.Ref{Kind: kind, Name: name, UID: "uid", ResourceVersion: "3"}
}

func one(actions ...plan.Action) plan.Plan {
	return plan.Plan{Steps: []plan.Step{{Chains: []plan.Chain{actions}}}}
}

// Each action makes one call, which has an effect only on the object that was planned for.
func TestCalls(t *testing.T) {
	owner := []metav1.OwnerReference{{Name: "o", UID: "owner"}}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "web-r", Namespace: namespace, UID: "uid"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: namespace, UID: "uid"}}
	set := set.DeepCopy()
	const strategic, merge = "application/strategic-merge-patch+json", "application/merge-patch+json"
	ownerJSON := `{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"set","controller":true,"blockOwnerDeletion":true}`
	tests := map[string]struct {
		action plan.Action
		want   []string
	}{
		"adopt pod": {
			plan.AdoptPod{Pod: ref(plan.KindPod, "web-0")},
			[]string{"get statefulsets", "patch pods web-0 " + strategic + ` {"metadata":{"ownerReferences":[` + ownerJSON + `],"resourceVersion":"3","uid":"uid"}}`},
		},
		"adopt revision": {
			plan.AdoptRevision{Revision: ref(plan.KindRevision, "web-r")},
			[]string{"get statefulsets", "patch controllerrevisions web-r " + strategic + ` {"metadata":{"ownerReferences":[` + ownerJSON + `],"resourceVersion":"3","uid":"uid"}}`},
		},
		"release pod": {
			plan.ReleasePod{Pod: ref(plan.KindPod, "web-0")},
			[]string{"patch pods web-0 " + strategic + ` {"metadata":{"ownerReferences":[{"$patch":"delete","uid":"set"}],"uid":"uid"}}`},
		},
		"label pod": {
			plan.LabelPod{Pod: ref(plan.KindPod, "web-0"), Labels: map[string]string{"a": "b"}},
			[]string{"patch pods web-0 " + merge + ` {"metadata":{"labels":{"a":"b"},"uid":"uid"}}`},
		},
		"own claim": {
			plan.OwnClaim{Claim: ref(plan.KindClaim, "data"), Owners: owner},
			[]string{"patch persistentvolumeclaims data " + merge +
				` {"metadata":{"ownerReferences":[{"apiVersion":"","kind":"","name":"o","uid":"owner"}],"resourceVersion":"3","uid":"uid"}}`},
		},
		"bump revision": {
			plan.BumpRevision{Revision: ref(plan.KindRevision, "web-r"), Number: 9},
			[]string{"patch controllerrevisions web-r " + merge + ` {"metadata":{"uid":"uid"},"revision":9}`},
		},
		"tell pod that it goes": {
			plan.TellPod{Pod: ref(plan.KindPod, "web-0"), Stop: "ScaleDown", At: time.Date(2026, 1, 2, 5, 4, 5, 0, time.FixedZone("", 7200))},
			[]string{"patch pods web-0 " + merge +
				` {"metadata":{"annotations":{"ordinal.dev/stop-at":"2026-01-02T03:04:05Z","ordinal.dev/stop-reason":"ScaleDown"},"uid":"uid"}}`},
		},
		"tell pod why it goes": {
			plan.TellPod{Pod: ref(plan.KindPod, "web-0"), Stop: "Update"},
			[]string{"patch pods web-0 " + merge +
				` {"metadata":{"annotations":{"ordinal.dev/stop-at":null,"ordinal.dev/stop-reason":"Update"},"uid":"uid"}}`},
		},
		"tell pod that it stays": {
			plan.TellPod{Pod: ref(plan.KindPod, "web-0")},
			[]string{"patch pods web-0 " + merge +
				` {"metadata":{"annotations":{"ordinal.dev/stop-at":null,"ordinal.dev/stop-reason":null},"uid":"uid"}}`},
		},
		"evict pod": {
			plan.DeletePod{Pod: ref(plan.KindPod, "web-0"), Evict: true},
			[]string{"create pods/eviction default/web-0 if uid"},
		},
		"delete pod":      {plan.DeletePod{Pod: ref(plan.KindPod, "web-0")}, []string{"delete pods web-0 if uid"}},
		"delete revision": {plan.DeleteRevision{Revision: ref(plan.KindRevision, "web-r")}, []string{"delete controllerrevisions web-r if uid"}},
		"create pod":      {plan.CreatePod{Pod: pod("web-1")}, []string{"create pods"}},
		"create claim": {
			plan.CreateClaim{Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: namespace}}},
			[]string{"create persistentvolumeclaims"},
		},
		"create revision": {
			plan.CreateRevision{Revision: &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "web-s", Namespace: namespace}}},
			[]string{"create controllerrevisions"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, set, pod("web-0"), revision, claim)
			outcomes := s.Apply(t.Context(), set, one(test.action))
			if len(outcomes) != 1 || outcomes[0].Result != plan.ResultDone {
				t.Fatalf("outcomes are %+v", outcomes)
			}
			if !slices.Equal(s.calls, test.want) {
				t.Errorf("calls are\n%q, want\n%q", s.calls, test.want)
			}
		})
	}
}

// All that an API server may answer, by kind of action.
func TestResults(t *testing.T) {
	pods := corev1.Resource("pods")
	notFound := apierrors.NewNotFound(pods, "x")
	conflict := apierrors.NewConflict(pods, "x", errors.New("uid"))
	exists := apierrors.NewAlreadyExists(pods, "x")
	invalid := func(path string) error {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "x",
			field.ErrorList{field.Invalid(field.NewPath(path), "", "")})
	}
	forbidden := apierrors.NewForbidden(pods, "x", errors.New("quota"))
	create := plan.CreatePod{Pod: pod("web-0")}
	remove := plan.DeletePod{Pod: ref(plan.KindPod, "web-0")}
	evict := plan.DeletePod{Pod: ref(plan.KindPod, "web-0"), Evict: true}
	budget := apierrors.NewForbidden(pods, "x", errors.New("its budget is negative"))
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}
	label := plan.LabelPod{Pod: ref(plan.KindPod, "web-0")}
	tell := plan.TellPod{Pod: ref(plan.KindPod, "web-0")}
	tests := []struct {
		action plan.Action
		err    error
		want   plan.Result
		event  string
	}{
		{create, nil, plan.ResultDone, "Normal SuccessfulCreate"},
		{create, exists, plan.ResultConflict, ""},
		{create, forbidden, plan.ResultFailed, "Warning FailedCreate"},
		{create, errors.New("connection refused"), plan.ResultFailed, "Warning FailedCreate"},
		{remove, nil, plan.ResultDone, "Normal SuccessfulDelete"},
		{remove, notFound, plan.ResultGone, "Normal SuccessfulDelete"},
		{remove, conflict, plan.ResultConflict, ""},
		{remove, forbidden, plan.ResultFailed, "Warning FailedDelete"},
		{evict, nil, plan.ResultDone, "Normal SuccessfulDelete"},
		{evict, apierrors.NewTooManyRequests("budget", 0), plan.ResultBlocked, ""},
		{evict, budget, plan.ResultBlocked, ""},
		{evict, notFound, plan.ResultGone, "Normal SuccessfulDelete"},
		{evict, conflict, plan.ResultConflict, ""},
		{evict, forbidden, plan.ResultFailed, "Warning FailedDelete"},
		{tell, nil, plan.ResultDone, ""},
		{tell, notFound, plan.ResultGone, ""},
		{tell, invalid("metadata.uid"), plan.ResultConflict, ""},
		{tell, forbidden, plan.ResultFailed, "Warning FailedUpdate"},
		{label, nil, plan.ResultDone, "Normal SuccessfulUpdate"},
		{label, notFound, plan.ResultGone, "Normal SuccessfulUpdate"},
		{label, conflict, plan.ResultConflict, ""},
		{label, invalid("metadata.uid"), plan.ResultConflict, ""},
		{label, invalid("metadata.labels"), plan.ResultFailed, "Warning FailedUpdate"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%T %v", test.action, test.err), func(t *testing.T) {
			var objects []runtime.Object
			if test.action != plan.Action(create) {
				objects = append(objects, pod("web-0"))
			}
			s := newServer(t, func(clienttesting.Action) error { return test.err }, objects...)
			o := s.Apply(t.Context(), set, one(test.action))
			if len(o) != 1 || o[0].Result != test.want || (o[0].Err != nil) != (test.err != nil) {
				t.Errorf("outcome is %+v, want %s", o, test.want)
			}
			event := ""
			select {
			case event = <-s.events.Events:
			default:
			}
			if !strings.HasPrefix(event, test.event) || (event == "") != (test.event == "") {
				t.Errorf("event is %q, want %q", event, test.event)
			}
		})
	}
}

func TestAdoptionNeedsALivingSet(t *testing.T) {
	going := set.DeepCopy()
	going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"x"}
	other := set.DeepCopy()
	other.UID = "other"
	tests := map[string]struct {
		objects []runtime.Object
		err     error
		want    plan.Result
	}{
		"living":      {[]runtime.Object{set.DeepCopy()}, nil, plan.ResultDone},
		"going":       {[]runtime.Object{going}, nil, plan.ResultConflict},
		"another":     {[]runtime.Object{other}, nil, plan.ResultConflict},
		"gone":        {nil, nil, plan.ResultConflict},
		"unreachable": {nil, errors.New("timeout"), plan.ResultFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(a clienttesting.Action) error {
				if a.GetVerb() == "get" {
					return test.err
				}
				return nil
			}, append(test.objects, pod("web-0"), pod("web-1"))...)
			p := one(plan.AdoptPod{Pod: ref(plan.KindPod, "web-0")}, plan.AdoptPod{Pod: ref(plan.KindPod, "web-1")})
			o := s.Apply(t.Context(), set, p)
			if o[0].Result != test.want {
				t.Errorf("outcome is %+v, want %s", o[0], test.want)
			}
			gets := slices.DeleteFunc(slices.Clone(s.calls), func(c string) bool { return !strings.HasPrefix(c, "get") })
			if len(gets) != 1 {
				t.Errorf("the set is asked for %d times", len(gets))
			}
		})
	}
}

func TestNameOfARevisionIsTaken(t *testing.T) {
	wanted := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "web-r", Namespace: namespace},
		Data:       runtime.RawExtension{Raw: []byte(`{"a":1}`)},
	}
	owned := func(kind, name string, data string) *appsv1.ControllerRevision {
		r := wanted.DeepCopy()
		r.UID, r.Data.Raw = "uid", []byte(data)
		if kind != "" {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
		}
		return r
	}
	tests := map[string]struct {
		existing *appsv1.ControllerRevision
		want     plan.Result
	}{
		"by nobody":               {owned("", "", `{"a":1}`), plan.ResultDone},
		"by an earlier set":       {owned("StatefulSet", "web", `{"a":1}`), plan.ResultDone},
		"by another set":          {owned("StatefulSet", "other", `{"a":1}`), plan.ResultCollision},
		"by another kind":         {owned("DaemonSet", "web", `{"a":1}`), plan.ResultCollision},
		"by another template":     {owned("StatefulSet", "web", `{"a":2}`), plan.ResultCollision},
		"by nobody, another data": {owned("", "", `{"a":2}`), plan.ResultCollision},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, test.existing)
			if o := s.Apply(t.Context(), set, one(plan.CreateRevision{Revision: wanted})); o[0].Result != test.want {
				t.Errorf("outcome is %+v, want %s", o[0], test.want)
			}
		})
	}
	s := newServer(t, func(a clienttesting.Action) error {
		if a.GetVerb() == "get" {
			return errors.New("timeout")
		}
		return nil
	}, owned("", "", `{"a":1}`))
	if o := s.Apply(t.Context(), set, one(plan.CreateRevision{Revision: wanted})); o[0].Result != plan.ResultFailed {
		t.Errorf("outcome is %+v", o[0])
	}
}

// failing is a plan of chains, each of which creates the pods that it names; those with an x are refused.
func failing(mode plan.Mode, chains ...string) plan.Step {
	s := plan.Step{Mode: mode}
	for _, c := range chains {
		var chain plan.Chain
		for name := range strings.FieldsSeq(c) {
			chain = append(chain, plan.CreatePod{Pod: pod(name)})
		}
		s.Chains = append(s.Chains, chain)
	}
	return s
}

func refuseX(a clienttesting.Action) error {
	if c, ok := a.(clienttesting.CreateActionImpl); ok {
		if p, ok := c.GetObject().(*corev1.Pod); ok && strings.HasPrefix(p.Name, "x") {
			return errors.New("no")
		}
	}
	return nil
}

func TestSteps(t *testing.T) {
	essential := failing(plan.Serial, "x1")
	essential.Essential = true
	always := failing(plan.Serial, "z")
	always.Always = true
	tests := map[string]struct {
		steps []plan.Step
		want  string
	}{
		"all in order":             {[]plan.Step{failing(plan.Serial, "a b", "c"), failing(plan.Serial, "d")}, "a b c d"},
		"a chain ends":             {[]plan.Step{failing(plan.Serial, "a x b", "c")}, "a x"},
		"later steps are left out": {[]plan.Step{failing(plan.Serial, "x"), failing(plan.SlowStart, "a"), always}, "x z"},
		"all is left out":          {[]plan.Step{essential, failing(plan.Serial, "a"), always}, "x1"},
		"batches of 1, 2 and 4":    {[]plan.Step{failing(plan.SlowStart, "a", "b", "c", "d", "x", "e", "f", "g", "h")}, "a b c d x e f"},
		"the rest of a batch":      {[]plan.Step{failing(plan.SlowStart, "a", "x b", "c", "d")}, "a x c"},
		"the first fails":          {[]plan.Step{failing(plan.SlowStart, "x", "a", "b")}, "x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, refuseX)
			var names []string
			for _, o := range s.Apply(t.Context(), set, plan.Plan{Steps: test.steps}) {
				names = append(names, o.Action.Target().Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("tried are %q, want %q", got, test.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	before := set.DeepCopy()
	before.Status.ReadyReplicas = 3
	s := newServer(t, nil, before)
	result, err := s.Status(t.Context(), set, appsv1.StatefulSetStatus{Replicas: 2, CurrentRevision: "a", CollisionCount: new(int32(1))})
	if result != plan.ResultDone || err != nil {
		t.Fatalf("result is %s, %v", result, err)
	}
	if want := []string{"update statefulsets/status"}; !slices.Equal(s.calls, want) {
		t.Errorf("calls are %q, want %q", s.calls, want)
	}
	got, err := s.client.AppsV1().StatefulSets(set.Namespace).Get(t.Context(), set.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// What is zero is told too.
	want := set.DeepCopy()
	want.Status = appsv1.StatefulSetStatus{Replicas: 2, CurrentRevision: "a", CollisionCount: new(int32(1))}
	if got.ResourceVersion = want.ResourceVersion; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the set is\n%v, want\n%v", got, want)
	}
	s = newServer(t, func(clienttesting.Action) error {
		return apierrors.NewConflict(appsv1.Resource("statefulsets"), "web", errors.New("changed"))
	})
	if result, err := s.Status(t.Context(), set, appsv1.StatefulSetStatus{}); result != plan.ResultConflict || err == nil {
		t.Errorf("result is %s, %v", result, err)
	}
}

func TestAnnounce(t *testing.T) {
	s := newServer(t, nil)
	s.Announce(set, plan.Wait{Reason: plan.WaitStarting, On: ref(plan.KindPod, "web-0")})
	s.Announce(set, plan.Wait{Reason: plan.WaitClaimTerminating, On: ref(plan.KindClaim, "data-web-0"), For: "web-0"})
	want := "Warning FailedCreate Create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted"
	if got := <-s.events.Events; got != want || len(s.events.Events) > 0 {
		t.Errorf("event is %q, want %q and no other", got, want)
	}
}

// A pod whose eviction is held up holds up what follows.
func TestHeldUpEviction(t *testing.T) {
	s := newServer(t, func(a clienttesting.Action) error {
		if a.GetSubresource() == "eviction" {
			return apierrors.NewTooManyRequests("budget", 0)
		}
		return nil
	}, pod("web-0"), pod("web-1"))
	evict, label := plan.DeletePod{Pod: ref(plan.KindPod, "web-1"), Evict: true}, plan.LabelPod{Pod: ref(plan.KindPod, "web-0")}
	p := one(evict, label)
	p.Steps = append(p.Steps, one(label).Steps...)
	if o := s.Apply(t.Context(), set, p); len(o) != 1 || o[0].Result != plan.ResultBlocked {
		t.Errorf("outcomes are %+v", o)
	}
	if !s.Watermark.IsReached(types.NamespacedName{Namespace: namespace, Name: set.Name}) {
		t.Error("the pod is waited for to go")
	}
	metrics, err := s.Metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(metrics); !strings.Contains(text, "EvictPod") || !strings.Contains(text, "Blocked") {
		t.Errorf("the metrics tell no such action: %s", text)
	}
}

// policies is an API server that holds one policy.
type policies struct {
	observe.PolicyAPI
	held *v1alpha1.StatefulSetPolicy
	err  error
}

func (p *policies) UpdateStatus(
	_ context.Context, next *v1alpha1.StatefulSetPolicy, _ metav1.UpdateOptions,
) (*v1alpha1.StatefulSetPolicy, error) {
	if p.err != nil {
		return nil, p.err
	}
	if next.ResourceVersion != p.held.ResourceVersion || next.UID != p.held.UID {
		return nil, apierrors.NewConflict(v1alpha1.GroupVersion().WithResource(v1alpha1.Resource).GroupResource(), next.Name, errors.New("version"))
	}
	p.held = next.DeepCopy()
	p.held.ResourceVersion = "8"
	return p.held, nil
}

func TestPolicyStatus(t *testing.T) {
	old := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace, UID: "uid", ResourceVersion: "7"}}
	old.Spec.TargetRef.Name = "web"
	old.Status.FailedRevision = "web-r"
	held := &policies{held: old}
	s := newServer(t, nil)
	client := func(string) observe.PolicyAPI { return held }
	informers, err := observe.NewInformers(s.client, client, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Policies, s.Watermark = client, observe.NewWatermark(informers)
	result, err := s.PolicyStatus(t.Context(), old, v1alpha1.StatefulSetPolicyStatus{ObservedGeneration: 3})
	if result != plan.ResultDone || err != nil {
		t.Fatalf("result is %s, %v", result, err)
	}
	if got := held.held; got.Status.FailedRevision != "" || got.Status.ObservedGeneration != 3 || old.Status.FailedRevision == "" {
		t.Errorf("the status is %+v, and that of the cache %+v", got.Status, old.Status)
	}
	if s.Watermark.IsReached(types.NamespacedName{Namespace: namespace, Name: "web"}) {
		t.Error("the caches are held to show the policy as written")
	}
	if result, err := s.PolicyStatus(t.Context(), old, v1alpha1.StatefulSetPolicyStatus{}); result != plan.ResultConflict || err == nil {
		t.Errorf("an old policy is written with %s, %v", result, err)
	}
	held.err = apierrors.NewForbidden(v1alpha1.GroupVersion().WithResource(v1alpha1.Resource).GroupResource(), "p", errors.New("no"))
	if result, err := s.PolicyStatus(t.Context(), old, v1alpha1.StatefulSetPolicyStatus{}); result != plan.ResultFailed || err == nil {
		t.Errorf("a refused policy is written with %s, %v", result, err)
	}
}
