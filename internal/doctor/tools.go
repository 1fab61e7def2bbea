// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// checkRunc wants a runc that starts and knows seccomp: pods get a seccomp profile by default, and a runc that was built
// without it refuses each of them.
func checkRunc(ctx context.Context, h *host, _ Options) []Result {
	program, found := h.lookPath("runc")
	if !found {
		return fail("runc", apt("runc"), "not found on the path")
	}
	version, err := h.output(ctx, program, "--version")
	if err != nil {
		return fail("runc", apt("--reinstall", "runc"), "%s does not run: %v", program, err)
	}
	first, _, _ := strings.Cut(version, "\n")
	if !strings.Contains(version, "libseccomp") && !hasSeccomp(ctx, h, program) {
		return fail("runc", "rm "+program+" && "+apt("--reinstall", "runc"), "%s (%s) was built without seccomp", program, first)
	}
	return pass("runc", "%s at %s, with seccomp", strings.TrimPrefix(first, "runc version "), program)
}

// hasSeccomp asks runc itself; versions before 1.1 do not know the question.
func hasSeccomp(ctx context.Context, h *host, program string) bool {
	out, err := h.output(ctx, program, "features")
	if err != nil {
		return false
	}
	var features struct {
		Linux struct {
			Seccomp struct {
				Enabled bool `json:"enabled"`
			} `json:"seccomp"`
		} `json:"linux"`
	}
	return json.Unmarshal([]byte(out), &features) == nil && features.Linux.Seccomp.Enabled
}

// cniPlugins are those that the pod network is made of; the container runtime has its own for loopback.
func cniPlugins() []string { return []string{"bridge", "host-local", "portmap"} }

// checkCNI looks where the container runtime will look.
func checkCNI(_ context.Context, h *host, _ Options) []Result {
	var found, missing []string
	for _, plugin := range cniPlugins() {
		i := slices.IndexFunc(layout.CNIDirs(), func(dir string) bool { return h.executable(path.Join(dir, plugin)) })
		if i < 0 {
			missing = append(missing, plugin)
			continue
		}
		found = append(found, path.Join(layout.CNIDirs()[i], plugin))
	}
	dirs := strings.Join(layout.CNIDirs(), ", ")
	switch {
	case len(missing) == 0:
		return pass("CNI plugins", "%s", strings.Join(found, ", "))
	case len(found) == 0:
		return fail("CNI plugins", apt("containernetworking-plugins"), "none in %s", dirs)
	default:
		return fail("CNI plugins", apt("--reinstall", "containernetworking-plugins"), "no %s in %s", strings.Join(missing, ", "), dirs)
	}
}

// The oldest nft that kube-proxy accepts is 1.0.1; the patch level is told apart because 1.0.0 exists too.
func checkNft(ctx context.Context, h *host, _ Options) []Result {
	program, found := h.lookPath("nft")
	if !found {
		return fail("nft", apt("nftables"), "not found on the path; Services need it")
	}
	out, err := h.output(ctx, program, "--version")
	if err != nil {
		return fail("nft", apt("--reinstall", "nftables"), "%s does not run: %v", program, err)
	}
	fields := strings.Fields(out)
	if len(fields) < 2 {
		return warn("nft", apt("--reinstall", "nftables"), "%s does not tell its version", program)
	}
	version := strings.TrimPrefix(fields[1], "v")
	if compareVersions(version, "1.0") < 0 || version == "1.0.0" {
		return fail("nft", apt("nftables"), "version %s at %s, and Services need 1.0.1 or newer", version, program)
	}
	return pass("nft", "%s at %s", version, program)
}

// checkTools looks for the other programs that parts of the cluster call by name.
func checkTools(_ context.Context, h *host, _ Options) []Result {
	tools := []struct{ program, from, use string }{
		{"iptables", "iptables", "pod traffic to other networks and host ports"},
		{"mount", "mount", "volumes"},
		{"umount", "mount", "volumes"},
	}
	var results []Result
	var found []string
	for _, t := range tools {
		if program, ok := h.lookPath(t.program); ok {
			found = append(found, program)
			continue
		}
		results = append(results, fail(t.program, apt(t.from), "not found on the path; needed for %s", t.use)...)
	}
	if len(results) == 0 {
		return pass("system tools", "%s", strings.Join(found, ", "))
	}
	return results
}

// checkPrograms looks for what the build puts beside our own binary.
func checkPrograms(_ context.Context, h *host, o Options) []Result {
	programs := []string{layout.Controller}
	if !o.Simulate {
		programs = append(programs, "containerd", "containerd-shim-runc-v2", layout.StartHook)
	}
	var missing []string
	for _, program := range programs {
		if !h.executable(path.Join(o.BinDir, program)) {
			missing = append(missing, program)
		}
	}
	if !o.Simulate && !h.exists(path.Join(o.BinDir, layout.PauseArchive)) {
		missing = append(missing, layout.PauseArchive)
	}
	if len(missing) > 0 {
		return fail("programs", "make build", "%s: not in %s, where ordinal itself is", strings.Join(missing, ", "), o.BinDir)
	}
	if o.Simulate {
		return pass("programs", "%s in %s", layout.Controller, o.BinDir)
	}
	return pass("programs", "the controller, containerd, its shim, the start hook and the pause image in %s", o.BinDir)
}
