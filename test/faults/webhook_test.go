// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// brokenSets are many more than the controller has workers.
const brokenSets = 40

// Sets whose pods a webhook refuses, or keeps waiting until the API server gives up, do not hold up the others.
func TestBrokenWebhooks(t *testing.T) {
	c := newCluster(t, "--simulate", "--nodes", "2", "--pod-delay", "200ms")
	c.up()
	c.rollout("healthy-first") // a new cluster is slow at first
	alone := c.rollout("healthy-alone")
	t.Logf("a healthy set alone: %v", alone)
	for _, broken := range []struct{ name, url string }{
		{"closed", "https://127.0.0.1:1"},
		{"hanging", blackHole(t)},
	} {
		t.Run(broken.name, func(t *testing.T) {
			c := c.in(t)
			c.makeWebhook(broken.name, broken.url)
			for n := range brokenSets {
				c.makeSet(fmt.Sprintf("%s-%d", broken.name, n), map[string]string{"webhook": broken.name})
			}
			// A healthy one is made and rolled while all broken ones are tried for the first time, and then again and again.
			for n := range 3 {
				beside := c.rollout(fmt.Sprintf("healthy-%s-%d", broken.name, n))
				t.Logf("a healthy set beside the broken ones: %v", beside)
				if limit := 2*alone + 3*time.Second; beside > limit {
					t.Errorf("a healthy set took %v beside broken ones, want at most %v: alone it took %v", beside, limit, alone)
				}
			}
			c.eventually(patience, "a set is refused its pod", func() error { return c.isRefused(broken.name + "-0") })
			c.mendWebhook(broken.name)
			for n := range brokenSets {
				c.awaitSet(fmt.Sprintf("%s-%d", broken.name, n), 90*time.Second)
			}
		})
	}
}

// makeWebhook has the API server ask a server for leave to make pods with a label.
func (c *cluster) makeWebhook(name, url string) {
	c.Helper()
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    name + ".example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: &url},
			FailurePolicy:           new(admissionv1.Fail),
			SideEffects:             new(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds:          new(int32(10)),
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"webhook": name}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	if _, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(c.Context(), hook, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) mendWebhook(name string) {
	c.Helper()
	if err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// makeSet makes a set of three without volumes, whose pods have labels.
func (c *cluster) makeSet(name string, labels map[string]string) {
	c.Helper()
	selector := map[string]string{setLabel: name}
	all := map[string]string{setLabel: name}
	maps.Copy(all, labels)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(replicas)), ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: all},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}},
			},
		},
	}
	if _, err := c.client.AppsV1().StatefulSets(namespace).Create(c.Context(), set, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// rollout makes a set, rolls it to another template, and gives how long both took.
func (c *cluster) rollout(name string) time.Duration {
	c.Helper()
	began := time.Now()
	c.makeSet(name, nil)
	c.awaitSet(name, patience)
	patch := `{"spec":{"template":{"metadata":{"annotations":{"turn":"1"}}}}}`
	w := &walk{cluster: c}
	if err := w.patch(c.Context(), name, patch); err != nil {
		c.Fatal(err)
	}
	c.awaitSet(name, patience)
	return time.Since(began).Round(10 * time.Millisecond)
}

// awaitSet waits until a set is right.
func (c *cluster) awaitSet(name string, within time.Duration) {
	c.Helper()
	c.eventually(within, "set "+name+" is right", func() error {
		set, err := c.client.AppsV1().StatefulSets(namespace).Get(c.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := c.client.CoreV1().Pods(namespace).List(c.Context(), metav1.ListOptions{LabelSelector: setLabel + "=" + name})
		if err != nil {
			return err
		}
		return isRight(set, pods.Items)
	})
}

// isRefused is nil when an event tells that a set may not make its pod.
func (c *cluster) isRefused(name string) error {
	events, err := c.client.CoreV1().Events(namespace).List(c.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",type=Warning"})
	if err != nil {
		return err
	}
	if len(events.Items) == 0 {
		return errors.New("there is no warning")
	}
	return nil
}
