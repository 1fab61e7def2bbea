// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// facts is what a cluster could leave on its host, by kind.
type facts map[string][]string

// inspect looks at everything outside its own directories that a cluster touches.
func inspect(ctx context.Context) (facts, error) {
	f := facts{
		"link":    children("/sys/class/net"),
		"netns":   children("/run/netns"),
		"process": describe(processes()),
		"cgroup":  cgroups(),
	}
	for _, dir := range []string{
		"/run", "/etc/cni", "/etc/cni/net.d", "/opt", "/opt/cni", "/var/lib", "/var/lib/cni", "/var/lib/cni/networks", "/var/lib/kubelet",
		"/var/log/pods", "/var/log/containers",
	} {
		f["file in "+dir] = children(dir)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		f["mount"] = append(f["mount"], strings.Fields(line)[4])
	}
	rules, err := exec.CommandContext(ctx, "nft", "list", "ruleset").Output()
	if err != nil {
		return nil, fmt.Errorf("nft list ruleset: %w", err)
	}
	f["packet filter"] = rulesIn(string(rules))
	return f, nil
}

var (
	counters = regexp.MustCompile(`counter packets \d+ bytes \d+ ?`)
	// What iptables makes as soon as anybody looks at its rules, and what does nothing while it is empty.
	ofIPTables = regexp.MustCompile(`^(table ip6? (filter|nat|mangle|raw|security) \{|chain (PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) \{|type .* hook .*|#.*|\}|)$`)
)

// rulesIn are the lines of a packet filter's listing that mean something, without what changes by itself.
func rulesIn(listing string) []string {
	var rules []string
	for line := range strings.Lines(listing) {
		line = counters.ReplaceAllString(strings.TrimSpace(line), "")
		if !ofIPTables.MatchString(line) {
			rules = append(rules, line)
		}
	}
	return rules
}

// residue is an error that names everything on the host that was not there before the first cluster. What the kernel tears
// down on its own time (network interfaces, cgroups) has some seconds for it.
func residue(ctx context.Context) error {
	var left []string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		now, err := inspect(ctx) // to the end, also when the time is over
		if err != nil {
			return false, err
		}
		left = nil
		for _, kind := range slices.Sorted(maps.Keys(now)) {
			for _, fact := range now[kind] {
				if !slices.Contains(suite.before[kind], fact) {
					left = append(left, kind+" "+strings.TrimSpace(fact))
				}
			}
		}
		return len(left) == 0, nil
	})
	if len(left) > 0 {
		return fmt.Errorf("left on the host: %s", strings.Join(left, "; "))
	}
	return err
}

// children are the names in a directory, none if it is not there.
func children(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

// cgroups are the control groups that only a cluster makes.
func cgroups() []string {
	var found []string
	for depth := range 3 {
		groups, _ := filepath.Glob("/sys/fs/cgroup" + strings.Repeat("/*", depth+1)) // fails only on a bad pattern
		for _, group := range groups {
			if ofCluster.MatchString(filepath.Base(group)) {
				found = append(found, group)
			}
		}
	}
	return found
}

var ofCluster = regexp.MustCompile(`kubepods|ordinal|containerd|k8s\.io|kubelet`)

// process is one that belongs to a cluster.
type process struct {
	pid  int
	exe  string
	args []string
}

// mark is in the environment of everything that the tests start, and of what that starts.
const mark = "ORDINAL_E2E=yes"

// processes are all that are part of a cluster of the tests, or run in a pod.
func processes() []process {
	var found []process
	for _, p := range everyProcess() {
		dir := filepath.Join("/proc", strconv.Itoa(p.pid))
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			continue // it is gone
		}
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			continue
		}
		ours := slices.Contains(strings.Split(string(environment), "\x00"), mark)
		if ours && p.isPart() || strings.Contains(string(group), "kubepods") {
			found = append(found, p)
		}
	}
	return found
}

func everyProcess() []process {
	var found []process
	for _, name := range children("/proc") {
		if pid, err := strconv.Atoi(name); err == nil {
			found = append(found, look(pid))
		}
	}
	return found
}

// isPart tells whether a process is a supervisor or what it started.
func (p process) isPart() bool {
	switch filepath.Base(p.exe) {
	case "ordinal":
		return slices.Contains(p.args, "up") || slices.Contains(p.args, "component")
	case "containerd", "containerd-shim-runc-v2":
		return true
	default:
		return false
	}
}

func look(pid int) process {
	p := process{pid: pid}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		p.exe = strings.TrimSuffix(exe, " (deleted)")
	}
	if args, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
		p.args = strings.Split(strings.TrimRight(string(args), "\x00"), "\x00")
	}
	return p
}

// allDead is nil when none of these processes holds anything any more: a killed one keeps its ports until it is a zombie.
func allDead(pids []int) error {
	for _, pid := range pids {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			continue // it is gone
		}
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "Z") {
			return fmt.Errorf("process %d is in state %.1s", pid, state)
		}
	}
	return nil
}

func describe(all []process) []string {
	var found []string
	for _, p := range all {
		found = append(found, fmt.Sprintf("%d %s", p.pid, strings.Join(p.args, " ")))
	}
	return found
}
