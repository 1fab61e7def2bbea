// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strconv"
	"strings"
)

// kube-proxy's nftables mode needs what this release brought.
const minKernel = "5.13"

func checkRoot(_ context.Context, h *host, _ Options) []Result {
	if h.uid != 0 {
		return fail("root", "sudo ordinal up", "running as user %d, and containers need root", h.uid)
	}
	return pass("root", "yes")
}

func checkKernel(_ context.Context, h *host, _ Options) []Result {
	release := h.read("/proc/sys/kernel/osrelease")
	if compareVersions(release, minKernel) < 0 {
		return fail("kernel", apt("linux-image-"+runtime.GOARCH)+" && reboot",
			"Linux %q, and Services need %s or newer", release, minKernel)
	}
	return pass("kernel", "Linux %s", release)
}

// compareVersions compares major and minor, whatever follows them; what is no number counts as 0.
func compareVersions(a, b string) int {
	x, y := majorMinor(a), majorMinor(b)
	if x[0] != y[0] {
		return x[0] - y[0]
	}
	return x[1] - y[1]
}

func majorMinor(version string) [2]int {
	var parsed [2]int
	for i, part := range strings.SplitN(version, ".", 3) {
		if i == len(parsed) {
			break
		}
		if end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			part = part[:end]
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		parsed[i] = n
	}
	return parsed
}

// feature is something that the kernel has built in, has as a module, or lacks.
type feature struct {
	// module and config are its module's and its configuration option's name.
	module, config string
	// sign is a file that exists, or (with a word) holds that word, if the feature works already.
	sign, word string
	// use is what it is for.
	use string
}

func checkFeatures(_ context.Context, h *host, _ Options) []Result {
	features := []feature{
		{module: "overlay", config: "CONFIG_OVERLAY_FS", sign: "/proc/filesystems", word: "overlay", use: "container images"},
		{module: "bridge", config: "CONFIG_BRIDGE", sign: "/sys/module/bridge", use: "the pod network"},
		{module: "veth", config: "CONFIG_VETH", sign: "/sys/module/veth", use: "the pod network"},
		{module: "nf_tables", config: "CONFIG_NF_TABLES", sign: "/sys/module/nf_tables", use: "Services"},
		{
			module: "br_netfilter", config: "CONFIG_BRIDGE_NETFILTER", sign: "/proc/sys/net/bridge/bridge-nf-call-iptables",
			use: "Services between pods of one bridge",
		},
	}
	var good []string
	var results []Result
	for _, f := range features {
		switch h.feature(f) {
		case present:
			good = append(good, f.module)
		case loadable:
			good = append(good, f.module+" (module)")
		case uninstalled:
			results = append(results, fail("kernel "+f.module, apt("linux-image-$(uname -r)")+" (or reboot, after an upgrade of the kernel)",
				"the module is not in /lib/modules; needed for %s", f.use)...)
		case absent:
			results = append(results, fail("kernel "+f.module, "boot a kernel that was built with "+f.config,
				"this kernel was built without %s, needed for %s", f.config, f.use)...)
		case unknown:
			results = append(results, warn("kernel "+f.module, "modprobe "+f.module,
				"cannot tell whether this kernel has it; needed for %s", f.use)...)
		}
	}
	if len(good) > 0 {
		results = append(results, pass("kernel features", "%s", strings.Join(good, ", "))...)
	}
	return results
}

// presence is what is known about a kernel feature.
type presence int

const (
	unknown presence = iota
	present
	loadable
	uninstalled
	absent
)

// feature asks the running kernel first, then its list of modules, then its configuration.
func (h *host) feature(f feature) presence {
	if h.hasSign(f) {
		return present
	}
	release := h.read("/proc/sys/kernel/osrelease")
	modules := "/lib/modules/" + release
	if hasModule(h.read(modules+"/modules.builtin"), f.module) {
		return present
	}
	dep := h.read(modules + "/modules.dep")
	if hasModule(dep, f.module) {
		return loadable
	}
	config := h.kernelConfig(release)
	switch {
	case strings.Contains(config, "\n"+f.config+"=y\n"):
		return present
	case strings.Contains(config, "\n"+f.config+"=m\n"):
		return uninstalled
	case config != "" || dep != "":
		return absent
	default:
		return unknown
	}
}

func (h *host) hasSign(f feature) bool {
	if f.word == "" {
		return h.exists(f.sign)
	}
	return hasField(h.read(f.sign), f.word)
}

// hasModule looks for a module in modules.builtin or modules.dep, where a line starts with its path.
func hasModule(list, module string) bool {
	for line := range strings.Lines(list) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		base := file[strings.LastIndexByte(file, '/')+1:]
		if stem, _, found := strings.Cut(base, ".ko"); found && strings.ReplaceAll(stem, "-", "_") == module {
			return true
		}
	}
	return false
}

// kernelConfig is the configuration that the kernel was built with, with a line break at both ends, or "".
func (h *host) kernelConfig(release string) string {
	if config := h.read("/boot/config-" + release); config != "" {
		return "\n" + config + "\n"
	}
	packed, err := fs.ReadFile(h.root, "proc/config.gz")
	if err != nil {
		return ""
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return ""
	}
	config, err := io.ReadAll(io.LimitReader(unpacked, 4<<20))
	if err != nil {
		return ""
	}
	return "\n" + string(config) + "\n"
}

