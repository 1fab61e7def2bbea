// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/revision"
	// The suites are built in processes of their own. By these imports, `go test` knows that they depend on our controller.
	_ "github.com/ordinal-dev/ordinal/test/conformance/control"
	_ "github.com/ordinal-dev/ordinal/test/conformance/shim"
)

// tally counts the tests of one suite.
type tally struct {
	passed, failed int
	// notRun counts by reason.
	notRun map[string]int
}

// tallies are those of all suites by name.
type tallies struct {
	mu  sync.Mutex
	all map[string]*tally
}

var counted = tallies{all: map[string]*tally{}}

// of changes the tally of a suite.
func (c *tallies) of(suite string, change func(*tally)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[suite] == nil {
		c.all[suite] = &tally{notRun: map[string]int{}}
	}
	change(c.all[suite])
}

// String is the summary: each suite, and its last line all of them.
func (c *tallies) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	sum := tally{notRun: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		one := c.all[name]
		fmt.Fprintf(&b, "%s: %s\n", name, one)
		sum.passed += one.passed
		sum.failed += one.failed
		for _, reason := range slices.Sorted(maps.Keys(one.notRun)) {
			fmt.Fprintf(&b, "  not run: %d of %s\n", one.notRun[reason], reason)
			sum.notRun[reason] += one.notRun[reason]
		}
	}
	fmt.Fprintf(&b, "conformance: %s", &sum)
	return b.String()
}

// String tells the counts.
func (c *tally) String() string {
	left := 0
	for _, n := range c.notRun {
		left += n
	}
	return fmt.Sprintf("%d passed, %d failed, %d not run", c.passed, c.failed, left)
}

// TestMain ends the output with what was counted.
func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Println(&counted)
	os.Exit(code)
}

var topLevel = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// testsIn are the tests of a file.
func testsIn(t *testing.T, path string) []string {
	t.Helper()
	var names []string
	for _, m := range topLevel.FindAllStringSubmatch(string(read(t, path)), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatalf("no test in %s", path)
	}
	return names
}

// TestIntegration runs the integration suite: an API server for each test, with our controller. No other controller runs.
func TestIntegration(t *testing.T) {
	t.Parallel()
	s := suite{name: "integration", source: "test/integration/statefulset", change: shimmed}
	binary := s.build(t)
	command(t, "go", "build", "-buildvcs=false", "-o", "bin/.conformance/path/etcd", "./test/conformance/etcd")
	env := []string{
		"PATH=" + absolute(t, workshop+"/path") + string(os.PathListSeparator) + os.Getenv("PATH"),
		// Nothing listens there, so the suite starts its own etcd even where one runs at the usual port.
		"KUBE_INTEGRATION_ETCD_URL=http://127.0.0.1:1",
		// What these tests store is not wanted after a crash.
		"ETCD_UNSAFE_NO_FSYNC=true",
	}
	tests := testsIn(t, filepath.Join(workshop, s.name, "statefulset_test.go"))
	outcomes, log := run(t, binary, tests, env)
	judge(t, outcomes, nil, log)
}

// shimmed points a file of the integration suite at our controller.
func shimmed(file string, text []byte) ([]byte, error) {
	const theirs = `"k8s.io/kubernetes/pkg/controller/statefulset"`
	if !bytes.Contains(text, []byte("statefulset.")) {
		return text, nil
	}
	return replace(file, text, theirs, `statefulset "github.com/ordinal-dev/ordinal/test/conformance/shim"`)
}

// difference is why tests fail that do so for good.
type difference struct {
	reason string
	// tests are the names of those tests, or of what they are parts of.
	tests []string
	// defaultOnly and strictOnly tell in which of the two ways of working they fail; both are false for both.
	defaultOnly, strictOnly bool
}

// through are the tests of other files than stateful_set_control_test.go that reach our control. The others of that package
// test functions of Kubernetes' controller that nothing of ours calls.
var through = []string{
	"TestStatefulSetCompatibility",
	"TestStatefulSetControllerCreates", "TestStatefulSetControllerDeletes", "TestStatefulSetControllerRespectsTermination",
	"TestStatefulSetControllerBlocksScaling", "TestAdoptOrphanRevisions", "TestOrphanedPodsWithPVCDeletePolicy",
	"TestStaleOwnerRefOnScaleup", "TestStatefulSetAvailabilityCheck",
}

const (
	invariant = "TestStatefulSetControlRollingUpdateWithMaxUnavailableInOrderedModeVerifyInvariant/terminating_pod_at_ordinal_"
	stale     = "TestStatefulSetControlRollingUpdateWithMaxUnavailableAndUnavailableStalePod/OrderedReady/"
)

// innards is why a test does not hold for any controller but the one that it was written for.
const innards = "calls a part of the incumbent's sync on an ordered set with a pod that is going or not ready, where its whole sync does not come to that part"

