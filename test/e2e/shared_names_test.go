// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// A pod is called by its own name and its set's Service, whatever the template says.
func TestHostnames(t *testing.T) {
	s := onShared(t)
	named := func(set *appsv1.StatefulSet) {
		withoutClaims(set)
		set.Spec.Template.Spec.Hostname, set.Spec.Template.Spec.Subdomain = "foo", "bar"
	}
	fully := func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.SetHostnameAsFQDN = new(true) }
	domain := func(service string) string { return service + "." + s.name + ".svc.cluster.local" }

	t.Run("template names a host", func(t *testing.T) {
		s := s.in(t)
		s.webOf(1, named)
		if got, want := s.exec("web-0", "hostname; hostname -f"), "web-0\nweb-0."+domain("web-svc"); got != want {
			t.Errorf("web-0 is called %q, want %q", got, want)
		}
		s.removeWeb()
	})
	t.Run("full name", func(t *testing.T) {
		s := s.in(t)
		s.webOf(1, withoutClaims, fully)
		if got, want := s.exec("web-0", "hostname"), "web-0."+domain("web-svc"); got != want {
			t.Errorf("web-0 is called %q, want %q", got, want)
		}
		s.removeWeb()
	})
	t.Run("full name without a Service", func(t *testing.T) {
		s := s.in(t)
		s.webOf(1, withoutClaims, fully, func(set *appsv1.StatefulSet) { set.Spec.ServiceName = "" })
		if got := s.exec("web-0", "hostname"); got != "web-0" {
			t.Errorf("web-0 is called %q", got)
		}
		s.removeWeb()
	})
	// A host's name may have 64 characters.
	room := 64 - len("web-0."+domain(""))
	service := func(length int) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) { set.Spec.ServiceName = strings.Repeat("s", length) }
	}
	t.Run("full name of 64 characters", func(t *testing.T) {
		s := s.in(t)
		s.webOf(1, withoutClaims, fully, service(room))
		if got := s.exec("web-0", "hostname"); len(got) != 64 || !strings.HasPrefix(got, "web-0.sss") {
			t.Errorf("web-0 is called %q", got)
		}
		s.removeWeb()
	})
	t.Run("full name of 65 characters", func(t *testing.T) {
		s := s.in(t)
		s.apply(s.webSet(withoutClaims, fully, replicas(1), service(room+1)))
		s.eventually(patience, "an event tells that the name is too long", func() error {
			events := s.kubectl("get", "events", "--field-selector=involvedObject.kind=Pod,involvedObject.name=web-0,type=Warning")
			if !strings.Contains(events, "too long") {
				return fmt.Errorf("events are:\n%s", events)
			}
			return nil
		})
		if pod := s.pods()["web-0"]; pod.Status.Phase != corev1.PodPending {
			t.Errorf("web-0 is %s", pod.Status.Phase)
		}
	})
}

// removeWeb deletes the set and waits until its pods are gone.
func (s *space) removeWeb() {
	s.Helper()
	s.kubectl("delete", "sts", "web")
	s.kubectl("wait", "pod", "-l", "app=my-app", "--for=delete", "--timeout="+patience.String())
}

// A set's name either works, or is refused, or an event on the set says why it has no pods.
func TestNamesAtTheirLimits(t *testing.T) { //nolint:tparallel // tests on the shared cluster run one by one, but these cases do not meet
	s := onShared(t)
	long := func(n int) string { return strings.Repeat("n", n) }
	rename := func(name string) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) {
			set.Name = name
			set.Spec.Selector.MatchLabels = map[string]string{"name": label(name)}
			set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
		}
	}
	claimed := func(set *appsv1.StatefulSet) {
		set.Spec.VolumeClaimTemplates[0].Name = long(63)
		set.Spec.Template.Spec.Containers[0].VolumeMounts[0].Name = long(63)
	}
	works, refused, either := "works", "refused", "works or tells why not"
	for _, test := range []struct {
		title string
		set   *appsv1.StatefulSet
		want  string
	}{
		{"short", s.webSet(withoutClaims, rename("w")), works},
		{"a digit first", s.webSet(withoutClaims, rename("9db")), works},
		{"51 characters", s.webSet(withoutClaims, rename(long(51))), works},
		{"52 characters", s.webSet(withoutClaims, rename(long(52))), works},
		{"53 characters", s.webSet(withoutClaims, rename(long(53))), either},
		{"57 characters", s.webSet(withoutClaims, rename(long(57))), either},
		{"61 characters", s.webSet(withoutClaims, rename(long(61))), either},
		{"63 characters", s.webSet(withoutClaims, rename(long(63))), either},
		{"64 characters", s.webSet(withoutClaims, rename(long(64))), either},
		{"254 characters", s.webSet(withoutClaims, rename(long(254))), refused},
		{"a capital", s.webSet(withoutClaims, rename("Db")), refused},
		{"a dot", s.webSet(withoutClaims, rename("a.b")), either},
		{"Service of 63 characters", s.webSet(withoutClaims, rename("service"), func(set *appsv1.StatefulSet) { set.Spec.ServiceName = long(63) }), works},
		{"claim template of 63 characters", s.webSet(claimed, rename("claim")), works},
	} {
		t.Run(test.title, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			*test.set.Spec.Replicas = 1
			got, why := s.outcome(test.set)
			t.Logf("it %s %s", got, why)
			if got == "stays without pods, silently" || test.want != either && got != test.want {
				t.Errorf("it %s, want: %s\n%s", got, test.want, why)
			}
			s.try("delete", "sts", test.set.Name, "--wait=false")
		})
	}
}

// label is a label value that stands for a name.
func label(name string) string { return fmt.Sprintf("%.3s-%d", strings.ToLower(name), len(name)) }

var limit = regexp.MustCompile(`(?i)must be no more than|must not be more than|may not be more than|must consist of|too long|Invalid value|at most [0-9]+|is no host name`)

// outcome applies a set of one and tells what becomes of it, and what is said about it.
func (s *space) outcome(set *appsv1.StatefulSet) (what, why string) {
	s.Helper()
	if err := s.tryApply(set); err != nil {
		if !limit.MatchString(err.Error()) {
			s.Errorf("the refusal does not tell the limit: %v", err)
		}
		return "refused", err.Error()
	}
	what, why = "stays without pods, silently", ""
	s.eventually(patience, "it works or says why not", func() error {
		if now := get[appsv1.StatefulSet](s, "sts", set.Name); now.Status.ReadyReplicas == 1 {
			what = "works"
			return nil
		}
		events := s.eventsOf("StatefulSet", set.Name)
		if i := strings.Index(events, "FailedCreate"); i >= 0 && limit.MatchString(events[i:]) {
			what, why = "tells why not", events
			return nil
		}
		return fmt.Errorf("events are:\n%s", events)
	})
	return what, why
}

// eventsOf are the reasons and messages of the events about an object, one a line.
func (s *space) eventsOf(kind, name string) string {
	s.Helper()
	var text strings.Builder
	for _, event := range get[corev1.EventList](s, "events").Items {
		if event.InvolvedObject.Kind == kind && event.InvolvedObject.Name == name {
			fmt.Fprintf(&text, "%s %s\n", event.Reason, event.Message)
		}
	}
	return text.String()
}