func checkCgroups(_ context.Context, h *host, _ Options) []Result {
	const dir = "/sys/fs/cgroup"
	if controllers := h.read(dir + "/cgroup.controllers"); controllers != "" {
		have := func(c string) bool { return hasField(controllers, c) }
		return judgeCgroups(h, "v2", have, "cpu", "cpuset", "memory", "pids")
	}
	if !h.exists(dir+"/memory") && !h.exists(dir+"/cpu") && !h.exists(dir+"/pids") {
		return fail("cgroups", "mount -t cgroup2 none "+dir, "no cgroup controllers at %s", dir)
	}
	have := func(c string) bool { return h.exists(dir + "/" + c + "/cgroup.procs") }
	return judgeCgroups(h, "v1", have, "cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer")
}

func judgeCgroups(h *host, version string, have func(string) bool, needed ...string) []Result {
	var missing []string
	for _, c := range needed {
		if !have(c) {
			missing = append(missing, c)
		}
	}
	remedies := map[string]string{
		"v1": "mkdir -p /sys/fs/cgroup/NAME && mount -t cgroup -o NAME cgroup /sys/fs/cgroup/NAME",
		"v2": "add cgroup_enable=NAME to the kernel's command line and reboot",
	}
	if len(missing) > 0 {
		return fail("cgroups", strings.ReplaceAll(remedies[version], "NAME", missing[0]),
			"%s without %s", version, strings.Join(missing, ", "))
	}
	if h.mountedReadOnly("/sys/fs/cgroup/memory") { // v1: a mount of its own
		return fail("cgroups", "mount -o remount,rw /sys/fs/cgroup", "%s, mounted read-only", version)
	}
	return pass("cgroups", "%s with %s", version, strings.Join(needed, ", "))
}

func hasField(list, field string) bool {
	for f := range strings.FieldsSeq(list) {
		if f == field {
			return true
		}
	}
	return false
}

func checkForwarding(_ context.Context, h *host, _ Options) []Result {
	const file = "/proc/sys/net/ipv4/ip_forward"
	switch value := h.read(file); {
	case value == "1":
		return pass("ip forwarding", "on")
	case value == "":
		return fail("ip forwarding", "sysctl -w net.ipv4.ip_forward=1", "%s cannot be read", file)
	case h.mountedReadOnly(file):
		return fail("ip forwarding", "mount -o remount,rw /proc/sys", "off, and /proc/sys is read-only")
	default:
		return pass("ip forwarding", "off now, switched on with the pod network")
	}
}

// The kubelet watches the kernel's log for pods that ran out of memory, and does not start without it.
func checkDevices(_ context.Context, h *host, _ Options) []Result {
	if !h.exists("/dev/kmsg") {
		return fail("kernel log", "mknod /dev/kmsg c 1 11", "/dev/kmsg does not exist, and the kubelet reads it")
	}
	return pass("kernel log", "/dev/kmsg")
}

func checkInotify(_ context.Context, h *host, _ Options) []Result {
	limits := []struct {
		name string
		min  int
	}{
		{"fs.inotify.max_user_instances", 128},
		{"fs.inotify.max_user_watches", 8192},
	}
	var found []string
	for _, l := range limits {
		value, err := strconv.Atoi(h.read("/proc/sys/" + strings.ReplaceAll(l.name, ".", "/")))
		if err != nil {
			return warn("inotify", fmt.Sprintf("sysctl -w %s=%d", l.name, l.min), "%s cannot be read", l.name)
		}
		if value < l.min {
			return warn("inotify", fmt.Sprintf("sysctl -w %s=%d", l.name, l.min),
				"%s is %d; below %d the kubelet may miss changes", l.name, value, l.min)
		}
		found = append(found, fmt.Sprintf("%s %d", strings.TrimPrefix(l.name, "fs.inotify.max_user_"), value))
	}
	return pass("inotify", "%s", strings.Join(found, ", "))
}

const (
	gib = 1 << 30
	// A machine sold with 1 GiB shows less, because the kernel takes its part first.
	minMemory = gib - gib/8
	// What the parts of a cluster take together while they start, without any pod.
	wantMemory = gib - gib/4
)

func checkMemory(_ context.Context, h *host, o Options) []Result {
	total, available := meminfo(h.read("/proc/meminfo"))
	switch {
	case total < minMemory:
		return fail("memory", "give the machine at least 1 GiB of memory", "%s", size(total))
	case available < wantMemory && !o.Running:
		return warn("memory", "ps -eo pid,rss,comm --sort -rss | head", "%s of %s available; a cluster takes about %s",
			size(available), size(total), size(wantMemory))
	default:
		return pass("memory", "%s of %s available", size(available), size(total))
	}
}

// meminfo gives the total and the available memory in bytes.
func meminfo(content string) (total, available uint64) {
	for line := range strings.Lines(content) {
		var name string
		var kib uint64
		if n, err := fmt.Sscanf(line, "%s %d", &name, &kib); n != 2 || err != nil {
			continue
		}
		switch name {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	return total, available
}

// size prints a number of bytes for people.
func size(bytes uint64) string {
	if bytes >= gib {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
