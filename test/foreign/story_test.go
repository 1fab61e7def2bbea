// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// sets is how many there are in the end, inherited how many of them the built-in controller has made.
	sets      = 20
	inherited = 10

	// withIncumbent are the controllers as they run by default, withoutIncumbent all but the one for StatefulSets.
	withIncumbent    = "*"
	withoutIncumbent = "*,-statefulset-controller"

	// How long a pod takes to become ready in a rollout amid which the leader is killed, and in one amid which all controllers are
	// replaced, one after the other.
	slowly, verySlowly = 4 * time.Second, 8 * time.Second
)

// TestForeignCluster is what a platform team goes through, from a cluster with the built-in controller to one with Ordinal and back.
func TestForeignCluster(t *testing.T) {
	s := begin(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"the built-in controller has sets", s.inherit},
		{"the built-in controller goes", s.switchOff},
		{"the chart is installed", s.install},
		{"more sets come", s.grow},
		{"the leader is killed amid a rollout", s.loseLeader},
		{"the controller is upgraded amid a rollout", s.upgrade},
		{"the chart's own test passes", s.testChart},
		{"values that make no sense are refused", s.refuse},
		{"a node is drained", s.drain},
		{"the chart is uninstalled", s.uninstall},
		{"the built-in controller comes back", s.goBack},
	} {
		began := time.Now()
		if !t.Run(step.name, step.do) {
			s.explain(t)
			t.Fatal("the rest builds on this")
		}
		t.Logf("%-45s %5.1fs", step.name, time.Since(began).Seconds())
	}
	tell(t, "Kubernetes %s with %d sets, taken over, its leader killed, upgraded, drained and given back", s.version, sets)
}

// tale is the cluster in which the steps happen.
type tale struct {
	*plane
	journal *journal
}

// newest is the Kubernetes of the main module.
func newest(t *testing.T) string {
	t.Helper()
	version := built(t)
	return version[len(version)-1]
}

// built gives the versions of Kubernetes that were built, oldest first.
func built(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(home.bin, "foreign", "v*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no Kubernetes was built (%v): run make test-foreign", err)
	}
	versions := make([]string, 0, len(dirs))
	for _, dir := range dirs {
		versions = append(versions, filepath.Base(dir))
	}
	return versions
}

func begin(t *testing.T) *tale {
	t.Helper()
	s := &tale{plane: startPlane(t, newest(t), "")}
	s.manage(t, withIncumbent)
	s.startNode(t, archive(firstBuild), archive(secondBuild))
	s.startFleet(t)
	s.makeNamespace(t)
	s.journal = s.watchPods(t)
	return s
}

func (s *tale) inherit(t *testing.T) {
	s.makeSets(t, 0, inherited)
	s.awaitSets(t)
	if out, err := s.try(t.Context(), "ordinal", "takeover", "check"); err == nil {
		t.Errorf("a take-over is approved while the built-in controller works:\n%s", out)
	} else if !strings.Contains(out, withoutIncumbent) {
		t.Errorf("it does not say how the built-in controller is switched off:\n%s", out)
	}
}

func (s *tale) switchOff(t *testing.T) {
	s.manage(t, withoutIncumbent)
	s.must(t, "ordinal", "takeover", "check")
}

func (s *tale) install(t *testing.T) {
	before := s.journal.counts()
	s.must(t, "helm", onChart("install", "--create-namespace", "--set=image.tag="+firstBuild, "--wait", "--timeout=90s")...)
	s.awaitLeader(t, "")
	pods, err := s.controllers(t.Context())
	if err != nil || len(pods) != 2 {
		t.Errorf("there are %d controllers, not 2 (%v)", len(pods), err)
	}
	s.journal.mustHaveGrown(t, before, always(0))
}

func (s *tale) grow(t *testing.T) {
	before := s.journal.counts()
	s.makeSets(t, inherited, sets)
	s.awaitSets(t)
	s.mustBeSpread(t)
	s.journal.mustHaveGrown(t, before, func(pod string) int {
		if before[pod] > 0 {
			return 0
		}
		return 1
	})
	s.journal.mindBudget(true)
}

// amid begins a rollout of all sets, whose pods take a time to become ready, and does something when it is on its way. The last pod of
// each set waits until that is done.
func (s *tale) amid(t *testing.T, image string, delay time.Duration, do func()) {
	t.Helper()
	before := s.journal.counts()
	for i := range sets {
		s.patchSet(t, nameOf(i), toPartition(1))
		s.patchSet(t, nameOf(i), toImage(image, delay))
	}
	await(t, "the rollout is on its way", func(context.Context) (string, error) {
		if n := s.journal.replaced(before); n < sets {
			return fmt.Sprintf("%d pods are replaced", n), nil
		}
		return "", nil
	})
	do()
	t.Logf("%d pods are still to be replaced", sets*replicas-s.journal.replaced(before))
	for i := range sets {
		s.patchSet(t, nameOf(i), toPartition(0))
	}
	s.awaitSets(t)
	s.journal.mustHaveGrown(t, before, always(1))
}

func (s *tale) loseLeader(t *testing.T) {
	s.amid(t, "db:2", slowly, func() {
		leader, err := s.leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kill(t, podOf(leader))
		began := time.Now()
		t.Logf("%s follows %s after %s", s.awaitLeader(t, leader), leader, time.Since(began).Round(time.Second))
	})
}

