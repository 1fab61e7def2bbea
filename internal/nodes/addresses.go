// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// podNetwork is where pods have their addresses. Nothing on the host answers there, and it holds more pods than a cluster may have.
const podNetwork = "10.128.0.0/9"

// addresses gives each pod an address of its own.
type addresses struct {
	mu      sync.Mutex
	network netip.Prefix
	last    netip.Addr
	byPod   map[types.UID]netip.Addr
	taken   map[netip.Addr]bool
}

func newAddresses(network netip.Prefix) *addresses {
	return &addresses{
		network: network, last: network.Addr(), byPod: map[types.UID]netip.Addr{}, taken: map[netip.Addr]bool{},
	}
}

// of is the pod's address, from now on its own until it is released. It is invalid when the network is full.
func (a *addresses) of(pod types.UID) netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	if address, ok := a.byPod[pod]; ok {
		return address
	}
	if len(a.taken) >= 1<<(a.network.Addr().BitLen()-a.network.Bits())-2 {
		return netip.Addr{}
	}
	a.last = a.after(a.last)
	for a.taken[a.last] {
		a.last = a.after(a.last)
	}
	a.byPod[pod], a.taken[a.last] = a.last, true
	return a.last
}

// keep notes the address that a pod has already.
func (a *addresses) keep(pod types.UID, text string) {
	address, err := netip.ParseAddr(text)
	if err != nil || !a.network.Contains(address) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byPod[pod], a.taken[address] = address, true
}

// release frees the address of a pod that is gone.
func (a *addresses) release(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.taken, a.byPod[pod])
	delete(a.byPod, pod)
}

// after is the address that follows another, beginning anew at the end. The network's own address and the last are nobody's.
func (a *addresses) after(address netip.Addr) netip.Addr {
	next := address.Next()
	if !a.network.Contains(next) || !a.network.Contains(next.Next()) {
		return a.network.Addr().Next()
	}
	return next
}
