// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// endpoint is an address that a part of the cluster will listen on.
type endpoint struct {
	protocol string
	addr     netip.AddrPort
	use      string
}

func endpoints(apiPort int) []endpoint {
	local, node := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(layout.NodeIP)
	at := func(a netip.Addr, port int) netip.AddrPort { return netip.AddrPortFrom(a, uint16(port)) }
	return []endpoint{
		{"tcp", at(local, apiPort), "the API server"},
		{"tcp", at(node, apiPort), "the API server"},
		{"tcp", at(node, layout.KubeletPort), "the kubelet"},
		{"tcp", at(local, layout.ControllerManagerPort), "kube-controller-manager"},
		{"tcp", at(local, layout.SchedulerPort), "kube-scheduler"},
		{"tcp", at(node, 53), "DNS"},
		{"udp", at(node, 53), "DNS"},
	}
}

// simulatedEndpoints are those of a cluster whose nodes are simulated. Its ports follow each other, so that several may run.
func simulatedEndpoints(apiPort int) []endpoint {
	var all []endpoint
	for i, use := range []string{"the API server", "kube-controller-manager", "kube-scheduler"} {
		all = append(all, endpoint{"tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(apiPort+i)), use})
	}
	return all
}

// socket is one that somebody listens on.
type socket struct {
	addr  netip.AddrPort
	inode string
}

// checkPorts reads the kernel's socket tables, which tell who has a port, rather than trying to take it.
func checkPorts(_ context.Context, h *host, o Options) []Result {
	if o.APIPort < 1 || o.APIPort > 65535 {
		return fail("ports", fmt.Sprintf("ordinal up --api-port %d", layout.DefaultAPIPort), "%d is no port number", o.APIPort)
	}
	wanted := endpoints(o.APIPort)
	others := endpoints(layout.DefaultAPIPort)[2:]
	if o.Simulate {
		wanted, others = simulatedEndpoints(o.APIPort), nil
	}
	if i := slices.IndexFunc(others, func(e endpoint) bool { return int(e.addr.Port()) == o.APIPort }); i >= 0 {
		return fail("ports", fmt.Sprintf("ordinal up --api-port %d", layout.DefaultAPIPort), "%d is the port of %s", o.APIPort, others[i].use)
	}
	if o.Running {
		return pass("ports", "in use by the running cluster")
	}
	taken := map[string][]socket{
		"tcp": append(listening(h.read("/proc/net/tcp"), "0A"), listening(h.read("/proc/net/tcp6"), "0A")...),
		"udp": append(listening(h.read("/proc/net/udp"), "07"), listening(h.read("/proc/net/udp6"), "07")...),
	}
	var results []Result
	seen := map[string]bool{}
	for _, e := range wanted {
		i := slices.IndexFunc(taken[e.protocol], func(s socket) bool { return conflict(e.addr, s.addr) })
		if i < 0 {
			continue
		}
		s := taken[e.protocol][i]
		if !seen[s.inode] {
			results = append(results, h.portTaken(e, s, o))
		}
		seen[s.inode] = true
	}
	if len(results) == 0 {
		return pass("ports", "%d and those of the other parts are free", o.APIPort)
	}
	return results
}

func (h *host) portTaken(e endpoint, s socket, o Options) Result {
	owner, pid := "another program", h.owner(s.inode)
	remedy := fmt.Sprintf("ss --listening --processes --%s 'sport = :%d'", e.protocol, s.addr.Port())
	if pid != "" {
		owner = fmt.Sprintf("%s (pid %s)", h.read("/proc/"+pid+"/comm"), pid)
		remedy = "kill " + pid
	}
	switch {
	case o.Simulate:
		remedy = fmt.Sprintf("ordinal up --simulate --api-port %d", o.APIPort+10)
	case int(e.addr.Port()) == o.APIPort:
		remedy = fmt.Sprintf("ordinal up --api-port %d", o.APIPort+1)
	}
	return Result{
		Name: fmt.Sprintf("port %d", e.addr.Port()), State: Fail, Remedy: remedy,
		Detail: fmt.Sprintf("%s listens on %s/%s, which %s needs", owner, s.addr, e.protocol, e.use),
	}
}

// conflict says whether a listener on one address keeps another from listening there.
func conflict(want, have netip.AddrPort) bool {
	return want.Port() == have.Port() && (have.Addr().IsUnspecified() || have.Addr().Unmap() == want.Addr())
}

// listening reads one of the kernel's socket tables; state is the hexadecimal number of the state to look for.
func listening(table, state string) []socket {
	var sockets []socket
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != state {
			continue
		}
		if addr, err := parseSocketAddr(fields[1]); err == nil {
			sockets = append(sockets, socket{addr: addr, inode: fields[9]})
		}
	}
	return sockets
}

// parseSocketAddr reads ADDRESS:PORT, both hexadecimal, the address as 32-bit words in the machine's byte order.
func parseSocketAddr(s string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(s, ":")
	words, err := hex.DecodeString(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(words); i += 4 {
		binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
	}
	addr, ok := netip.AddrFromSlice(words)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("socket address %q has a wrong length", s)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}

// owner is the process that holds a socket, or "" if it cannot be told (another user's, or the kernel's).
func (h *host) owner(inode string) string {
	processes, err := fs.ReadDir(h.root, "proc")
	if err != nil {
		return ""
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err == nil && h.holds(p.Name(), inode) {
			return p.Name()
		}
	}
	return ""
}

func (h *host) holds(pid, inode string) bool {
	dir := path.Join("proc", pid, "fd")
	files, err := fs.ReadDir(h.root, dir)
	if err != nil {
		return false
	}
	for _, f := range files {
		if target, err := fs.ReadLink(h.root, path.Join(dir, f.Name())); err == nil && target == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}

// checkNetworks sees to it that the pods' and the Services' addresses are nobody else's.
func checkNetworks(_ context.Context, h *host, _ Options) []Result {
	networks := []netip.Prefix{netip.MustParsePrefix(layout.PodCIDR), netip.MustParsePrefix(layout.ServiceCIDR)}
	addresses, err := h.addresses()
	if err != nil {
		return warn("networks", "ip address", "interface addresses cannot be read: %v", err)
	}
	for _, device := range slices.Sorted(maps.Keys(addresses)) {
		for _, a := range addresses[device] {
			if i := slices.IndexFunc(networks, func(n netip.Prefix) bool { return n.Contains(a.Addr()) }); i >= 0 && device != layout.Bridge {
				return fail("networks", fmt.Sprintf("ip address del %s dev %s", a, device),
					"%s of the cluster overlaps address %s of %s", networks[i], a, device)
			}
		}
	}
	for _, r := range routes(h.read("/proc/net/route")) {
		if r.device == layout.Bridge {
			continue
		}
		if results := judgeRoute(r, networks); results != nil {
			return results
		}
	}
	return pass("networks", "%s for pods and %s for Services are free", networks[0], networks[1])
}

// judgeRoute: a wider route loses a part of its addresses to the cluster, which matters only if somebody is there; one of the
// same size or smaller takes addresses from the cluster.
func judgeRoute(r route, networks []netip.Prefix) []Result {
	for _, n := range networks {
		switch {
		case !r.prefix.Overlaps(n):
		case r.prefix.Bits() >= n.Bits():
			return fail("networks", fmt.Sprintf("ip route del %s dev %s", r.prefix, r.device),
				"%s of the cluster overlaps the route %s via %s", n, r.prefix, r.device)
		default:
			return warn("networks", "ip route get "+n.Addr().Next().String(),
				"while a cluster runs, hosts in %s cannot be reached through %s (route %s)", n, r.device, r.prefix)
		}
	}
	return nil
}

type route struct {
	device string
	prefix netip.Prefix
}

// routes reads the kernel's IPv4 routing table, default routes left out.
func routes(table string) []route {
	var found []route
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		destination, err := parseSocketAddr(fields[1] + ":0")
		if err != nil {
			continue
		}
		mask, err := strconv.ParseUint(fields[7], 16, 32)
		if err != nil || mask == 0 {
			continue
		}
		bits := 0
		for ; mask != 0; mask &= mask - 1 {
			bits++
		}
		found = append(found, route{device: fields[0], prefix: netip.PrefixFrom(destination.Addr(), bits)})
	}
	return found
}
