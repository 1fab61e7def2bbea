// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// group is a part of the suite that runs at once: the specs whose full names match focus and, if it is set, do not match but.
type group struct {
	name  string
	focus string
	but   string
}

// groups are all that is run: first what every conformant cluster has to pass.
func groups() []group {
	return []group{
		{name: "StatefulSets, conformance", focus: `\[sig-apps\] StatefulSet .*\[Conformance\]`},
		{name: "StatefulSets, the other specs", focus: `\[sig-apps\] StatefulSet `, but: `\[Conformance\]`},
		{name: "StatefulSets on local volumes", focus: `\[sig-storage\] .*StatefulSet`},
		{name: "names", focus: `\[sig-network\] DNS `},
		{name: "disruption budgets and evictions", focus: `\[sig-apps\] DisruptionController `},
		{name: "owners and orphans", focus: `\[sig-api-machinery\] Garbage collector `},
		{name: "claims in use", focus: `\[sig-storage\] PVC Protection `},
		{name: "kubectl, conformance", focus: `\[sig-cli\] .*\[Conformance\]`},
	}
}

// chosenGroups are the groups whose names match.
func chosenGroups(only *regexp.Regexp) []group {
	var chosen []group
	for _, g := range groups() {
		if only.MatchString(g.name) {
			chosen = append(chosen, g)
		}
	}
	return chosen
}

// file is the name of the group's report and log, without extension.
func (g group) file() string {
	return strings.Join(strings.FieldsFunc(g.name, func(r rune) bool { return r == ' ' || r == ',' }), "-")
}

// has tells whether a spec is one of the group.
func (g group) has(spec string) bool {
	return regexp.MustCompile(g.focus).MatchString(spec) && (g.but == "" || !regexp.MustCompile(g.but).MatchString(spec))
}

// skipped matches what is not started: what is of other groups, and what cannot run here.
func (g group) skipped(known exceptions) string {
	var parts []string
	if g.but != "" {
		parts = append(parts, g.but)
	}
	for _, e := range known {
		parts = append(parts, e.spec)
	}
	return strings.Join(parts, "|")
}

// exceptions are specs that cannot run in such a cluster, and why.
type exceptions []struct{ spec, reason string }

// knownExceptions are those for a machine whose process 1 is to be found in proc.
func knownExceptions(proc string) exceptions {
	known := exceptions{
		{`CockroachDB|Update Demo`, "its programs are in images of a registry only"},
		{`\[Feature:OffByDefault\]`, "it is about a feature gate that is off by default"},
		{`\[sig-storage\] .*StatefulSet .* spread across nodes`, "it needs three nodes"},
		{`\[sig-network\] DNS configMap`, "it changes the settings of DNS pods in kube-system, and DNS is not a pod here"},
	}
	if _, err := os.Readlink(filepath.Join(proc, "1", "ns", "mnt")); err != nil {
		known = append(known, exceptions{{
			`\[sig-storage\] PersistentVolumes-local`,
			"its pods make directories from within process 1's mount namespace, which this machine forbids even root",
		}}...)
	}
	return known
}

// reason is why a spec is not started, or empty.
func (x exceptions) reason(spec string) string {
	for _, e := range x {
		if regexp.MustCompile(e.spec).MatchString(spec) {
			return e.reason
		}
	}
	return ""
}
