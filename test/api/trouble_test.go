// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
)

// A pod that is refused for want of a service account comes as soon as there is one, or the set no longer wants it.
func TestServiceAccountIsMissing(t *testing.T) {
	t.Parallel()
	account := func(name string) option {
		return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.ServiceAccountName = name }
	}
	t.Run("and comes", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.create(newSet(account("late")))
		s.told("FailedCreate", "db-0", `serviceaccount "late" not found`)
		late := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
		if _, err := env.client.CoreV1().ServiceAccounts(s.name).Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.settled("db")
	})
	t.Run("and is no longer wanted", func(t *testing.T) {
		t.Parallel()
		s := newSpace(t)
		s.create(newSet(account("never")))
		// By then, the next try is some seconds away.
		poll(t, "it was tried four times", func(ctx context.Context) string {
			n := len(s.events(ctx, "FailedCreate"))
			return unless(n >= 4, strconv.Itoa(n))
		})
		began := time.Now()
		s.patch("db", `{"spec":{"template":{"spec":{"serviceAccountName":"default","serviceAccount":"default"}}}}`)
		s.until("db-0 is there", func(w world) string { return unless(w.pods["db-0"] != nil, "it is not") })
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("after the set was mended, it took %v until it was tried again", took)
		}
		s.settled("db")
	})
}

// A webhook that hangs holds up only the set whose pods it is asked about.
func TestWebhookHangs(t *testing.T) {
	t.Parallel()
	s, other := newSpace(t), newSpace(t)
	asked, answer := make(chan struct{}, 1000), make(chan struct{})
	var ended atomic.Int32
	remove := s.webhook(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		ended.Add(1)
		http.Error(w, "the webhook is broken", http.StatusInternalServerError)
	})
	s.create(newSet(parallel))
	<-asked
	other.create(newSet())
	other.settled("db")
	if n := ended.Load(); n > 0 || len(s.look().pods) > 0 {
		t.Errorf("the other set had to wait until the webhook had answered %d times", n)
	}
	close(answer)
	s.told("FailedCreate", "db-0", "failed calling webhook")
	remove()
	s.settled("db")
}

// webhook is asked before a pod of the space is created, from now on until the function is called that it gives.
func (s *space) webhook(handle http.HandlerFunc) func() {
	s.t.Helper()
	pair, err := env.CA.Issue(pki.Subject{User: "webhook", IPs: []net.IP{net.ParseIP(loopback)}}, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handle)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	s.t.Cleanup(server.Close)
	hooks := env.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:              "hangs.example.com",
			ClientConfig:      admissionv1.WebhookClientConfig{URL: new(server.URL), CABundle: env.CA.PEM()},
			Rules:             []admissionv1.RuleWithOperations{podCreations()},
			NamespaceSelector: s.onlyHere(), SideEffects: new(admissionv1.SideEffectClassNone),
			TimeoutSeconds: new(int32(30)), FailurePolicy: new(admissionv1.Fail), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if _, err := hooks.Create(s.t.Context(), hook, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	remove := func() {
		if err := hooks.Delete(context.WithoutCancel(s.t.Context()), hook.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
	}
	s.t.Cleanup(remove)
	return remove
}

// Others kill and edit pods, scale, and write the status, and the controller is started anew: in the end all is as the spec
// wants it, and no pod was in the way of its own set: https://github.com/kubernetes/kubernetes/issues/136812.
//
// It restarts the controller, so it does not run beside others.
func TestOthersInterfere(t *testing.T) {
	s := newSpace(t)
	s.create(newSet(parallel, replicas(20)))
	s.settled("db")
	random := rand.New(rand.NewPCG(1, 2))
	pods, sets := env.client.CoreV1().Pods(s.name), env.client.AppsV1().StatefulSets(s.name)
	interfere := func(round int) error {
		ctx, name := t.Context(), fmt.Sprintf("db-%d", random.IntN(20))
		switch random.IntN(4) {
		case 0, 1:
			return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		case 2:
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"},"annotations":{"round":"%d"}}}`, round, round)
			_, err := pods.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		default:
			patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Others","status":"True","reason":"Round%d"}]}}`, round)
			_, err := sets.Patch(ctx, "db", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		}
	}
	scales := map[int]int{60: 5, 120: 20, 180: 5, 240: 20}
	round := 0
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		if err := interfere(round); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return false, err
		}
		if n, ok := scales[round]; ok {
			s.scale("db", n)
		}
		if round%90 == 45 {
			restartController(t)
		}
		round++
		return round == 300, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w := s.settled("db")
	for n := range 20 {
		if w.pods[fmt.Sprintf("db-%d", n)] == nil {
			t.Errorf("db-%d is missing", n)
		}
	}
	if len(w.pods) != 20 {
		t.Errorf("there are %d pods", len(w.pods))
	}
	if events := s.events(t.Context(), "FailedCreate"); len(events) > 0 {
		t.Errorf("events are %s", strings.Join(events, "\n"))
	}
	conditions := w.sets["db"].Status.Conditions
	if len(conditions) == 0 || conditions[0].Type != "Others" {
		t.Errorf("the others' condition is lost: %v", conditions)
	}
}
