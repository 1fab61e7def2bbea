// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/controller"
)

// The controller has the rights that it uses, and no more: with all of them nothing that it does is refused, and each of them is
// missed when it is taken away. It runs alone, as the controller that the other tests share would do the work in its place.
func TestRights(t *testing.T) {
	learned := learnRevision(t)
	if err := env.controller.stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.controller.start(); err != nil {
			t.Error(err)
		}
	})
	all := rightsOf(controller.ClusterRole())
	t.Run("with", func(t *testing.T) {
		for name, old := range map[string]bool{"all": false, "all, at an older server": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				trial := newTrial(t, right{}, old)
				trial.play(learned)
				trial.awaitUse(all)
			})
		}
	})
	t.Run("without", func(t *testing.T) {
		for _, missing := range all {
			t.Run(missing.String(), func(t *testing.T) {
				t.Parallel()
				// One that can watch from the start on asks for lists only if the server is older.
				trial := newTrial(t, missing, missing.verb == "list")
				trial.play(learned)
				trial.awaitDenial()
			})
		}
	})
}

// right is one verb on one resource.
type right struct{ group, resource, verb string }

func (r right) String() string { return r.verb + " " + strings.TrimSuffix(r.resource+"."+r.group, ".") }

// rightsOf lists what a role allows, one by one.
func rightsOf(role *rbacv1.ClusterRole) []right {
	var all []right
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			all = append(all, right{rule.APIGroups[0], rule.Resources[0], verb})
		}
	}
	return all
}

// ownerRef is how admission refuses a change of owners for want of the right to delete what they own.
const ownerRef = "cannot set an ownerRef on a resource you can't delete"

// implied are the rights that no request is about, with the words in which they are missed: admission asks for them before it lets
// an object name its owners.
func implied() map[right]string {
	return map[right]string{
		{"", "persistentvolumeclaims", "delete"}:      ownerRef,
		{"apps", "statefulsets/finalizers", "update"}: "cannot set blockOwnerDeletion",
		{"", "pods/finalizers", "update"}:             "cannot set blockOwnerDeletion",
	}
}

// explains tells whether a refusal is for the lack of the right.
func (r right) explains(refusal string) bool {
	words := implied()[r]
	if words == "" && strings.Contains(refusal, fmt.Sprintf("cannot %s resource %q in API group %q", r.verb, r.resource, r.group)) {
		return true
	}
	if r.verb == "delete" {
		words = ownerRef
	}
	return words != "" && strings.Contains(refusal, words)
}

// trial is a controller of its own, which has a namespace to itself and sees no other.
type trial struct {
	*space
	missing right
	// old plays an API server that cannot send what there is as the beginning of a watch.
	old   bool
	infos request.RequestInfoFactory

	mu     sync.Mutex
	denied []string
	used   sets.Set[right]
	// once is closed at the first denial.
	once chan struct{}
}

func newTrial(t *testing.T, missing right, old bool) *trial {
	t.Helper()
	r := &trial{
		space: newSpace(t), missing: missing, old: old, used: sets.New[right](), once: make(chan struct{}),
		infos: request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
	}
	t.Cleanup(func() {
		err := env.client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), r.name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	r.grant()
	return r
}

// grant gives the trial's user, who is named like its namespace, all rights there but the missing one.
func (r *trial) grant() {
	r.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "trial"}}
	var kept right
	for _, one := range rightsOf(controller.ClusterRole()) {
		if one != r.missing {
			kept = one
			role.Rules = append(role.Rules, rbacv1.PolicyRule{
				APIGroups: []string{one.group}, Resources: []string{one.resource}, Verbs: []string{one.verb},
			})
		}
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: r.name}},
	}
	client := env.client.RbacV1()
	_, roleErr := client.Roles(r.name).Create(r.t.Context(), role, metav1.CreateOptions{})
	_, bindingErr := client.RoleBindings(r.name).Create(r.t.Context(), binding, metav1.CreateOptions{})
	if err := errors.Join(roleErr, bindingErr); err != nil {
		r.t.Fatal(err)
	}
	// The API server learns of rights through a cache. All of them are in one role.
	resource, subresource, _ := strings.Cut(kept.resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: r.name, Group: kept.group, Resource: resource, Subresource: subresource, Verb: kept.verb,
		},
	}}
	poll(r.t, "the rights are known", func(ctx context.Context) string {
		got, err := env.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return unless(err == nil && got.Status.Allowed, fmt.Sprint(got, err))
	})
}

// start runs the controller until the test ends.
func (r *trial) start() {
	r.t.Helper()
	cfg, err := env.As(pki.Subject{User: r.name})
	if err != nil {
		r.t.Fatal(err)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return trialTransport{next, r} })
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan error, 1)
	o := controller.Options{
		Defaulter: appsdefaults.SetObjectDefaults_StatefulSet, LeaderElect: true, LeaseNamespace: r.name, LeaseName: "trial",
	}
	go func() { ended <- controller.Run(ctx, cfg, o) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
}

