// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// report is what ginkgo writes of a run in which each state occurs.
const report = `[{"SpecReports": [
	{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
	{"ContainerHierarchyTexts": ["[sig-apps] StatefulSet", "Basic"], "LeafNodeType": "It", "LeafNodeText": "b passes", "State": "passed", "RunTime": 2000000000},
	{"ContainerHierarchyTexts": ["[sig-apps] StatefulSet"], "LeafNodeType": "It", "LeafNodeText": "a fails", "State": "failed", "Failure": {"Message": "was 2\nnot 3"}},
	{"ContainerHierarchyTexts": ["[sig-apps] StatefulSet"], "LeafNodeType": "It", "LeafNodeText": "c runs out of time", "State": "timedout"},
	{"ContainerHierarchyTexts": ["[sig-apps] StatefulSet"], "LeafNodeType": "It", "LeafNodeText": "d wants nodes", "State": "skipped", "Failure": {"Message": "needs 2 nodes"}},
	{"ContainerHierarchyTexts": ["[sig-apps] StatefulSet"], "LeafNodeType": "It", "LeafNodeText": "e [Feature:OffByDefault]", "State": "skipped"},
	{"ContainerHierarchyTexts": ["[sig-apps] StatefulSet"], "LeafNodeType": "It", "LeafNodeText": "f is left out", "State": "skipped"},
	{"ContainerHierarchyTexts": ["[sig-apps] StatefulSet"], "LeafNodeType": "It", "LeafNodeText": "g [Conformance]", "State": "passed"},
	{"ContainerHierarchyTexts": ["[sig-apps] Deployment"], "LeafNodeType": "It", "LeafNodeText": "h", "State": "skipped"}
]}, {"SpecReports": [{"LeafNodeType": "SynchronizedAfterSuite", "State": "panicked"}]}]`

var others = group{name: "StatefulSets, the others", focus: `\[sig-apps\] StatefulSet `, but: `\[Conformance\]`}

