// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// suite is a package of Kubernetes with tests, of which a copy is made, changed and built.
type suite struct {
	// name is that of the copy's folder.
	name string
	// source is the folder of the package in the module k8s.io/kubernetes.
	source string
	// change gives what the copy of a file holds.
	change func(file string, text []byte) ([]byte, error)
}

// root is the folder of our module, and workshop, within it and out of git's sight, that of the copies and what is built.
const (
	root     = "../.."
	workshop = root + "/bin/.conformance"
)

// building lets one suite be built at a time: they share a file for modules.
var building sync.Mutex

// build copies and builds the suite, and gives the path of the binary. What has not changed is not built again.
func (s suite) build(t *testing.T) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	s.copy(t, filepath.Join(kubernetes(t), s.source), filepath.Join(workshop, s.name))
	// The suites need modules that our own packages do not, so go.mod has to name more than it does. The copy may be changed.
	for _, ext := range []string{".mod", ".sum"} {
		write(t, filepath.Join(workshop, "all"+ext), read(t, root+"/go"+ext))
	}
	binary := absolute(t, filepath.Join(workshop, s.name+".test"))
	command(t, "go", "test", "-c", "-mod=mod", "-modfile=bin/.conformance/all.mod", "-buildvcs=false", "-vet=off",
		"-o", binary, "./bin/.conformance/"+s.name)
	return binary
}

// copy makes the copy of the package, with its test data.
func (s suite) copy(t *testing.T, from, to string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(from), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && path != "testdata":
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o755)
		}
		text, err := os.ReadFile(filepath.Join(from, path))
		if err != nil {
			return err
		}
		if text, err = s.change(path, text); err != nil {
			return err
		}
		write(t, filepath.Join(to, path), text)
		return nil
	})
	if err != nil {
		t.Fatalf("copy %s: %v", s.source, err)
	}
}

// kubernetes is the folder of the module k8s.io/kubernetes.
func kubernetes(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(command(t, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
}

// command runs a command in our module's folder, and gives what it wrote.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = root
	var complaints bytes.Buffer
	c.Stderr = &complaints
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, &complaints)
	}
	return string(out)
}

// outcome is how a test ended: PASS, FAIL or SKIP.
type outcome string

var ended = regexp.MustCompile(`--- (PASS|FAIL|SKIP): (\S+) \(`)

// run runs tests of a binary in the folder of its package, and gives what became of those that have no parts, and of those that
// failed though none of their parts did.
func run(t *testing.T, binary string, tests, env []string) (outcomes map[string]outcome, log string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), binary, "-test.v", "-test.run", "^("+strings.Join(tests, "|")+")$")
	c.Dir = strings.TrimSuffix(binary, ".test")
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	// Status 1 means that tests have failed. Any other means that not all were run.
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("%s: %v\n%s", c, err, tail(string(out)))
	}
	all := map[string]outcome{}
	for _, m := range ended.FindAllStringSubmatch(string(out), -1) {
		all[m[2]] = outcome(m[1])
	}
	for _, name := range tests {
		if all[name] == "" {
			t.Errorf("%s did not end:\n%s", name, tail(string(out)))
		}
	}
	if err != nil && len(all) == count(all, "PASS") {
		t.Errorf("%s: %v, though each test passed\n%s", c, err, tail(string(out)))
	}
	return leaves(all), string(out)
}

// leaves drops tests that have parts, unless only they themselves failed.
func leaves(all map[string]outcome) map[string]outcome {
	parts, failed := map[string]bool{}, map[string]bool{}
	for name, o := range all {
		for at, c := range name {
			if c == '/' {
				parts[name[:at]] = true
				failed[name[:at]] = failed[name[:at]] || o == "FAIL"
			}
		}
	}
	kept := map[string]outcome{}
	for name, o := range all {
		if !parts[name] || (o == "FAIL" && !failed[name]) {
			kept[name] = o
		}
	}
	return kept
}

func count(all map[string]outcome, o outcome) int {
	n := 0
	for _, is := range all {
		if is == o {
			n++
		}
	}
	return n
}

// tail is the end of a long text.
func tail(text string) string {
	const most = 20_000
	return text[max(0, len(text)-most):]
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// write writes a file, unless it holds the text already.
func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// replace puts one text in the place of another, which has to be there.
func replace(file string, text []byte, old, with string) ([]byte, error) {
	if !bytes.Contains(text, []byte(old)) {
		return nil, fmt.Errorf("%s has no %q any more", file, old)
	}
	return bytes.ReplaceAll(text, []byte(old), []byte(with)), nil
}
