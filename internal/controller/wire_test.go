// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// answerOf is the answer of an API server that refuses, in one of the encodings that it has.
func answerOf(t *testing.T, message, mediaType string) *http.Response {
	t.Helper()
	status := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", errors.New(message)).Status()
	status.APIVersion, status.Kind = "v1", "Status"
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatalf("nothing encodes %s", mediaType)
	}
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersion{Version: "v1"}), &status)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Response{StatusCode: http.StatusForbidden, Status: "403 Forbidden", Body: io.NopCloser(bytes.NewReader(body))}
}

// A right that is missing is named once, with all that a role needs. A quota is none.
func TestMissingRightIsNamedOnce(t *testing.T) {
	const denied = `User "system:serviceaccount:o:c" cannot %s resource %q in API group %q in the namespace "default"`
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	sink, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the log cannot be read")
	}
	next := ""
	mediaType := runtime.ContentTypeJSON
	w := &wire{}
	client := w.look(roundTripper(func(*http.Request) (*http.Response, error) { return answerOf(t, next, mediaType), nil }))
	refuse := func(path, message string) {
		t.Helper()
		next = message
		r, err := http.NewRequestWithContext(klog.NewContext(t.Context(), logger), http.MethodPost, "http://server"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		// The answer is whole, for who has asked.
		body, err := io.ReadAll(answer.Body)
		if err = errors.Join(err, answer.Body.Close()); err != nil || !bytes.Contains(body, []byte("is forbidden")) {
			t.Errorf("the answer is %q, %v", body, err)
		}
	}
	refuse("/api/v1/namespaces/default/events", fmt.Sprintf(denied, "create", "events", ""))
	refuse("/api/v1/namespaces/default/events", fmt.Sprintf(denied, "create", "events", ""))
	mediaType = runtime.ContentTypeProtobuf
	refuse("/apis/apps/v1/namespaces/default/statefulsets/web/status", fmt.Sprintf(denied, "update", "statefulsets/status", "apps"))
	refuse("/api/v1/pods", `User "u" cannot list resource "pods" in API group "" at the cluster scope`)
	refuse("/api/v1/namespaces/default/pods", "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")
	refuse("/api/v1/namespaces/default/pods", "violates PodSecurity: a user cannot run as root")
	const owner = "cannot set an ownerRef on a resource you can't delete: , <nil>"
	refuse("/apis/apps/v1/namespaces/default/controllerrevisions/web-1", owner)
	refuse("/api/v1/namespaces/default/pods/web-0", owner)
	const finalizers = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"
	refuse("/api/v1/namespaces/default/pods/web-0", finalizers)
	refuse("/api/v1/namespaces/default/persistentvolumeclaims/data-web-0", finalizers)

	var got []string
	for _, entry := range sink.GetBuffer().Data() {
		values := map[string]any{}
		for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
			values[fmt.Sprint(entry.ParameterKVList[i])] = entry.ParameterKVList[i+1]
		}
		got = append(got, fmt.Sprintf("%s: %v %v %v", entry.Message[:18], values["user"], values["namespace"], values["rule"]))
	}
	want := []string{
		`A right is missing: system:serviceaccount:o:c default {apiGroups: [""], resources: ["events"], verbs: ["create"]}`,
		`A right is missing: system:serviceaccount:o:c default {apiGroups: ["apps"], resources: ["statefulsets/status"], verbs: ["update"]}`,
		`A right is missing: u  {apiGroups: [""], resources: ["pods"], verbs: ["list"]}`,
		`A right is missing:  default {apiGroups: ["apps"], resources: ["controllerrevisions"], verbs: ["delete"]}`,
		`A right is missing:  default {apiGroups: [""], resources: ["pods"], verbs: ["delete"]}`,
		`A right is missing:  default {apiGroups: ["apps"], resources: ["statefulsets/finalizers"], verbs: ["update"]}`,
		`A right is missing:  default {apiGroups: [""], resources: ["pods/finalizers"], verbs: ["update"]}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("told is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What fails for long that is watched makes a controller not ready, and a watch that is dead makes it unhealthy.
func TestWatchesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, policies = "/api/v1/pods", "/apis/ordinal.dev/v1alpha1/statefulsetpolicies"
		w := &wire{}
		codes := map[string]int{}
		client := w.look(roundTripper(func(r *http.Request) (*http.Response, error) {
			if codes[r.URL.Path] == 0 {
				return nil, errors.New("connection refused")
			}
			code := codes[r.URL.Path]
			body, err := json.Marshal(metav1.Status{})
			return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(bytes.NewReader(body))}, err
		}))
		try := func(path, query string, code int) {
			codes[path] = code
			_ = ask(t.Context(), t, client, http.MethodGet)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+path+query, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if answer, err := client.RoundTrip(r); err == nil {
				answer.Body.Close()
			}
		}
		expect := func(alive, ready string) {
			t.Helper()
			for what, got := range map[string]struct {
				err  error
				want string
			}{"alive": {w.alive(), alive}, "ready": {w.ready(), ready}} {
				if (got.err == nil) != (got.want == "") || !strings.Contains(fmt.Sprint(got.err), got.want) {
					t.Errorf("%s is %v, want %q", what, got.err, got.want)
				}
			}
		}
		try(pods, "?watch=true", http.StatusOK)
		try(policies, "?watch=true", http.StatusNotFound)
		expect("", "")
		// An API server that is started anew.
		try(pods, "?watch=true", 0)
		pass(30 * time.Second)
		try(pods, "?resourceVersion=0", 0)
		expect("", "")
		pass(40 * time.Second)
		expect("", "/api/v1/pods could not be watched for 1m10s: connection refused")
		try(pods, "?watch=true", http.StatusOK)
		expect("", "")
		// One that refuses.
		try(pods, "?watch=true", http.StatusForbidden)
		pass(2 * time.Minute)
		expect("", "/api/v1/pods could not be watched for 2m0s")
		try(pods, "?watch=true", http.StatusOK)
		pass(9 * time.Minute)
		try(policies, "?watch=true", http.StatusNotFound)
		expect("", "")
		pass(7 * time.Minute)
		expect("the watch of /api/v1/pods is dead: it was begun 16m0s ago", "")
		// What is read but once is no watch.
		try(pods+"/web-0", "", 0)
		pass(2 * time.Minute)
		expect("the watch of /api/v1/pods is dead", "")
	})
}

// The versions that are said to be tried end with the one of the libraries.
func TestNewestVersion(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`k8s.io/client-go v0\.(\d+)`).FindSubmatch(text)
	if len(found) < 2 || string(found[1]) != strconv.Itoa(newestMinor) {
		t.Errorf("the newest version that was tried is 1.%d, and client-go is %q", newestMinor, found)
	}
	for minor, want := range map[string]bool{"33": false, "34": true, "34+": true, "37": true, "38": false, "x": false} {
		if got := isTried("1", minor); got != want {
			t.Errorf("1.%s is tried: %v", minor, got)
		}
	}
	if isTried("2", "35") {
		t.Error("2.35 is tried")
	}
}
