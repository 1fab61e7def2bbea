// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// world is a host that tests change before they have it looked at.
type world struct {
	files     fstest.MapFS
	uid       int
	env       map[string]string
	outputs   map[string]string
	addresses map[string][]netip.Prefix
	disk      filesystem
	denied    error
	options   Options
}

// healthy is a Debian machine on which everything is in place and no cluster was started yet.
func healthy() *world {
	w := &world{
		files: fstest.MapFS{"var/lib": {Mode: fs.ModeDir | 0o755}},
		env:   map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"},
		outputs: map[string]string{
			"/usr/sbin/runc --version": "runc version 1.1.5\nspec: 1.0.2\nlibseccomp: 2.5.4\n",
			"/usr/sbin/nft --version":  "nftables v1.0.6 (Lester Gooch #5)\n",
		},
		addresses: map[string][]netip.Prefix{"eth0": {netip.MustParsePrefix("192.168.1.7/24")}},
		disk:      filesystem{kind: 0xef53, free: 20 * gib},
		options:   Options{DataDir: "/var/lib/ordinal", BinDir: "/opt/ordinal", APIPort: layout.DefaultAPIPort},
	}
	for file, content := range map[string]string{
		"/proc/sys/kernel/osrelease":                   "6.1.0-18-amd64\n",
		"/proc/sys/net/ipv4/ip_forward":                "0\n",
		"/proc/sys/net/bridge/bridge-nf-call-iptables": "1\n",
		"/proc/sys/fs/inotify/max_user_instances":      "128\n",
		"/proc/sys/fs/inotify/max_user_watches":        "65536\n",
		"/proc/filesystems":                            "nodev\tproc\nnodev\toverlay\n\text4\n",
		"/proc/meminfo":                                "MemTotal:  4000000 kB\nMemFree: 10 kB\nMemAvailable:  3000000 kB\n",
		"/proc/self/mounts":                            "/dev/sda1 / ext4 rw,relatime 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
		"/sys/fs/cgroup/cgroup.controllers":            "cpuset cpu io memory hugetlb pids\n",
		"/lib/modules/6.1.0-18-amd64/modules.builtin":  "kernel/fs/ext4/ext4.ko\n",
		"/lib/modules/6.1.0-18-amd64/modules.dep": "kernel/net/bridge/bridge.ko.xz: kernel/net/llc/llc.ko.xz\n" +
			"kernel/drivers/net/veth.ko:\nkernel/net/netfilter/nf_tables.ko: kernel/lib/libcrc32c.ko\n",
		"/proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
			routeLine("eth0", "0.0.0.0/0") + routeLine("eth0", "192.168.1.0/24"),
		"/dev/kmsg":              "",
		"/opt/ordinal/pause.tar": "",
	} {
		w.write(file, content)
	}
	for _, program := range []string{
		"/usr/sbin/runc", "/usr/sbin/nft", "/usr/sbin/iptables", "/usr/bin/mount", "/usr/bin/umount",
		"/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/portmap",
		"/opt/ordinal/containerd", "/opt/ordinal/containerd-shim-runc-v2", "/opt/ordinal/atmostone", "/opt/ordinal/ordinal-controller",
	} {
		w.files[name(program)] = &fstest.MapFile{Mode: 0o755}
	}
	return w
}

func (w *world) write(file, content string) {
	w.files[name(file)] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
}

func (w *world) remove(files ...string) {
	for _, file := range files {
		delete(w.files, name(file))
	}
}

func (w *world) host() *host {
	return &host{
		root:   w.files,
		uid:    w.uid,
		getenv: func(key string) string { return w.env[key] },
		output: func(_ context.Context, program string, args ...string) (string, error) {
			out, found := w.outputs[strings.Join(append([]string{program}, args...), " ")]
			if !found {
				return "", errors.New("exit status 1")
			}
			return out, nil
		},
		addresses: func() (map[string][]netip.Prefix, error) { return w.addresses, nil },
		statfs:    func(string) (filesystem, error) { return w.disk, nil },
		writable:  func(string) error { return w.denied },
	}
}