func (s *tale) upgrade(t *testing.T) {
	s.amid(t, "db:3", verySlowly, func() {
		s.must(t, "helm", onChart("upgrade", "--set=image.tag="+secondBuild)...)
		s.awaitBuild(t, secondBuild)
	})
	s.kubectl(t, "--namespace="+system, "rollout", "status", "deployment/"+deployment, "--timeout=90s")
	await(t, "the old controllers are gone", func(ctx context.Context) (string, error) {
		pods, err := s.controllers(ctx)
		if err == nil && len(pods) != 2 {
			return fmt.Sprintf("there are %d controllers", len(pods)), nil
		}
		return "", err
	})
	pods, err := s.controllers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if image := pod.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+secondBuild) {
			t.Errorf("%s runs %s", pod.Name, image)
		}
	}
}

func (s *tale) testChart(t *testing.T) {
	s.must(t, "helm", "test", release, "--namespace="+system, "--timeout=60s")
}

func (s *tale) refuse(t *testing.T) {
	for value, told := range map[string]string{"replicas=-1": "/replicas", "image.pullPolicy=Sometimes": "/image/pullPolicy", "replica=2": "replica"} {
		out, err := s.try(t.Context(), "helm", onChart("upgrade", "--reuse-values", "--set="+value)...)
		if err == nil || !strings.Contains(out, told) {
			t.Errorf("%s is not refused by its name (%v):\n%s", value, err, out)
		}
	}
}

// drain empties the node of a pod whose disk is in that node, and gives it back.
func (s *tale) drain(t *testing.T) {
	s.journal.mindBudget(false)
	before := s.journal.counts()
	bound := nameOf(0) + "-0"
	node := s.podsOf(t, nameOf(0))[bound].Spec.NodeName
	evicted := map[string]string{} // pods, and where their disks are
	for i := range sets {
		for name, pod := range s.podsOf(t, nameOf(i)) {
			if pod.Spec.NodeName == node {
				evicted[name] = s.diskHome(t, name)
			}
		}
	}
	s.kubectl(t, "drain", node, "--ignore-daemonsets", "--timeout=60s")
	await(t, "the pods are where their disks let them be", func(ctx context.Context) (string, error) {
		return s.misplaced(ctx, evicted, node)
	})
	s.kubectl(t, "uncordon", node)
	s.awaitSets(t)
	for name, home := range evicted {
		pod, err := s.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
		} else if at := pod.Spec.NodeName; at != home && zoneOf(at) != home {
			t.Errorf("%s came back on %s, and its disk is in %s", name, at, home)
		}
	}
	s.journal.mustHaveGrown(t, before, func(pod string) int {
		if _, ok := evicted[pod]; ok {
			return 1
		}
		return 0
	})
	s.mustBeSpread(t)
}

// misplaced tells which of the pods that a drained node had are neither waiting for it, as their disks are in it, nor on another node
// of its zone.
func (s *tale) misplaced(ctx context.Context, evicted map[string]string, drained string) (string, error) {
	for name, home := range evicted {
		pod, err := s.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		at, ready := pod.Spec.NodeName, pod.Status.Phase == corev1.PodRunning
		if waits := home == drained; waits && at != "" || !waits && (at == "" || at == drained || zoneOf(at) != home || !ready) {
			return fmt.Sprintf("%s is on %q, and its disk in %s", name, at, home), nil
		}
	}
	return "", nil
}

func (s *tale) uninstall(t *testing.T) {
	before := s.journal.counts()
	s.must(t, "helm", "uninstall", release, "--namespace="+system, "--wait", "--timeout=90s")
	await(t, "the controllers are gone", func(ctx context.Context) (string, error) {
		pods, err := s.controllers(ctx)
		if err == nil && len(pods) > 0 {
			return fmt.Sprintf("there are %d controllers", len(pods)), nil
		}
		return "", err
	})
	list, err := s.client.AppsV1().StatefulSets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != sets {
		t.Errorf("there are %d sets, not %d (%v)", len(list.Items), sets, err)
	}
	s.kubectl(t, "get", "customresourcedefinitions", "statefulsetpolicies.ordinal.dev")
	s.journal.mustHaveGrown(t, before, always(0))
}

func (s *tale) goBack(t *testing.T) {
	before := s.journal.counts()
	s.manage(t, withIncumbent)
	// It works when this set has one pod more.
	grown := nameOf(0)
	s.patchSet(t, grown, toReplicas(replicas+1))
	s.awaitSets(t)
	added := fmt.Sprintf("%s-%d", grown, replicas)
	s.journal.mustHaveGrown(t, before, func(pod string) int {
		if pod == added {
			return 1
		}
		return 0
	})
}

// explain writes down the state of the cluster when a step has failed.
func (s *tale) explain(t *testing.T) {
	t.Helper()
	for name, args := range map[string][]string{
		"objects.txt": {"get", "statefulsets,pods,nodes,leases", "--all-namespaces", "--output=wide"},
		"events.txt":  {"get", "events", "--all-namespaces"},
		"system.txt":  {"logs", "--namespace=" + system, "--selector=" + controllerApp, "--prefix", "--tail=200"},
		"system.yaml": {"get", "pods", "--namespace=" + system, "--output=yaml"},
	} {
		out, err := s.try(t.Context(), "ordinal", append([]string{"kubectl", "--kubeconfig=" + s.kubeconfig("admin")}, args...)...)
		if err != nil && !apierrors.IsNotFound(err) {
			out += err.Error()
		}
		if err := os.WriteFile(s.log(name), []byte(out), 0o600); err != nil {
			t.Log(err)
		}
	}
}
