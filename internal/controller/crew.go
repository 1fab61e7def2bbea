// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordinal-dev/ordinal/internal/observe"
)

const (
	// patience is how long a worker may be at one set until another takes its place, so that a write that hangs, as with an
	// admission webhook that does not answer, delays no other set.
	patience = time.Second
	// hung is after how long without an answer to any of its writes the work on a set hangs. Each write ends within half a minute.
	hung = 5 * time.Minute
	// maxRelief is how many workers may be relieved at once, so that writes that hang leave room among those that an API server
	// serves at once, which are 600 by default.
	maxRelief = 95
)

// crew are the workers of a controller.
type crew struct {
	// work is what a worker does until it is relieved or there is no more to do.
	work func()
	// size is how many work, apart from those that are relieved.
	size     int
	relieved atomic.Int32
	workers  sync.WaitGroup

	mu sync.Mutex
	// slow are the sets that took too long when they were last worked on, and so will again.
	slow map[observe.Key]bool
	// moved is when the work on each set that is under way last got on.
	moved map[observe.Key]time.Time
}

// turn is how work on a set ended for the worker.
type turn int

const (
	// stays means that the worker is still one of the crew.
	stays turn = iota
	// leaves means that another has taken its place.
	leaves
	// postponed means that the work was not done: it is known to be slow, and as many as may be are at such work already.
	postponed
)

// start lets the workers begin.
func (c *crew) start() {
	for range c.size {
		c.workers.Go(c.work)
	}
}

// wait waits until all have stopped.
func (c *crew) wait() { c.workers.Wait() }

// do does the work on a set. The worker is relieved when that takes long, and at once if it did so the last time.
func (c *crew) do(k observe.Key, job func()) turn {
	began, replaced := time.Now(), make(chan bool, 1)
	slow := c.begin(k, began)
	if slow && !c.relieve() {
		c.learn(k, patience)
		return postponed
	}
	timer := time.AfterFunc(c.left(), func() { replaced <- slow || c.relieve() })
	job()
	c.learn(k, time.Since(began))
	inTime := timer.Stop()
	if !slow && (inTime || !<-replaced) {
		return stays
	}
	c.relieved.Add(-1)
	return leaves
}

// begin takes note of the beginning of the work on a set, and tells if that is known to be slow.
func (c *crew) begin(k observe.Key, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moved == nil {
		c.moved = map[observe.Key]time.Time{}
	}
	c.moved[k] = now
	return c.slow[k]
}

// learn takes note of how long the work on a set took.
func (c *crew) learn(k observe.Key, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.moved, k)
	if took < patience {
		delete(c.slow, k)
		return
	}
	if c.slow == nil {
		c.slow = map[observe.Key]bool{}
	}
	c.slow[k] = true
}

// progress takes note that the work on a set gets on.
func (c *crew) progress(k observe.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved[k] = time.Now()
}

// alive fails if the work on a set hangs, which therefore is not looked at any more.
func (c *crew) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, moved := range c.moved {
		if silence := time.Since(moved); silence > hung {
			return fmt.Errorf("the work on %s hangs: nothing has become of it for %s", k, silence.Round(time.Second))
		}
	}
	return nil
}

// left is the patience that is left: the more are at slow work, the less, for the next in the queue is likely to be slow too, and
// behind all of them may be one that is not.
func (c *crew) left() time.Duration {
	return patience * time.Duration(c.size) / time.Duration(c.size+int(c.relieved.Load()))
}

// relieve starts another worker, unless there are too many.
func (c *crew) relieve() bool {
	if int(c.relieved.Add(1)) > maxRelief {
		c.relieved.Add(-1)
		return false
	}
	c.workers.Go(c.work)
	return true
}
