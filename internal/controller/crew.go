// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long a worker may be at one set until another takes its place, so that a write that hangs, as with an
	// admission webhook that does not answer, delays no other set.
	patience = 2 * time.Second
	// maxRelief is how many workers may be relieved at once, as a multiple of those that the controller has.
	maxRelief = 19
)

// crew are the workers of a controller.
type crew struct {
	// work is what a worker does until it is relieved or there is no more to do.
	work func()
	// size is how many work, apart from those that are relieved.
	size     int
	relieved atomic.Int32
	workers  sync.WaitGroup
}

// start lets the workers begin.
func (c *crew) start() {
	for range c.size {
		c.workers.Go(c.work)
	}
}

// wait waits until all have stopped.
func (c *crew) wait() { c.workers.Wait() }

// do does a piece of work. It is false if that took so long that another worker has taken the caller's place.
func (c *crew) do(job func()) bool {
	replaced := make(chan bool, 1)
	timer := time.AfterFunc(patience, func() { replaced <- c.relieve() })
	job()
	if timer.Stop() || !<-replaced {
		return true
	}
	c.relieved.Add(-1)
	return false
}

// relieve starts another worker, unless there are too many.
func (c *crew) relieve() bool {
	if int(c.relieved.Add(1)) > maxRelief*c.size {
		c.relieved.Add(-1)
		return false
	}
	c.workers.Go(c.work)
	return true
}
