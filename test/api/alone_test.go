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
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/controller"
)

// alone stops the controller that the tests share until the test ends. The test must not be parallel.
func alone(t *testing.T) {
	t.Helper()
	if err := env.controller.stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.controller.start(); err != nil {
			t.Error(err)
		}
	})
}

// newLoneSpace makes a namespace that goes with the test, so that the controller that the tests share has nothing to do in it.
func newLoneSpace(t *testing.T) *space {
	t.Helper()
	s := newSpace(t)
	t.Cleanup(func() {
		err := env.client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), s.name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return s
}

// solo is a controller of its own, with its own user, rights and log.
type solo struct {
	t    *testing.T
	user string
	// options are those that it runs with, and wrap what its requests go through.
	options controller.Options
	wrap    func(http.RoundTripper) http.RoundTripper
	log     ktesting.Buffer
	cancel  context.CancelFunc
	ended   chan error
}

func newSolo(t *testing.T, user string, o controller.Options) *solo {
	t.Helper()
	o.Defaulter = appsdefaults.SetObjectDefaults_StatefulSet
	return &solo{t: t, user: user, options: o, wrap: func(next http.RoundTripper) http.RoundTripper { return next }}
}

// start runs it until the test ends, or until it ends by itself.
func (s *solo) start() {
	s.t.Helper()
	cfg, err := env.As(pki.Subject{User: s.user})
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.Wrap(s.wrap)
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	sink, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		s.t.Fatal("the log cannot be read")
	}
	s.log = sink.GetBuffer()
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(s.t.Context()), logger))
	s.cancel, s.ended = cancel, make(chan error, 1)
	var once sync.Once
	go func() { s.ended <- controller.Run(ctx, cfg, s.options) }()
	stop := s.cancel
	s.cancel = func() {
		stop()
		once.Do(func() { s.ended <- <-s.ended })
	}
	s.t.Cleanup(s.cancel)
}

// missing are the rules that it said to lack, each once.
func (s *solo) missing() []string {
	var rules []string
	for _, entry := range s.log.Data() {
		if !strings.HasPrefix(entry.Message, "A right is missing") {
			continue
		}
		values := map[string]any{}
		for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
			values[fmt.Sprint(entry.ParameterKVList[i])] = entry.ParameterKVList[i+1]
		}
		rules = append(rules, fmt.Sprintf("%v %v", values["namespace"], values["rule"]))
	}
	slices.Sort(rules)
	return rules
}

// grant lets a user have rights in a namespace, or in all of them if that is empty, and waits until they are known.
func grant(t *testing.T, user, namespace string, rules []rbacv1.PolicyRule) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "solo-" + user}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name}
	client := env.client.RbacV1()
	var roleErr, bindingErr error
	if namespace == "" {
		ref.Kind = "ClusterRole"
		_, roleErr = client.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: rules}, metav1.CreateOptions{})
		_, bindingErr = client.ClusterRoleBindings().Create(t.Context(),
			&rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, roleErr = client.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: rules}, metav1.CreateOptions{})
		_, bindingErr = client.RoleBindings(namespace).Create(t.Context(),
			&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err := errors.Join(roleErr, bindingErr); err != nil {
		t.Fatal(err)
	}
	last := rules[len(rules)-1]
	resource, subresource, _ := strings.Cut(last.Resources[0], "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Group: last.APIGroups[0], Resource: resource, Subresource: subresource, Verb: last.Verbs[0],
		},
	}}
	poll(t, "the rights are known", func(ctx context.Context) string {
		got, err := env.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return unless(err == nil && got.Status.Allowed, fmt.Sprint(got, err))
	})
}
