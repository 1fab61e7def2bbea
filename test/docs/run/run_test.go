// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Every page says on what its commands run, and every command that is not run says why.
func TestPages(t *testing.T) {
	all, err := pages("../../..")
	if err != nil {
		t.Fatal(err)
	}
	run := 0
	for _, p := range all {
		run += p.commands()
	}
	if run < 50 {
		t.Errorf("only %d commands are run", run)
	}
}

const document = `# A page
<!-- run: simulate -->

~~~yaml
# policy.yaml
kind: Policy
~~~

~~~console
$ ordinal why sts/web
web is up
$ kubectl apply \
    -f policy.yaml
~~~

1. In a list:

   ~~~
   $ kubectl get pods
   NAME
   …
   ~~~

<!-- not run: it needs two machines -->
~~~
$ ssh
~~~

~~~
$ ls
~~~
`

func parsed(t *testing.T) page {
	t.Helper()
	p, err := parse("page.md", strings.ReplaceAll(document, "~~~", "```"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	p := parsed(t)
	if p.where != "simulate" || len(p.parts) != 6 || p.commands() != 4 {
		t.Fatalf("the page is %+v", p)
	}
	if f := p.parts[0]; f.file != "policy.yaml" || f.content != "# policy.yaml\nkind: Policy\n" {
		t.Errorf("the file is %+v", f)
	}
	for i, want := range []struct {
		command, notRun string
		shown           []string
	}{
		{"ordinal why sts/web", "", []string{"web is up"}},
		{"kubectl apply \\\n    -f policy.yaml", "", nil},
		{"kubectl get pods", "", []string{"NAME", "…"}},
		{"ssh", "it needs two machines", nil},
		{"ls", "", nil},
	} {
		got := p.parts[i+1]
		if got.command != want.command || got.notRun != want.notRun || !slices.Equal(p.shown(got), want.shown) {
			t.Errorf("command %d is %+v with %q, want %+v", i, got, p.shown(got), want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"```\n$ ls\n```\n": "no comment says on what they run",
		"<!-- run: none -->\n```\nkubectl get pods\n```":    "page.md:3: a command is shown without $",
		"<!-- run: elsewhere -->\n\n```\n$ ls\n```\n":       "none of simulate, real and none",
		"<!-- run: elsewhere -->\n\nNothing to run here.\n": "none of simulate, real and none",
	} {
		if _, err := parse("page.md", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q ends with %v, want %q", text, err, want)
		}
	}
	if _, err := parse("page.md", "Only `text`.\n"); err != nil {
		t.Error(err)
	}
}

func TestReplace(t *testing.T) {
	p := parsed(t)
	before := slices.Clone(p.lines)
	p.replace(1, []string{"web is stuck", "", "Waits for "})
	p.replace(3, []string{"NAME"})
	for i, want := range [][]string{{"web is stuck", "", "Waits for"}, nil, {"NAME"}} {
		if got := p.shown(p.parts[i+1]); !slices.Equal(got, want) {
			t.Errorf("command %d shows %q, want %q", i, got, want)
		}
	}
	if len(p.lines) != len(before)+1 || !slices.Equal(p.lines[len(p.lines)-8:], before[len(before)-8:]) {
		t.Errorf("the page is\n%s", strings.Join(p.lines, "\n"))
	}
}

func TestVerdict(t *testing.T) {
	const printed = "NAME     AGE\nvisits-0   3s\nvisits-1   2s\nrevision visits-cbd859f49 at 2026-11-30T03:34:26Z"
	for _, tt := range []struct {
		shown string
		code  int
		want  string
	}{
		{"", 0, ""},
		{"", 1, "ends with 1"},
		{"NAME   AGE\nvisits-1   1m20s", 0, ""},
		// What is shown counts, not the code.
		{"NAME   AGE", 2, ""},
		{"visits-1   5s\nvisits-0   5s", 0, "visits-0   5s"},
		{"visits-2   5s", 0, "visits-2   5s"},
		{"visits-1   5s\nvisits-1   5s", 0, "visits-1   5s"},
		{"visits-1", 0, "visits-1"},
		{"sits-1   2s", 0, "sits-1   2s"},
		{"…\nvisits-…\n…", 0, ""},
		{"revision visits-56d7fc68f4 at 2027-01-01T00:00:00Z", 0, ""},
		{"revision other-56d7fc68f4 at …", 0, "revision other"},
	} {
		err := verdict(strings.Split(tt.shown, "\n"), strings.Split(printed, "\n"), tt.code)
		if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q with code %d is judged %v, want %q", tt.shown, tt.code, err, tt.want)
		}
	}
}

func TestNormal(t *testing.T) {
	for line, want := range map[string]string{
		"pvc-43fe0565-80af-4dd2-9db1-d78ab44612a5  64Mi":                   "pvc-UID 64Mi",
		"visits-2 is replaced (cbd859f49 to 56d7fc68f4)":                   "visits-2 is replaced (HASH to HASH)",
		"mysqlpwdb and 56d7fc68f4":                                         "mysqlpwdb and HASH",
		"statefulset.apps/visits on node-0, 3 of 3":                        "statefulset.apps/visits on node-0, 3 of 3",
		"kubelet   running   20062   0   42 MiB":                           "kubelet running PID 0 SIZE",
		"ready (pid 812, API on https://127.0.0.1:6443)":                   "ready (PID, API on https://ADDRESS:6443)",
		"rolling out visits-56d7fc68f4: 1 of 3 pods updated, 0 available":  "rolling out visits-HASH",
		"web is stuck in rolling out web-5d66789d4c: 0 of 3 pods are done": "web is stuck in rolling out web-HASH: 0 of 3 pods are done",
		"10.85.0.3 (for 5m2s), 3 times":                                    "ADDRESS (for DURATION), TIMES",
	} {
		if got := normal(line); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}

func TestShell(t *testing.T) {
	s, err := newShell(t.Context(), t.TempDir(), os.Environ(), strings.NewReplacer("/tmp/data", "/var/lib/ordinal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command string
		want    string
		code    int
	}{
		{"x=1; echo \"it's $x\"; echo error >&2", "it's 1|error", 0},
		{"printf $x", "1", 0},
		{"echo no cluster in /tmp/data", "no cluster in /var/lib/ordinal", 0},
		{"false", "", 1},
		{"echo $?", "1", 0},
		{"if", "", 2},
		{"cat", "", 0},
		{"cd / && pwd", "/", 0},
		{"pwd", "/", 0},
	} {
		printed, code, err := s.run(tt.command)
		got := strings.Join(printed, "|")
		if err != nil || code != tt.code || (got != tt.want && tt.command != "if") {
			t.Errorf("%s prints %q and ends with %d, %v, want %q and %d", tt.command, got, code, err, tt.want, tt.code)
		}
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

func TestSummary(t *testing.T) {
	sum := &tally{pages: 2, run: 9, shown: map[string]int{"it is far": 2, "it is big": 1}}
	got := sum.String()
	if want := "9 commands run on 2 pages, 0 failed, 3 shown only: 1 because it is big; 2 because it is far"; got != want {
		t.Errorf("the summary is %q, want %q", got, want)
	}
}
