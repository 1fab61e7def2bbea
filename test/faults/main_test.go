// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"
)

// alive is what has to be put in order when the run is broken off: the last first.
var alive struct {
	sync.Mutex
	ends []func(context.Context) error
}

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	broken := context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "faults: broken off, stopping what runs")
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		alive.Lock()
		for len(alive.ends) > 0 {
			last := len(alive.ends) - 1
			if err := alive.ends[last](ctx); err != nil {
				fmt.Fprintln(os.Stderr, "faults:", err)
			}
			alive.ends = alive.ends[:last]
		}
		os.Exit(1)
	})
	code := m.Run()
	broken()
	stop()
	os.Exit(code)
}

// atEnd does something at the end of the test, or of the run if that is broken off before.
func (c *cluster) atEnd(do func(context.Context) error) {
	alive.Lock()
	defer alive.Unlock()
	alive.ends = append(alive.ends, do)
	c.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), 2*time.Minute)
		defer cancel()
		if err := do(ctx); err != nil {
			c.Error(err)
		}
		alive.Lock()
		defer alive.Unlock()
		alive.ends = alive.ends[:len(alive.ends)-1]
	})
}
