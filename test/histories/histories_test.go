// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package histories

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ordinal-dev/ordinal/internal/sim/history"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

var (
	seed  = flag.Uint64("seed", 1, "which random histories")
	count = flag.Int("histories", 10000, "how many histories")
	first = flag.Int("first", 0, "the number of the first history")
)

// maxFailures is how many histories may break a rule until the run ends.
const maxFailures = 5

// tally is what came of the random histories.
type tally struct {
	mu     sync.Mutex
	done   int
	broken int
	stats  history.Stats
}

var total tally

func (c *tally) add(r history.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.stats.Add(r.Stats)
	if len(r.Broken) > 0 {
		c.broken++
	}
}

func (c *tally) hasEnough() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken >= maxFailures
}

func (c *tally) String() string {
	return fmt.Sprintf("%d histories of seed %d: %d broken, %s", c.done, *seed, c.broken, &c.stats)
}

// TestMain ends the output with one line that tells what was run, and with which result.
func TestMain(m *testing.M) {
	flag.Parse()
	// Histories make much garbage, and little of it lives.
	debug.SetGCPercent(800)
	code := m.Run()
	if total.done > 0 {
		fmt.Println(&total)
	}
	os.Exit(code)
}

// run lets a history happen.
func run(t *testing.T, h history.History, telling bool) history.Result {
	t.Helper()
	var r history.Result
	synctest.Test(t, func(*testing.T) { r = history.Run(h, synctest.Wait, telemetry.New(), telling) })
	return r
}

// TestHistories holds the controller against the rules in random histories, on as many processors as there are.
func TestHistories(t *testing.T) {
	var next atomic.Int64
	next.Store(int64(*first))
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !total.hasEnough() {
				number := next.Add(1) - 1
				if number >= int64(*first+*count) {
					return
				}
				h := history.Draw(*seed, uint64(number))
				r := run(t, h, false)
				total.add(r)
				if len(r.Broken) > 0 {
					t.Error(explain(t, number, h, r))
				}
			}
		})
	}
	workers.Wait()
}

// explain tells the story of a history that broke a rule, and of the shortest one that can be had from it.
func explain(t *testing.T, number int64, h history.History, r history.Result) string {
	t.Helper()
	rule := r.Broken[0].Rule
	short := history.Shrink(h, func(h history.History) bool {
		again := run(t, h, false)
		return len(again.Broken) > 0 && again.Broken[0].Rule == rule
	})
	return fmt.Sprintf(`history %d of seed %d breaks the rule that %s
it is had again with -seed %d -first %d -histories 1
%s
the whole history:
%s
shortened to %d of %d steps:
%s
%s`, number, *seed, r.Broken[0], *seed, number, h.Config, run(t, h, true).Story, len(short.Steps), len(h.Steps),
		short.Config, run(t, short, true).Story)
}

// TestHistoriesAreTheSameAgain runs histories twice.
func TestHistoriesAreTheSameAgain(t *testing.T) {
	for n := range uint64(100) {
		h := history.Draw(*seed, n)
		if a, b := run(t, h, true), run(t, h, true); a.Trace != b.Trace {
			t.Errorf("history %d of seed %d went another way:\n%s\n%s\n%s\n%s", n, *seed, a.Trace, b.Trace, a.Story, b.Story)
		}
	}
}