// trialTransport keeps a controller within its namespace, and takes down which rights it uses and lacks.
type trialTransport struct {
	next  http.RoundTripper
	trial *trial
}

// RoundTrip passes a request on.
func (t trialTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	info, err := t.trial.infos.NewRequestInfo(r)
	if err != nil {
		return nil, err
	}
	resource := strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/")
	if info.IsResourceRequest && info.Namespace == "" {
		r = r.Clone(r.Context())
		r.URL.Path = strings.TrimSuffix(r.URL.Path, resource) + "namespaces/" + t.trial.name + "/" + resource
	}
	if t.trial.old && r.URL.Query().Get("sendInitialEvents") == "true" {
		return unprocessable(r), nil
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusForbidden {
		t.trial.uses(right{info.APIGroup, resource, info.Verb})
		return response, nil
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	t.trial.deny(fmt.Sprintf("%s %s: %s", r.Method, r.URL.Path, bytes.ReplaceAll(body, []byte(`\"`), []byte(`"`))))
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// unprocessable is what a server answers to a request with a field that it does not know.
func unprocessable(r *http.Request) *http.Response {
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`
	return &http.Response{
		StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}
}

func (r *trial) uses(one right) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used.Insert(one)
}

func (r *trial) deny(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.denied = append(r.denied, text); len(r.denied) == 1 {
		close(r.once)
	}
}

// denials are the refusals so far.
func (r *trial) denials() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.denied)
}

// learnRevision gives the revision that the set "taken" makes of its template.
func learnRevision(t *testing.T) *appsv1.ControllerRevision {
	t.Helper()
	s := newSpace(t)
	s.create(newSet(of("taken"), replicas(0)))
	s.settled("taken")
	// Sets and revisions are watched apart.
	made := s.until("there is a revision", func(w world) string { return unless(len(w.revisions) > 0, "there is none") }).revisions
	s.remove("taken", metav1.DeletePropagationForeground)
	s.untilGone("the set", func(w world) bool { return len(w.sets) == 0 })
	for _, r := range made {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: r.Name}, Data: r.Data, Revision: r.Revision}
	}
	t.Fatal("there is no revision")
	return nil
}

// play lets the controller do all that it ever does, or as much of it as is needed until something is refused.
func (r *trial) play(taken *appsv1.ControllerRevision) {
	r.t.Helper()
	// A pod that is to be adopted; a revision whose name another wants, with the same content, and that the set does not see.
	r.stranger("web-0", "web")
	_, err := env.client.AppsV1().ControllerRevisions(r.name).Create(r.t.Context(), taken, metav1.CreateOptions{})
	if err == nil {
		policy := newPolicy(r.t, "evict", fmt.Sprintf(rolloutOf, `{"disruption":"Evict"}`))
		_, err = policies(r.t, r.name).Create(r.t.Context(), policy, metav1.CreateOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.create(newSet(parallel, replicas(2), withClaims, func(set *appsv1.StatefulSet) {
		set.Spec.RevisionHistoryLimit = new(int32(0))
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		}
	}))
	r.create(newSet(of("web"), replicas(1)))
	r.create(newSet(of("taken"), replicas(0)))
	r.start()
	for _, edit := range []func(){
		func() {},
		// Pods are removed, by eviction and without, and a revision that is not kept.
		func() { r.retemplate("db", "2"); r.retemplate("web", "2") },
		// A revision is used again, and a claim gets an owner.
		func() { r.scale("db", 1); r.retemplate("web", "1") },
	} {
		edit()
		if !r.reach() {
			return
		}
	}
}

// reach waits until the sets have settled; false if something is refused before.
func (r *trial) reach() bool {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		moved, lack := r.ask(func(w world) string { return r.unsettled(w, "db") + r.unsettled(w, "web") })
		if lack == "" {
			return true
		}
		select {
		case <-moved:
		case <-r.once:
			return false
		case <-ctx.Done():
			r.t.Fatalf("the sets do not settle: %s", lack)
		}
	}
}

// awaitUse waits until all rights are used that are of use at this server. None may be lacking.
func (r *trial) awaitUse(all []right) {
	r.t.Helper()
	poll(r.t, "all rights are used", func(context.Context) string {
		r.mu.Lock()
		used := r.used.Clone()
		r.mu.Unlock()
		if denied := r.denials(); len(denied) > 0 {
			r.t.Fatalf("refused although nothing is missing: %q", denied)
		}
		left := slices.DeleteFunc(slices.Clone(all), func(one right) bool {
			_, silent := implied()[one]
			return used.Has(one) || silent || one.verb == "list" && !r.old
		})
		return unless(len(left) == 0, fmt.Sprintf("left are %v", left))
	})
}

// awaitDenial waits until the missing right is missed. Nothing else may be.
func (r *trial) awaitDenial() {
	r.t.Helper()
	poll(r.t, r.missing.String()+" is missed", func(context.Context) string {
		return unless(len(r.denials()) > 0, "nothing is refused")
	})
	for _, text := range r.denials() {
		if !r.missing.explains(text) {
			r.t.Errorf("without %s, refused is: %q", r.missing, text)
		}
	}
}
