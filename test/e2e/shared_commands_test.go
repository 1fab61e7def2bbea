// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
)

// What `ordinal why` and `ordinal plan` tell.

// `why` names the pod in trouble, what is wrong with it, and what its program said last.
func TestWhy(t *testing.T) { //nolint:tparallel // tests on the shared cluster run one by one, but these cases do not meet
	sharedCluster(t)
	for name, test := range map[string]struct {
		change  func(*appsv1.StatefulSet)
		trouble func(*story)
		code    int
		says    []string
	}{
		"bad image": {
			change:  func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = noImage },
			trouble: func(s *story) { s.awaitPod("web-0", "it lacks its image", waitsBecause(imageTrouble)) },
			code:    1,
			says:    []string{"web-0", "image", noImage},
		},
		"failing probe": {
			change:  readyWhen("echo the index is not built; exit 4"),
			trouble: func(s *story) { s.awaitPod("web-0", "it runs", runs) },
			// It may yet become ready.
			code: 0,
			says: []string{"web-0", "not ready", "the index is not built"},
		},
		"crash loop": {
			change: func(set *appsv1.StatefulSet) {
				set.Spec.Template.Spec.Containers[0].Command = []string{"sh", "-c", "echo this volume is not mine; exit 3"}
				readyWhen("true")(set)
			},
			trouble: func(s *story) { s.awaitPod("web-0", "it keeps ending", waitsBecause(crashTrouble)) },
			code:    1,
			says:    []string{"web-0", "exit code 3", "this volume is not mine"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onShared(t)
			story := s.watchPods()
			s.apply(webService())
			s.apply(s.webSet(withoutClaims, test.change))
			test.trouble(story)
			s.awaitWhy(test.code, test.says...)
		})
	}
}

// awaitWhy waits until `why` says all this of the set web, and ends with this code: 1 if something is wrong with it.
func (s *space) awaitWhy(code int, says ...string) {
	s.Helper()
	s.eventually(patience, "why says "+strings.Join(says, ", "), func() error {
		out := s.tryOrdinal("why", "sts/web")
		checkFits(s.T, out.stdout)
		missing := slices.DeleteFunc(slices.Clone(says), func(want string) bool { return strings.Contains(flat(out.stdout), want) })
		if out.code != code || len(missing) > 0 {
			return fmt.Errorf("it does not say %q, and ends with %d:\n%s", missing, out.code, said(out))
		}
		return nil
	})
}

// Colours are for terminals, and NO_COLOR switches them off there too.
func TestColours(t *testing.T) {
	s := onShared(t)
	s.webOf(1, withoutClaims)
	onTerminal := func(env ...string) string {
		t.Helper()
		cmd := s.ordinalCommand("why", "sts/web")
		script := exec.CommandContext(t.Context(), "script", "--quiet", "--command", strings.Join(cmd.Args, " "), "/dev/null")
		script.Env, script.Dir = slices.Concat(cmd.Env, env), cmd.Dir
		out := finish(script)
		if err := out.err(); err != nil {
			t.Fatal(err)
		}
		return out.stdout
	}
	if got := onTerminal(); !strings.Contains(got, "\x1b[") {
		t.Errorf("on a terminal there is no colour: %q", got)
	}
	for where, got := range map[string]string{"on a terminal": onTerminal("NO_COLOR=1"), "elsewhere": s.ordinal("why", "sts/web")} {
		if strings.Contains(got, "\x1b") || !strings.Contains(got, "web") {
			t.Errorf("%s, NO_COLOR or not, it says %q", where, got)
		}
	}
}

// `plan` tells what an apply would do, by its exit code too, and does nothing.
func TestPlan(t *testing.T) {
	s := onShared(t)
	set := s.webOf(2)
	before := s.versions()
	same := s.file(set)
	changed := set.DeepCopy()
	changed.Spec.Replicas = new(int32(3))
	changed.Spec.Template.Spec.Containers[0].Image = newImage

	if out := s.tryOrdinal("plan", "-f", same); out.code != 0 {
		t.Errorf("a plan without changes ends with %d, want 0:\n%s", out.code, said(out))
	}
	out := s.tryOrdinal("plan", "-f", s.file(changed))
	if out.code != 2 {
		t.Errorf("a plan with changes ends with %d, want 2:\n%s", out.code, said(out))
	}
	if order := regexp.MustCompile(`(?s)web-2.*web-1.*web-0`); !order.MatchString(out.stdout) || !strings.Contains(out.stdout, "www-web-2") {
		t.Errorf("the plan does not name the pods in order, and the claim that is new:\n%s", out.stdout)
	}
	checkFits(t, out.stdout)
	if out := s.tryOrdinal("plan", "-f", filepath.Join(t.TempDir(), "missing.yaml")); out.code != 1 {
		t.Errorf("a plan of no file ends with %d, want 1:\n%s", out.code, said(out))
	}
	if after := s.versions(); after != before {
		t.Errorf("something has changed, before:\n%s\nand after:\n%s", before, after)
	}

	story := s.watchPods()
	told := story.now()
	s.apply(changed)
	story.expect(told, append(inOrder(2), replacedInOrder(1, 0)...)...)
}

// The commands are a plugin of kubectl too.
func TestPlugin(t *testing.T) {
	s := onShared(t)
	s.webOf(1, withoutClaims)
	cmd := s.cluster.command(t.Context(), "kubectl", "ordinal", "why", "sts/web", "-n", s.name)
	cmd.Env = append(cmd.Env, "PATH="+suite.bin+":"+s.cluster.path)
	out := finish(cmd)
	if want := s.ordinal("why", "sts/web"); out.code != 0 || out.stdout != want {
		t.Errorf("as a plugin it says (code %d)\n%s\nand else\n%s", out.code, said(out), want)
	}
}

// ordinalCommand is an ordinal command line in this namespace.
func (s *space) ordinalCommand(args ...string) *exec.Cmd {
	return s.cluster.command(s.Context(), append(args, "-n", s.name)...)
}

// tryOrdinal runs ordinal in this namespace and gives whatever it says.
func (s *space) tryOrdinal(args ...string) output { return finish(s.ordinalCommand(args...)) }

// ordinal runs ordinal in this namespace, which has to succeed, and gives its standard output.
func (s *space) ordinal(args ...string) string {
	s.Helper()
	out := s.tryOrdinal(args...)
	if err := out.err(); err != nil {
		s.Fatal(err)
	}
	return out.stdout
}

// file writes an object into a file of its own.
func (s *space) file(object any) string {
	s.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		s.Fatal(err)
	}
	path := filepath.Join(s.TempDir(), "object.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// versions are the versions of all that a set has, one a line.
func (s *space) versions() string {
	s.Helper()
	const each = `{range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}`
	return s.kubectl("get", "sts,controllerrevisions,pods,pvc,stspolicy,pdb", "-o", "jsonpath="+each)
}

// flat is a text without its line breaks and indentation.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// checkFits checks that a text fits 80 columns.
func checkFits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > 80 {
			t.Errorf("this is wider than 80 columns:\n%s", line)
		}
	}
}
