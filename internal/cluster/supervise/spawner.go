// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"os/exec"
	"runtime"
)

// spawner starts processes from one thread that lives as long as the program. The kernel sends a child its parent-death
// signal when the *thread* that made it ends (golang/go#27505), and the runtime may end any other thread.
type spawner struct {
	requests chan spawnRequest
}

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest)}
	go func() {
		runtime.LockOSThread()
		for r := range s.requests {
			r.done <- r.cmd.Start()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	s.requests <- spawnRequest{cmd: cmd, done: done}
	return <-done
}
