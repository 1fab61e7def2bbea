// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
)

const (
	// deadWatch is after how long without a new one a watch is dead. client-go lets each last ten minutes at most.
	deadWatch = 15 * time.Minute
	// deafWatch is for how long a watch may fail until it is told: an API server that is started anew takes its time.
	deafWatch = time.Minute
)

// wire looks at what goes to the API server and back: which rights are missing, and how the watches fare.
type wire struct {
	mu sync.Mutex
	// missing are the rights that were told to be missing.
	missing map[right]bool
	// watches are by the path that is watched.
	watches map[string]stream
}

// right is what the API server does not allow.
type right struct {
	user, verb, group, resource string
	// namespace is empty for the whole cluster.
	namespace string
}

// stream is how the watch of one kind of object fares.
type stream struct {
	// tried is when it was last begun, or the list before it; failing since when that fails, and err why.
	tried, failing time.Time
	err            error
}

// look is a client that is looked at.
func (w *wire) look(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		// Of all that is read, only watches, and the lists before them, say how.
		isWatch := r.Method == http.MethodGet && r.URL.RawQuery != ""
		answer, err := next.RoundTrip(r)
		var problem error
		switch {
		case err != nil:
			problem = err
		case answer.StatusCode == http.StatusForbidden:
			problem = w.refused(r, answer)
		case answer.StatusCode >= http.StatusBadRequest:
			problem = errors.New(answer.Status)
		}
		if isWatch && r.Context().Err() == nil {
			w.watched(r.URL.Path, problem, time.Now())
		}
		return answer, err
	})
}

// watched takes note of how the beginning of a watch, or the list before it, ended.
func (w *wire) watched(path string, problem error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches == nil {
		w.watches = map[string]stream{}
	}
	one := stream{tried: now, err: problem}
	if problem != nil {
		if one.failing = w.watches[path].failing; one.failing.IsZero() {
			one.failing = now
		}
	}
	w.watches[path] = one
}

// alive fails if a watch has died without a word.
func (w *wire) alive() error {
	return w.each(func(path string, one stream) error {
		if silence := time.Since(one.tried); silence > deadWatch {
			return fmt.Errorf("the watch of %s is dead: it was begun %s ago", path, silence.Round(time.Second))
		}
		return nil
	})
}

// ready fails if something cannot be watched. Policies need not be there, nor be ours to read.
func (w *wire) ready() error {
	return w.each(func(path string, one stream) error {
		if one.err == nil || time.Since(one.failing) < deafWatch || strings.HasSuffix(path, "/"+v1alpha1.Resource) {
			return nil
		}
		return fmt.Errorf("%s could not be watched for %s: %w", path, time.Since(one.failing).Round(time.Second), one.err)
	})
}

// each checks all watches.
func (w *wire) each(check func(string, stream) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(w.watches)) {
		errs = append(errs, check(path, w.watches[path]))
	}
	return errors.Join(errs...)
}

// refused reads a refusal, and names the right for lack of which it was made, once. Quotas and other rules refuse in the same way,
// and are none of it.
func (w *wire) refused(r *http.Request, answer *http.Response) error {
	body, err := io.ReadAll(answer.Body)
	closeErr := answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if err = errors.Join(err, closeErr); err != nil {
		return err
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	status, ok := obj.(*metav1.Status)
	if err != nil || !ok {
		return errors.New(answer.Status)
	}
	for _, missing := range missingIn(status, r) {
		if !w.isNew(missing) {
			continue
		}
		klog.FromContext(r.Context()).Error(nil, "A right is missing. What needs it is tried again, and all else goes on",
			"user", missing.user, "verb", missing.verb, "resource", missing.resource, "apiGroup", missing.group,
			"namespace", missing.namespace, "rule", missing.rule())
	}
	return errors.New(status.Message)
}

func (w *wire) isNew(missing right) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing[missing] {
		return false
	}
	if w.missing == nil {
		w.missing = map[right]bool{}
	}
	w.missing[missing] = true
	return true
}

// rule is the rule that a role lacks.
func (m right) rule() string {
	return fmt.Sprintf("{apiGroups: [%q], resources: [%q], verbs: [%q]}", m.group, m.resource, m.verb)
}

// denial is how the API server words that a user lacks a right.
var denial = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)"(?: in the namespace "([^"]*)")?`)

// missingIn are the rights for lack of which a request was refused; none if it was refused for something else.
func missingIn(s *metav1.Status, r *http.Request) []right {
	if found := denial.FindStringSubmatch(s.Message); found != nil {
		return []right{{user: found[1], verb: found[2], resource: found[3], group: found[4], namespace: found[5]}}
	}
	// Where admission checks owners, only who may delete an object may change those it has, and only who may update the finalizers of
	// an owner may name it as one whose deletion waits. It does not say whose: claims belong to sets and to pods.
	resource, namespace := resourceOf(r.URL.Path)
	finalizers := right{verb: "update", group: "apps", resource: "statefulsets/finalizers", namespace: namespace}
	switch {
	case strings.Contains(s.Message, "cannot set an ownerRef on a resource you can't delete"):
		return []right{{verb: "delete", resource: resource, group: groupOf(resource), namespace: namespace}}
	case !strings.Contains(s.Message, "cannot set blockOwnerDeletion"):
		return nil
	case resource == "persistentvolumeclaims":
		return []right{finalizers, {verb: "update", resource: "pods/finalizers", namespace: namespace}}
	default:
		return []right{finalizers}
	}
}

// resourceOf are the resource and the namespace of a path such as /api/v1/namespaces/default/pods/web-0.
func resourceOf(path string) (resource, namespace string) {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	parts := strings.Split(rest, "/")
	if len(parts) < 2 {
		return "", ""
	}
	return parts[1], parts[0]
}

func groupOf(resource string) string {
	if resource == "controllerrevisions" {
		return "apps"
	}
	return ""
}
