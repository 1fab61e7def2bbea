// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestRelayShowsProgressAndTellsTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		told, shown, failure string
	}{
		"ready":                   {"one\ntwo\n" + readyMark, "one\ntwo\n", ""},
		"failed":                  {"one\n" + errorMark + "runc is missing;\nmend it\n", "one\n", "runc is missing;\nmend it"},
		"died without a word":     {"one\n", "one\n", errSilent.Error()},
		"died in half a sentence": {"one\ntw", "one\ntw", errSilent.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			shown := new(bytes.Buffer)
			err := relay(strings.NewReader(test.told), shown)
			if shown.String() != test.shown {
				t.Errorf("showed %q", shown)
			}
			if got := errorText(err); got != test.failure {
				t.Errorf("error is %q, want %q", got, test.failure)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestDetachedChildDoesNotDetachAgain(t *testing.T) {
	got := withoutDetach([]string{"--data-dir", "/d", "up", "--detach", "--api-port=7000", "--detach=true"})
	if want := []string{"--data-dir", "/d", "up", "--api-port=7000"}; !slices.Equal(got, want) {
		t.Errorf("arguments are %q", got)
	}
}

func TestKubeconfigFlagIsFoundWhereKubectlWould(t *testing.T) {
	for args, want := range map[string]bool{
		"get pods":                          false,
		"get pods --kubeconfig f":           true,
		"--kubeconfig=f get pods":           true,
		"exec web-0 -- tool --kubeconfig=f": false,
	} {
		if got := namesKubeconfig(strings.Fields(args)); got != want {
			t.Errorf("%q: %t", args, got)
		}
	}
}

func TestPurgeAsksFirst(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, "y\n": false, "\n": false, "": false} {
		out := new(bytes.Buffer)
		agreed, err := confirmPurge(downOptions{dataDir: "/data", in: strings.NewReader(answer), out: out})
		if agreed != want || (err == nil) != want {
			t.Errorf("answer %q: agreed %t, error %v", answer, agreed, err)
		}
		if !strings.Contains(out.String(), "/data") {
			t.Errorf("the question %q does not say what is deleted", out)
		}
	}
}
