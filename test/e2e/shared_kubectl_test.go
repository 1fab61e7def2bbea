// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Item 6: kubectl's tools that look at and into a set.
func TestKubectlTools(t *testing.T) {
	s := onShared(t)
	s.webOf(2)

	t.Run("describe", func(t *testing.T) {
		s := s.in(t)
		text := s.kubectl("describe", "sts", "web")
		for _, want := range []string{
			`Name:\s+web\b`, `Replicas:\s+2 desired \| 2 total`, `Update Strategy:\s+RollingUpdate`, `Pods Status:\s+2 Running / 0 Waiting / 0 Succeeded / 0 Failed`,
			`Image:\s+nginx:1.16`, `StorageClass:\s+` + className, `(?s)Events:.*SuccessfulCreate.*web-1`,
		} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("describe does not show %q:\n%s", want, text)
			}
		}
	})
	t.Run("explain", func(t *testing.T) {
		s := s.in(t)
		text := s.kubectl("explain", "statefulset.spec.updateStrategy.rollingUpdate.partition")
		for _, want := range []string{"partition <integer>", "ordinal"} {
			if !strings.Contains(text, want) {
				t.Errorf("explain does not show %q:\n%s", want, text)
			}
		}
	})
	t.Run("exec", func(t *testing.T) {
		s := s.in(t)
		if got := s.exec("web-1", "hostname"); got != "web-1" {
			t.Errorf("web-1 is called %q", got)
		}
		out := s.try("exec", "sts/web", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
		if out.code != 7 || out.stdout != "out\n" || !strings.Contains(out.stderr, "err\n") {
			t.Errorf("exec gave %+v", out)
		}
	})
	t.Run("logs", func(t *testing.T) {
		s := s.in(t)
		logs := follow(t, s.command("logs", "-f", "web-0"))
		for _, marker := range []string{"first marker", "second marker"} {
			s.exec("web-0", "echo "+marker+" > /proc/1/fd/1")
			logs.expect(marker)
		}
	})
	t.Run("cp", func(t *testing.T) {
		s := s.in(t)
		there, back := filepath.Join(t.TempDir(), "there"), filepath.Join(t.TempDir(), "back")
		content := strings.Repeat("carried in and out again\n", 10_000)
		if err := os.WriteFile(there, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s.kubectl("cp", there, "web-0:/usr/share/nginx/html/carried")
		s.kubectl("cp", "web-0:/usr/share/nginx/html/carried", back)
		if got, err := os.ReadFile(back); err != nil || string(got) != content {
			t.Errorf("what came back has %d bytes of %d: %v", len(got), len(content), err)
		}
	})
	t.Run("port-forward", func(t *testing.T) {
		s := s.in(t)
		s.exec("web-1", "echo this is $(hostname) > /usr/share/nginx/html/index.html")
		forward := follow(t, s.command("port-forward", "pod/web-1", ":80"))
		address := forward.expect(`Forwarding from (127\.0\.0\.1:\d+) -> 80`)[1]
		client := http.Client{Timeout: 10 * time.Second}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatalf("%v\n%s", err, forward.said())
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || string(body) != "this is web-1\n" {
			t.Errorf("web-1 says %s %q, %v", response.Status, body, err)
		}
	})
}

// Item 6: `edit` with an editor that a script drives, and `wait` for what it changes.
func TestEditAndWait(t *testing.T) {
	s := onShared(t)
	s.webOf(2, withoutClaims)
	edit := s.command("edit", "sts", "web")
	edit.Env = append(edit.Env, "EDITOR=sed -i 's/^  replicas: 2$/  replicas: 3/'")
	out := finish(edit)
	if err := out.err(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.stdout, "statefulset.apps/web edited") {
		t.Errorf("edit says %q", out.stdout)
	}
	said := s.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=3", "sts/web", "--timeout="+patience.String())
	if said != "statefulset.apps/web condition met\n" {
		t.Errorf("wait says %q", said)
	}
	s.awaitReady(3)

	s.kubectl("scale", "sts/web", "--replicas=1", "--current-replicas=3")
	for i := 2; i > 0; i-- {
		s.kubectl("wait", fmt.Sprintf("pod/web-%d", i), "--for=delete", "--timeout="+patience.String())
	}
	if out := s.try("wait", "--for=jsonpath={.status.readyReplicas}=3", "sts/web", "--timeout=1s"); out.code == 0 {
		t.Errorf("wait is content with one replica of three: %s", out.stdout)
	}
}