// routeLine is a line of /proc/net/route on a little-endian machine.
func routeLine(device, prefix string) string {
	p := netip.MustParsePrefix(prefix)
	a := p.Addr().As4()
	mask := net.CIDRMask(p.Bits(), 32)
	return fmt.Sprintf("%s\t%02X%02X%02X%02X\t00000000\t0001\t0\t0\t0\t%02X%02X%02X%02X\t0\t0\t0\n",
		device, a[3], a[2], a[1], a[0], mask[3], mask[2], mask[1], mask[0])
}

// socketLine is a line of /proc/net/tcp or udp on a little-endian machine.
func socketLine(addr string, state string, inode int) string {
	a := netip.MustParseAddrPort(addr)
	hex := ""
	bytes := a.Addr().AsSlice()
	for i := 0; i < len(bytes); i += 4 {
		hex += fmt.Sprintf("%02X%02X%02X%02X", bytes[i+3], bytes[i+2], bytes[i+1], bytes[i])
	}
	return fmt.Sprintf("   0: %s:%04X 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 1 0 100 0\n",
		hex, a.Port(), state, inode)
}

func TestHealthyHostPassesEveryCheck(t *testing.T) {
	w := healthy()
	results := run(t.Context(), w.host(), w.options)
	for _, r := range results {
		if r.State != OK || r.Remedy != "" || r.Detail == "" {
			t.Errorf("%s: %v, %q, remedy %q; want ok, a detail and no remedy", r.Name, r.State, r.Detail, r.Remedy)
		}
	}
	if failures := Failures(results); len(failures) != 0 {
		t.Errorf("failures of a healthy host: %v", failures)
	}
}

