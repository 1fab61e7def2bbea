// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "golang.org/x/sys/unix"

// hostCapabilities are what this process may do, where hosts differ.
type hostCapabilities struct {
	// sysResource is CAP_SYS_RESOURCE: to make a process less likely to be killed when memory runs out.
	sysResource bool
}

func readCapabilities() hostCapabilities {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if unix.Capget(&header, &sets[0]) != nil {
		return hostCapabilities{}
	}
	return hostCapabilities{sysResource: sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0}
}