var differences = []difference{
	{
		reason: "reads variables of the incumbent's metrics; ours are others",
		tests:  []string{"TestStatefulSetMetrics"},
	},
	{
		reason: innards,
		tests: []string{
			invariant + "[1]", invariant + "[2]", invariant + "[3]", invariant + "[4]", invariant + "[5]",
			stale + "5_replicas,_1_pod_terminating(#3)_+_1_pod_unavailable(#4)_on_old_revision",
		},
	},
	{
		reason: "wants a pod to stay that is stuck at a revision it should not have (the first difference of docs/differences.md); passes with --strict-upstream",
		tests: []string{
			stale + "single_replica:_unavailable_pod_on_old_revision_blocks_update",
			stale + "3_replicas,_highest-ordinal_pod_unavailable_on_old_revision_blocks_update",
			stale + "5_replicas_partition=2:_unavailable_pod_in_update_range_(#4)_blocks_update",
		},
		defaultOnly: true,
	},
	{
		reason: innards + "; passes by default",
		tests: []string{
			stale + "5_replicas,_2_pods_unavailable_on_old_revision_blocks_update",
			stale + "5_replicas,_1_pod_unavailable(#3)_+_1_pod_terminating(#4)_on_old_revision",
		},
		strictOnly: true,
	},
}

// TestControl runs the tests of Kubernetes' StatefulSet control, by default and with --strict-upstream.
func TestControl(t *testing.T) {
	t.Parallel()
	s := suite{name: "control", source: "pkg/controller/statefulset", change: func(file string, text []byte) ([]byte, error) {
		if file == "stateful_set_control.go" {
			return read(t, "testdata/control.go"), nil
		}
		return text, nil
	}}
	binary := s.build(t)
	tests := append(testsIn(t, filepath.Join(workshop, s.name, "stateful_set_control_test.go")), through...)
	for name, strict := range map[string]string{"by default": "", "strict": "yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcomes, log := run(t, binary, tests, []string{"ORDINAL_STRICT=" + strict})
			reasons := map[string]string{}
			for _, d := range differences {
				if (strict == "" && d.strictOnly) || (strict != "" && d.defaultOnly) {
					continue
				}
				for _, test := range d.tests {
					reasons[test] = d.reason
				}
			}
			judge(t, outcomes, reasons, log)
		})
	}
}

// judge counts what became of tests, and complains of those that failed, and of those that are named by a reason to fail and did
// not.
func judge(t *testing.T, outcomes map[string]outcome, reasons map[string]string, log string) {
	t.Helper()
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		is, listed := outcomes[name], listing(name, reasons)
		used[listed] = true
		switch {
		case is == "SKIP":
			counted.of(t.Name(), func(c *tally) { c.notRun[name+": it skips itself"]++ })
		case listed != "" && is == "FAIL":
			counted.of(t.Name(), func(c *tally) { c.notRun[listed+": "+reasons[listed]]++ })
		case listed != "":
			fail(t, name+" passes, so there is no difference any more: "+reasons[listed])
		case is == "FAIL":
			fail(t, name+" fails")
		default:
			counted.of(t.Name(), func(c *tally) { c.passed++ })
		}
	}
	for test := range reasons {
		if !used[test] {
			fail(t, "there is no "+test+" any more")
		}
	}
	if t.Failed() {
		t.Log(tail(log))
	}
}

// fail counts a test that failed.
func fail(t *testing.T, why string) {
	t.Helper()
	counted.of(t.Name(), func(c *tally) { c.failed++ })
	t.Error(why)
}

// listing is the entry among reasons that a test falls under; empty for none.
func listing(test string, reasons map[string]string) string {
	for entry := range reasons {
		if test == entry || strings.HasPrefix(test, entry+"/") {
			return entry
		}
	}
	return ""
}

// TestRevisions gives names to what releases of Kubernetes have recorded: the names that they gave.
func TestRevisions(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(kubernetes(t), "pkg/controller/statefulset/testdata")
	files, err := filepath.Glob(filepath.Join(folder, "compatibility_revision_*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no revisions in %s: %v", folder, err)
	}
	for _, file := range files {
		var recorded appsv1.ControllerRevision
		if err := json.Unmarshal(read(t, file), &recorded); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		hash := revision.Hash(recorded.Data.Raw, 0)
		owner := recorded.OwnerReferences[0].Name
		if name := revision.Name(owner, hash); name != recorded.Name || hash != recorded.Labels["controller.kubernetes.io/hash"] {
			fail(t, fmt.Sprintf("%s: the name is %s with hash %s, recorded as %s", filepath.Base(file), name, hash, recorded.Name))
			continue
		}
		counted.of(t.Name(), func(c *tally) { c.passed++ })
	}
}