// Each case takes one thing away from a healthy host and names the one result that must not be OK then.
func TestMisses(t *testing.T) {
	socketOwner := func(w *world, pid, program string, inode int) {
		w.write("/proc/"+pid+"/comm", program+"\n")
		w.files["proc/"+pid+"/fd/3"] = &fstest.MapFile{Data: fmt.Appendf(nil, "socket:[%d]", inode), Mode: fs.ModeSymlink | 0o777}
	}
	tests := []struct {
		name  string
		spoil func(w *world)
		want  Result
	}{
		{
			"not root", func(w *world) { w.uid = 1000 },
			Result{"root", Fail, "running as user 1000", "sudo ordinal up"},
		},
		{"old kernel", func(w *world) {
			w.write("/proc/sys/kernel/osrelease", "5.10.0-8-amd64")
			w.write("/proc/config.gz", gzipped("\nCONFIG_BRIDGE=y\nCONFIG_VETH=y\nCONFIG_NF_TABLES=y\n"))
		}, Result{"kernel", Fail, `"5.10.0-8-amd64"`, "apt-get install linux-image-"}},
		{
			"feature not built", func(w *world) { w.write("/proc/filesystems", "\text4\n") },
			Result{"kernel overlay", Fail, "CONFIG_OVERLAY_FS", "boot a kernel"},
		},
		{"feature's module not installed", func(w *world) {
			w.remove("/lib/modules/6.1.0-18-amd64/modules.dep")
			w.write("/boot/config-6.1.0-18-amd64", "CONFIG_VETH=y\nCONFIG_NF_TABLES=y\nCONFIG_BRIDGE=m")
		}, Result{"kernel bridge", Fail, "not in /lib/modules", "apt-get install linux-image-$(uname -r)"}},
		{"feature unknown", func(w *world) {
			w.remove("/lib/modules/6.1.0-18-amd64/modules.dep")
			w.write("/sys/module/bridge/version", "1")
			w.write("/sys/module/nf_tables/refcnt", "1")
		}, Result{"kernel veth", Warn, "cannot tell", "modprobe veth"}},
		{
			"no cgroups", func(w *world) { w.remove("/sys/fs/cgroup/cgroup.controllers") },
			Result{"cgroups", Fail, "no cgroup controllers", "mount -t cgroup2"},
		},
		{
			"cgroups v2 without memory", func(w *world) { w.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu pids\n") },
			Result{"cgroups", Fail, "v2 without memory", "cgroup_enable=memory"},
		},
		{"cgroups v1 without cpuset", func(w *world) {
			w.cgroupsV1()
			w.remove("/sys/fs/cgroup/cpuset/cgroup.procs")
		}, Result{"cgroups", Fail, "v1 without cpuset", "mount -t cgroup -o cpuset"}},
		{
			"cgroups read-only", func(w *world) { w.write("/proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 ro,nosuid 0 0\n") },
			Result{"cgroups", Fail, "read-only", "mount -o remount,rw"},
		},
		{"forwarding cannot be switched on", func(w *world) {
			w.write("/proc/self/mounts", "proc /proc proc rw 0 0\nproc /proc/sys proc ro,nosuid 0 0\n")
		}, Result{"ip forwarding", Fail, "read-only", "remount,rw /proc/sys"}},
		{
			"forwarding unknown", func(w *world) { w.remove("/proc/sys/net/ipv4/ip_forward") },
			Result{"ip forwarding", Fail, "cannot be read", "sysctl -w net.ipv4.ip_forward=1"},
		},
		{
			"no kernel log", func(w *world) { w.remove("/dev/kmsg") },
			Result{"kernel log", Fail, "/dev/kmsg", "mknod"},
		},
		{
			"no runc", func(w *world) { w.remove("/usr/sbin/runc") },
			Result{"runc", Fail, "not found", "apt-get install runc"},
		},
		{
			"runc that is no program", func(w *world) { w.write("/usr/sbin/runc", "") },
			Result{"runc", Fail, "not found", "apt-get install runc"},
		},
		{
			"broken runc", func(w *world) { delete(w.outputs, "/usr/sbin/runc --version") },
			Result{"runc", Fail, "does not run: exit status 1", "apt-get install --reinstall runc"},
		},
		{"runc without seccomp", func(w *world) {
			w.files["usr/bin/runc"] = &fstest.MapFile{Mode: 0o755}
			w.outputs["/usr/bin/runc --version"] = "runc version 1.3.0\nspec: 1.2.0\n"
			w.outputs["/usr/bin/runc features"] = `{"linux":{"seccomp":{"enabled":false}}}`
		}, Result{"runc", Fail, "/usr/bin/runc (runc version 1.3.0) was built without seccomp", "rm /usr/bin/runc && apt-get install"}},
		{"no CNI plugins", func(w *world) {
			for _, p := range cniPlugins() {
				w.remove("/usr/lib/cni/" + p)
			}
		}, Result{"CNI plugins", Fail, "none in /usr/lib/cni, ", "apt-get install containernetworking-plugins"}},
		{
			"one CNI plugin missing", func(w *world) { w.remove("/usr/lib/cni/portmap") },
			Result{"CNI plugins", Fail, "no portmap in /usr/lib/cni, ", "--reinstall containernetworking-plugins"},
		},
		{
			"no nft", func(w *world) { w.remove("/usr/sbin/nft") },
			Result{"nft", Fail, "not found", "apt-get install nftables"},
		},
		{
			"old nft", func(w *world) { w.outputs["/usr/sbin/nft --version"] = "nftables v1.0.0 (Fearless Fosdick #2)\n" },
			Result{"nft", Fail, "version 1.0.0", "apt-get install nftables"},
		},
		{
			"broken nft", func(w *world) { delete(w.outputs, "/usr/sbin/nft --version") },
			Result{"nft", Fail, "does not run", "--reinstall nftables"},
		},
		{
			"nft without a version", func(w *world) { w.outputs["/usr/sbin/nft --version"] = "" },
			Result{"nft", Warn, "does not tell", "--reinstall nftables"},
		},
		{
			"no iptables", func(w *world) { w.remove("/usr/sbin/iptables") },
			Result{"iptables", Fail, "not found", "apt-get install iptables"},
		},
		{
			"no umount", func(w *world) { w.remove("/usr/bin/umount") },
			Result{"umount", Fail, "not found", "apt-get install mount"},
		},
		{
			"not built", func(w *world) { w.remove("/opt/ordinal/containerd", "/opt/ordinal/pause.tar") },
			Result{"programs", Fail, "containerd, pause.tar: not in /opt/ordinal", "make build"},
		},
		{"API port taken", func(w *world) {
			w.write("/proc/net/tcp", socketLine("127.0.0.1:6443", "0A", 4711))
			socketOwner(w, "312", "minikube", 4711)
		}, Result{"port 6443", Fail, "minikube (pid 312) listens on 127.0.0.1:6443/tcp", "ordinal up --api-port 6444"}},
		{"kubelet port taken on all addresses", func(w *world) {
			w.write("/proc/net/tcp6", socketLine("[::]:10250", "0A", 12))
			socketOwner(w, "9", "kubelet", 12)
		}, Result{"port 10250", Fail, "kubelet (pid 9) listens on [::]:10250/tcp", "kill 9"}},
		{
			"DNS port taken by nobody we can see", func(w *world) { w.write("/proc/net/udp", socketLine("0.0.0.0:53", "07", 5)) },
			Result{"port 53", Fail, "another program listens on 0.0.0.0:53/udp", "ss --listening --processes --udp 'sport = :53'"},
		},
		{
			"API port out of range", func(w *world) { w.options.APIPort = 70000 },
			Result{"ports", Fail, "70000 is no port number", "--api-port 6443"},
		},
		{
			"API port is another part's", func(w *world) { w.options.APIPort = layout.KubeletPort },
			Result{"ports", Fail, "10250 is the port of the kubelet", "--api-port 6443"},
		},
		{
			"pod network is somebody's route", func(w *world) { w.write("/proc/net/route", routeLine("wg0", "10.85.3.0/24")) },
			Result{"networks", Fail, "10.85.0.0/16 of the cluster overlaps the route 10.85.3.0/24 via wg0", "ip route del 10.85.3.0/24 dev wg0"},
		},
		{
			"Service network is in a wider route", func(w *world) { w.write("/proc/net/route", routeLine("tun0", "10.0.0.0/8")) },
			Result{"networks", Warn, "tun0", "ip route get 10.85.0.1"},
		},
		{"Service network is somebody's address", func(w *world) {
			w.addresses["dummy0"] = []netip.Prefix{netip.MustParsePrefix("10.86.0.9/32")}
		}, Result{"networks", Fail, "10.86.0.0/16 of the cluster overlaps address 10.86.0.9/32 of dummy0", "ip address del 10.86.0.9/32 dev dummy0"}},
		{
			"data directory is a file", func(w *world) { w.write("/var/lib/ordinal", "") },
			Result{"data directory", Fail, "is not a directory", "--data-dir"},
		},
		{
			"data directory is relative", func(w *world) { w.options.DataDir = "data" },
			Result{"data directory", Fail, "not an absolute path", "--data-dir"},
		},
		{
			"data directory on overlay", func(w *world) { w.disk.kind = overlayMagic },
			Result{"data directory", Fail, "/var/lib is on overlay", "--data-dir"},
		},
		{
			"data directory on CIFS, as a sign-extended number", func(w *world) { w.disk.kind = int64(^0xffffffff | cifsMagic) },
			Result{"data directory", Fail, "CIFS", "--data-dir"},
		},
		{
			"data directory in memory", func(w *world) { w.disk.kind = tmpfsMagic },
			Result{"data directory", Warn, "in memory", "--data-dir"},
		},
		{
			"data directory on a read-only disk", func(w *world) { w.disk.readOnly = true },
			Result{"data directory", Fail, "read-only", "--data-dir"},
		},
		{
			"data directory without permission", func(w *world) { w.denied = fs.ErrPermission },
			Result{"data directory", Fail, "permission denied", "chmod u+rwx /var/lib"},
		},
		{
			"disk getting full", func(w *world) { w.disk.free = 3 * gib },
			Result{"disk", Warn, "3.0 GiB free at /var/lib", "du -xh"},
		},
		{
			"disk full", func(w *world) { w.disk.free = 100 << 20 },
			Result{"disk", Fail, "100 MiB free at /var/lib", "du -xh"},
		},
		{
			"few inotify instances", func(w *world) { w.write("/proc/sys/fs/inotify/max_user_instances", "16\n") },
			Result{"inotify", Warn, "max_user_instances is 16", "sysctl -w fs.inotify.max_user_instances=128"},
		},
		{
			"inotify unknown", func(w *world) { w.remove("/proc/sys/fs/inotify/max_user_watches") },
			Result{"inotify", Warn, "cannot be read", "sysctl -w fs.inotify.max_user_watches=8192"},
		},
		{
			"little memory", func(w *world) { w.write("/proc/meminfo", "MemTotal: 500000 kB\nMemAvailable: 400000 kB\n") },
			Result{"memory", Fail, "488 MiB", "1 GiB"},
		},
		{
			"little memory left", func(w *world) { w.write("/proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 400000 kB\n") },
			Result{"memory", Warn, "390 MiB of 3.8 GiB available", "ps -eo"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := healthy()
			tt.spoil(w)
			var misses []Result
			for _, r := range run(t.Context(), w.host(), w.options) {
				if r.State != OK {
					misses = append(misses, r)
				}
			}
			if len(misses) != 1 {
				t.Fatalf("misses %v, want only %q", misses, tt.want.Name)
			}
			got := misses[0]
			if got.Name != tt.want.Name || got.State != tt.want.State {
				t.Errorf("got %v %q, want %v %q", got.State, got.Name, tt.want.State, tt.want.Name)
			}
			if !strings.Contains(got.Detail, tt.want.Detail) {
				t.Errorf("detail %q does not contain %q", got.Detail, tt.want.Detail)
			}
			if !strings.Contains(got.Remedy, tt.want.Remedy) {
				t.Errorf("remedy %q does not contain %q", got.Remedy, tt.want.Remedy)
			}
		})
	}
}

// Each case is a host that differs from the healthy one in a way that is just as good.
func TestAlsoHealthy(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *world)
	}{
		{"cgroups v1 below a read-only tmpfs, as systemd mounts them", (*world).cgroupsV1},
		{"no modules, all built in", func(w *world) {
			w.remove("/lib/modules/6.1.0-18-amd64/modules.dep", "/lib/modules/6.1.0-18-amd64/modules.builtin")
			w.write("/proc/config.gz", gzipped("CONFIG_BRIDGE=y\nCONFIG_VETH=y\nCONFIG_NF_TABLES=y\n"))
		}},
		{"modules built in", func(w *world) {
			w.remove("/lib/modules/6.1.0-18-amd64/modules.dep", "/proc/sys/net/bridge/bridge-nf-call-iptables")
			w.write("/lib/modules/6.1.0-18-amd64/modules.builtin",
				"kernel/net/bridge/bridge.ko\nkernel/net/bridge/br-netfilter.ko\nkernel/drivers/net/veth.ko\nkernel/net/netfilter/nf_tables.ko\n")
		}},
		{"forwarding on and /proc/sys read-only", func(w *world) {
			w.write("/proc/sys/net/ipv4/ip_forward", "1\n")
			w.write("/proc/self/mounts", "proc /proc/sys proc ro 0 0\n")
		}},
		{"runc tells its features only", func(w *world) {
			w.outputs["/usr/sbin/runc --version"] = "runc version 1.3.0\n"
			w.outputs["/usr/sbin/runc features"] = `{"linux":{"seccomp":{"enabled":true}}}`
		}},
		{"CNI plugins where they put themselves", func(w *world) {
			for _, p := range cniPlugins() {
				w.files[name("/opt/cni/bin/"+p)] = w.files[name("/usr/lib/cni/"+p)]
				w.remove("/usr/lib/cni/" + p)
			}
		}},
		{"same port on another address, and a connection that is no listener", func(w *world) {
			w.write("/proc/net/tcp", socketLine("192.168.1.7:10250", "0A", 1)+socketLine("127.0.0.1:6443", "01", 2))
			w.write("/proc/net/udp", socketLine("127.0.0.53:53", "07", 3))
		}},
		{"own cluster running", func(w *world) {
			w.options.Running = true
			w.write("/proc/net/tcp", socketLine("127.0.0.1:6443", "0A", 1))
			w.write("/proc/net/route", routeLine(layout.Bridge, layout.PodCIDR))
			w.addresses[layout.Bridge] = []netip.Prefix{netip.MustParsePrefix(layout.NodeIP + "/16")}
			w.write("/proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 400000 kB\n")
		}},
		{"data directory exists", func(w *world) { w.files["var/lib/ordinal"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := healthy()
			tt.change(w)
			for _, r := range run(t.Context(), w.host(), w.options) {
				if r.State != OK {
					t.Errorf("%v: %s", r.State, r)
				}
			}
		})
	}
}

