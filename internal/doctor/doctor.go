// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at the host and says what a one-machine cluster would miss on it, and which command mends it.
package doctor

import (
	"context"
	"fmt"
	"strings"
)

// State is how well the host meets one need.
type State int

// The states, from best to worst.
const (
	// OK means that nothing is to be done.
	OK State = iota
	// Warn means that a cluster starts, but something about it will be poor.
	Warn
	// Fail means that a cluster cannot work.
	Fail
)

// String names the state in one lower-case word.
func (s State) String() string {
	switch s {
	case OK:
		return "ok"
	case Warn:
		return "warn"
	case Fail:
		return "fail"
	default:
		return fmt.Sprintf("State(%d)", int(s))
	}
}

// Result is the answer to one question about the host.
type Result struct {
	// Name is what was looked at, in one or two words.
	Name string
	// State is the verdict.
	State State
	// Detail is what was found, in one line.
	Detail string
	// Remedy is the command that mends it, or the shortest instruction where no command can. Empty when the state is OK.
	Remedy string
}

// String is the result in one line, without its state.
func (r Result) String() string {
	if r.Remedy == "" {
		return r.Name + ": " + r.Detail
	}
	return r.Name + ": " + r.Detail + "; mend it with: " + r.Remedy
}

// Options say for which cluster the host is looked at.
type Options struct {
	// DataDir is the cluster's data directory; it need not exist yet.
	DataDir string
	// BinDir is the directory in which the programs that the cluster starts are.
	BinDir string
	// APIPort is the API server's port.
	APIPort int
	// Simulate says that the cluster's nodes are simulated, so that it needs no more than a directory and ports on loopback.
	Simulate bool
	// Running says that our own cluster runs on this host, and that its ports and memory are therefore in use.
	Running bool
}

// A check looks at one thing. It changes nothing on the host.
type check func(ctx context.Context, h *host, o Options) []Result

// Run makes all checks, in the order in which a reader would mend what they find. It takes well under 200 ms.
func Run(ctx context.Context, o Options) []Result {
	return run(ctx, newHost(), o)
}

func run(ctx context.Context, h *host, o Options) []Result {
	checks := []check{
		checkRoot,
		checkKernel,
		checkFeatures,
		checkCgroups,
		checkForwarding,
		checkDevices,
		checkRunc,
		checkCNI,
		checkNft,
		checkTools,
		checkPrograms,
		checkPorts,
		checkNetworks,
		checkDataDir,
		checkDisk,
		checkInotify,
		checkMemory,
	}
	if o.Simulate {
		checks = []check{checkPrograms, checkPorts, checkDataDir, checkDisk, checkMemory}
	}
	var results []Result
	for _, c := range checks {
		results = append(results, c(ctx, h, o)...)
	}
	return results
}

// Failures are the results that keep a cluster from working.
func Failures(results []Result) []Result {
	var failures []Result
	for _, r := range results {
		if r.State == Fail {
			failures = append(failures, r)
		}
	}
	return failures
}

func pass(name, format string, args ...any) []Result {
	return []Result{{Name: name, State: OK, Detail: fmt.Sprintf(format, args...)}}
}

func warn(name, remedy, format string, args ...any) []Result {
	return []Result{{Name: name, State: Warn, Detail: fmt.Sprintf(format, args...), Remedy: remedy}}
}

func fail(name, remedy, format string, args ...any) []Result {
	return []Result{{Name: name, State: Fail, Detail: fmt.Sprintf(format, args...), Remedy: remedy}}
}

// apt is the remedy for a missing system package.
func apt(packages ...string) string {
	return "apt-get install " + strings.Join(packages, " ")
}
