// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause keeps a pod's namespaces open while the pod lives. One runs for each pod, so it is written for a small memory: no
// goroutine, no signal handler of its own, nothing but the runtime in it. Its image sets GOMAXPROCS=1 for the same reason.
package main

import (
	"os/signal"
	"syscall"
)

func main() {
	reapOrphans()
	sleep()
}

// reapOrphans asks the kernel to reap every child that ends. Pause is PID 1 where the containers of a pod share a PID namespace, and
// so the parent of all orphans there. With SIGCHLD ignored none of them becomes a zombie (see wait(2)).
func reapOrphans() {
	signal.Ignore(syscall.SIGCHLD)
}

// sleep blocks in the kernel, where waiting costs nothing. SIGTERM and SIGINT end the program: that is what the Go runtime does with them
// unless told otherwise, for PID 1 too. Other signals only end the system call.
func sleep() {
	for {
		_, _ = syscall.Select(0, nil, nil, nil, nil)
	}
}