func (w *world) cgroupsV1() {
	w.remove("/sys/fs/cgroup/cgroup.controllers")
	mounts := "/dev/sda1 / ext4 rw 0 0\ntmpfs /sys/fs/cgroup tmpfs ro,nosuid 0 0\n"
	for _, c := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer"} {
		w.write("/sys/fs/cgroup/"+c+"/cgroup.procs", "1\n")
		mounts += fmt.Sprintf("cgroup /sys/fs/cgroup/%s cgroup rw,%s 0 0\n", c, c)
	}
	w.write("/proc/self/mounts", mounts)
}

func gzipped(content string) string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(content)); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return packed.String()
}

// A simulated cluster runs in a container without rights, on its file system, without any program but ours.
func TestSimulatedClusterNeedsLittle(t *testing.T) {
	w := healthy()
	w.uid, w.disk.kind = 1000, overlayMagic
	for _, program := range []string{"/usr/sbin/runc", "/usr/sbin/nft", "/dev/kmsg"} {
		w.remove(program)
	}
	w.options.Simulate, w.options.APIPort = true, layout.KubeletPort
	if failures := Failures(run(t.Context(), w.host(), w.options)); len(failures) != 0 {
		t.Errorf("failures %v, want none", failures)
	}
	w.denied = fs.ErrPermission
	if failures := Failures(run(t.Context(), w.host(), w.options)); len(failures) != 1 || failures[0].Name != "data directory" {
		t.Errorf("failures %v, want that of the data directory", failures)
	}
}