func TestReport(t *testing.T) {
	results, err := readReport([]byte(report), others, knownExceptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	show(&out, results)
	want := `FAILED     0s  
               panicked
FAILED     0s  [sig-apps] StatefulSet a fails
               was 2
passed     2s  [sig-apps] StatefulSet Basic b passes
FAILED     0s  [sig-apps] StatefulSet c runs out of time
               timedout
not run    0s  [sig-apps] StatefulSet d wants nodes
               needs 2 nodes
not run    0s  [sig-apps] StatefulSet e [Feature:OffByDefault]
               it is about a feature gate that is off by default
not run    0s  [sig-apps] StatefulSet f is left out
               the suite leaves it out unless asked for
`
	lines := func(s string) []string { return slices.Sorted(strings.Lines(s)) }
	if !slices.Equal(lines(out.String()), lines(want)) {
		t.Errorf("shown is\n%swant\n%s", out.String(), want)
	}
	if got := count(results); got != "1 passed, 3 failed, 3 not run" || failures(results) != 3 {
		t.Errorf("count is %q, failures are %d", got, failures(results))
	}
}

func TestReportWithoutSpecsIsAFailure(t *testing.T) {
	for _, text := range []string{`[]`, `[{"SpecReports": []}]`, `{`} {
		if results, err := readReport([]byte(text), others, nil); err == nil {
			t.Errorf("%s gives %v and no error", text, results)
		}
	}
}

// TestEachSpecIsInOneGroup holds for the specs of StatefulSets: none is run twice, none is forgotten.
func TestEachSpecIsInOneGroup(t *testing.T) {
	for spec, want := range map[string]string{
		"[sig-apps] StatefulSet Basic a [Conformance]":          "StatefulSets, conformance",
		"[sig-apps] StatefulSet Basic a [Conformance] [Slow]":   "StatefulSets, conformance",
		"[sig-apps] StatefulSet Recreate b [Disruptive]":        "StatefulSets, the other specs",
		"[sig-storage] PersistentVolumes-local StatefulSet c":   "StatefulSets on local volumes",
		"[sig-cli] Kubectl client d [Conformance]":              "kubectl, conformance",
		"[sig-network] DNS e [Conformance]":                     "names",
		"[sig-apps] Deployment f with a StatefulSet beside [x]": "",
	} {
		var in []string
		for _, g := range groups() {
			if g.has(spec) {
				in = append(in, g.name)
			}
		}
		if got := strings.Join(in, " and "); got != want {
			t.Errorf("%s is in %q, want %q", spec, got, want)
		}
	}
}

func TestGroupsAreChosenByName(t *testing.T) {
	chosen := chosenGroups(regexp.MustCompile("names|claims"))
	if len(chosen) != 2 || chosen[0].file() != "names" || chosen[1].file() != "claims-in-use" {
		t.Errorf("chosen are %v", chosen)
	}
}

// TestWhatCannotRunIsNotStarted asks on a machine that lets root enter the namespaces of process 1, and on one that does not.
func TestWhatCannotRunIsNotStarted(t *testing.T) {
	const local = "[sig-storage] PersistentVolumes-local StatefulSet with pod affinity should use volumes on one node"
	open, closed := t.TempDir(), t.TempDir()
	namespaces := filepath.Join(open, "1", "ns")
	if err := os.MkdirAll(namespaces, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("mnt:[1]", filepath.Join(namespaces, "mnt")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		proc, spec string
		started    bool
	}{
		{open, local, true},
		{closed, local, false},
		{open, "a CockroachDB cluster", false},
		{open, "others [Conformance]", false},
		{open, "[sig-storage] X StatefulSet should use volumes spread across nodes", false},
		{closed, "[sig-apps] StatefulSet should scale", true},
	} {
		known := knownExceptions(c.proc)
		if started := !regexp.MustCompile(others.skipped(known)).MatchString(c.spec); started != c.started {
			t.Errorf("%s: started is %t, want %t", c.spec, started, c.started)
		}
	}
	if got := knownExceptions(closed).reason(local); !strings.Contains(got, "forbids") {
		t.Errorf("the reason is %q", got)
	}
}

// TestArchives makes archives of small stands, and looks at what they hold.
func TestArchives(t *testing.T) {
	dir := t.TempDir()
	o := options{bin: dir, images: dir, built: dir}
	for file, content := range map[string]string{
		"agnhost/agnhost": "program", "agnhost/localhost.crt": "certificate", "tools/lib/libx.so": "library", "tools/usr/bin/dig": "dig",
	} {
		write(t, filepath.Join(dir, file), content)
	}
	for _, archive := range []string{"busybox.tar", "nginx.tar", "pause.tar"} {
		img, err := image.Build(image.Spec{Files: []image.File{{Path: "base", Mode: 0o644}}, User: "7"})
		if err != nil {
			t.Fatal(err)
		}
		if err := image.WriteArchive(filepath.Join(dir, archive), "base:1", img); err != nil {
			t.Fatal(err)
		}
	}
	files, err := writeArchives(dir, []string{
		"example.test/e2e-test-images/agnhost:2", "private.test/x/agnhost:2", "example.test/e2e-test-images/volume/nfs:1", "example.test/pause:3",
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(dir, "agnhost-2.tar"), filepath.Join(dir, "pause-3.tar")}; !slices.Equal(files, want) {
		t.Fatalf("archives are %q, want %q", files, want)
	}
	content, err := image.Inspect(files[0])
	if err != nil || len(content) != 1 || content[0].Name != "example.test/e2e-test-images/agnhost:2" {
		t.Errorf("the archive holds %v, %v", content, err)
	}
	img, err := tarball.ImageFromPath(files[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/agnhost"}) || config.Config.User != "7" || len(config.RootFS.DiffIDs) != 2 {
		t.Errorf("the configuration is %+v, %v", config, err)
	}
	if _, err := writeArchives(dir, []string{"example.test/volume/nfs:1"}, o); err == nil {
		t.Error("that there is something for none of the images is no error")
	}
}

// TestTree reads a directory as an image has it: libraries below /usr, links as links.
func TestTree(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "lib", "libx.so.1"), "library")
	write(t, filepath.Join(dir, "etc", "x"), "settings")
	if err := os.Symlink("libx.so.1", filepath.Join(dir, "lib", "libx.so")); err != nil {
		t.Fatal(err)
	}
	files, err := tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Path+"="+string(f.Data)+f.Link)
	}
	if want := []string{"etc/x=settings", "usr/lib/libx.so=libx.so.1", "usr/lib/libx.so.1=library"}; !slices.Equal(got, want) {
		t.Errorf("files are %q, want %q", got, want)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
