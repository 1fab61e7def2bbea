// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network makes the bridge that pods are attached to, and removes whatever pods, CNI plugins and kube-proxy put into the host's network.
package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// sysctls are what routing between pods, Services and the outside needs of the kernel.
func sysctls() map[string]string {
	return map[string]string{
		"/proc/sys/net/ipv4/ip_forward": "1",
		// Traffic from pod to pod through a Service address comes back over the bridge, and must pass address translation there.
		"/proc/sys/net/bridge/bridge-nf-call-iptables": "1",
	}
}

// Up makes the bridge with the node's address. It changes nothing where all is as it should be.
func Up(ctx context.Context) error {
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		// Where it is a module, nothing loads it by itself.
		if err := run(ctx, nil, "modprobe", "br_netfilter"); err != nil {
			return fmt.Errorf("load kernel module br_netfilter: %w", err)
		}
	}
	for file, value := range sysctls() {
		if err := setSysctl(file, value); err != nil {
			return err
		}
	}
	link, err := bridge()
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: nodeNet()}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("give %s the address %s: %w", layout.Bridge, address, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", layout.Bridge, err)
	}
	return nil
}

func bridge() (netlink.Link, error) {
	link, err := netlink.LinkByName(layout.Bridge)
	if err == nil {
		if link.Type() != "bridge" {
			return nil, fmt.Errorf("the host has a network interface %s that is no bridge; rename it", layout.Bridge)
		}
		return link, nil
	}
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); !missing {
		return nil, fmt.Errorf("look for %s: %w", layout.Bridge, err)
	}
	// A fixed hardware address: otherwise it changes with the pods, and neighbours keep the old one for a while.
	attrs := netlink.NewLinkAttrs()
	attrs.Name = layout.Bridge
	attrs.HardwareAddr = net.HardwareAddr{0x0a, 0x55, 0x00, 0x00, 0x00, 0x01}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, fmt.Errorf("make bridge %s: %w", layout.Bridge, err)
	}
	return netlink.LinkByName(layout.Bridge)
}

func nodeNet() *net.IPNet {
	_, pods, _ := net.ParseCIDR(layout.PodCIDR)
	return &net.IPNet{IP: net.ParseIP(layout.NodeIP), Mask: pods.Mask}
}

func setSysctl(file, value string) error {
	current, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(current)) == value {
		return nil
	}
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set kernel parameter: %w", err)
	}
	return nil
}

// Down removes the bridge, the rules of kube-proxy and those that CNI plugins made for our pods. What is not there is
// no error, and what others made stays.
func Down(ctx context.Context) error {
	var errs []error
	if link, err := netlink.LinkByName(layout.Bridge); err == nil {
		errs = append(errs, netlink.LinkDel(link))
	}
	for _, family := range []string{"ip", "ip6"} {
		errs = append(errs, deleteTable(ctx, family, "kube-proxy"))
	}
	errs = append(errs, removeChains(ctx))
	return errors.Join(errs...)
}

func deleteTable(ctx context.Context, family, table string) error {
	if exists := exec.CommandContext(ctx, "nft", "list", "table", family, table).Run() == nil; !exists {
		return nil
	}
	return run(ctx, nil, "nft", "delete", "table", family, table)
}

// kubeletChains are what the kubelet puts into iptables. Its port is ours while we run, so there is no other kubelet.
func kubeletChains() []string {
	return []string{"KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT", "KUBE-FIREWALL"}
}

// removeChains drops the iptables chains that the bridge and portmap plugins made for our pods, and those of the kubelet.
// Pods that ended in good order have none left.
func removeChains(ctx context.Context) error {
	saved, err := exec.CommandContext(ctx, "iptables-save").Output()
	if err != nil {
		//nolint:nilerr // Without iptables there are no such rules.
		return nil
	}
	script := removal(string(saved))
	if script == "" {
		return nil
	}
	return run(ctx, []byte(script), "iptables-restore", "--noflush")
}

// removal turns a dump of iptables-save into the input for iptables-restore that takes out what is ours and nothing else:
// the rules that carry our network's name in their comment, and the chains that those rules lead to.
func removal(saved string) string {
	ours := ourChains(saved)
	var script, drops strings.Builder
	for line := range strings.Lines(saved) {
		switch {
		case strings.HasPrefix(line, "*"):
			script.WriteString(line)
		case strings.HasPrefix(line, ":"):
			if name, _, _ := strings.Cut(line[1:], " "); ours[name] {
				fmt.Fprintf(&script, "-F %s\n", name)
				fmt.Fprintf(&drops, "-X %s\n", name)
			}
		case strings.HasPrefix(line, "-A "):
			chain, _, _ := strings.Cut(line[3:], " ")
			if !ours[chain] && leadsToOurs(line, ours) {
				script.WriteString("-D " + line[3:])
			}
		case strings.HasPrefix(line, "COMMIT"):
			script.WriteString(drops.String() + line)
			drops.Reset()
		}
	}
	if len(ours) == 0 {
		return ""
	}
	return script.String()
}

func ourChains(saved string) map[string]bool {
	ours := map[string]bool{}
	for line := range strings.Lines(saved) {
		if name, _, _ := strings.Cut(strings.TrimPrefix(line, ":"), " "); slices.Contains(kubeletChains(), name) {
			ours[name] = true
		}
		// -A POSTROUTING -s 10.85.0.7/32 -m comment --comment "name: \"ordinal\" id: ..." -j CNI-...
		if target := jumpTarget(line); strings.Contains(line, ourComment) && strings.HasPrefix(target, "CNI-") {
			ours[target] = true
		}
	}
	return ours
}

// ourComment is how the CNI plugins mark the rules of the network named ordinal.
const ourComment = `name: \"ordinal\"`

func leadsToOurs(rule string, ours map[string]bool) bool {
	return ours[jumpTarget(rule)] || strings.Contains(rule, ourComment)
}

func jumpTarget(rule string) string {
	_, target, _ := strings.Cut(rule, " -j ")
	target, _, _ = strings.Cut(strings.TrimSpace(target), " ")
	return target
}

func run(ctx context.Context, stdin []byte, name string, args ...string) error {
	command := exec.CommandContext(ctx, name, args...)
	command.Stdin = bytes.NewReader(stdin)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(output)))
	}
	return nil
}