func TestResultInOneLine(t *testing.T) {
	w := healthy()
	w.remove("/usr/sbin/runc")
	failures := Failures(run(t.Context(), w.host(), w.options))
	if len(failures) != 1 {
		t.Fatalf("failures %v, want one", failures)
	}
	const want = "runc: not found on the path; mend it with: apt-get install runc"
	if got := failures[0].String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The made-up host cannot tell whether the real one is read rightly.
func TestRealHost(t *testing.T) {
	h := newHost()

	t.Run("finds out who has a port", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		port := listener.Addr().(*net.TCPAddr).Port

		results := checkPorts(t.Context(), h, Options{APIPort: port})

		want := fmt.Sprintf("(pid %d) listens on 127.0.0.1:%d/tcp", os.Getpid(), port)
		if len(results) == 0 || results[0].State != Fail || !strings.Contains(results[0].Detail, want) {
			t.Errorf("got %v, want a failure with %q", results, want)
		}
	})

	t.Run("reads addresses", func(t *testing.T) {
		found, err := h.addresses()
		if err != nil {
			t.Fatal(err)
		}
		if loopback := netip.MustParsePrefix("127.0.0.1/8"); len(found["lo"]) == 0 || found["lo"][0] != loopback {
			t.Errorf("addresses %v, want %v on lo", found, loopback)
		}
	})

	t.Run("reads file systems", func(t *testing.T) {
		dir := t.TempDir()
		system, err := h.statfs(dir)
		if err != nil {
			t.Fatal(err)
		}
		if system.kind == 0 || system.free == 0 || system.readOnly {
			t.Errorf("%s: %+v, want a writable file system with some space", dir, system)
		}
		if err := h.writable(dir); err != nil {
			t.Errorf("%s cannot be written to: %v", dir, err)
		}
	})

	t.Run("runs programs", func(t *testing.T) {
		out, err := h.output(t.Context(), os.Args[0], "-test.list", "TestRealHost")
		if err != nil || !strings.HasPrefix(out, "TestRealHost\n") {
			t.Errorf("output %q, %v", out, err)
		}
	})
}
