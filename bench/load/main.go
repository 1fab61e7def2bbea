// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command load keeps Ordinal's controller busy for a long time, in a cluster of simulated nodes: many sets, and every second some of
// them are scaled, rolled, deleted and made again, or lose a pod. It measures what the controller holds in memory after a warm-up and
// at the end, how long it takes from a change to its first write, whether every set is right soon after the last change, and what CPU
// it uses then. It prints a Markdown table, and ends with exit code 1 if one of the promises that the flags state is broken.
//
// It needs no root. It starts a cluster of its own in a temporary directory, and deletes it at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/ordinal-dev/ordinal/bench/rig"
)

// options are the command's flags.
type options struct {
	bin, dir, json   string
	sets, replicas   int
	rate             float64
	seed             uint64
	podDelay         time.Duration
	warmUp, duration time.Duration
	rest             time.Duration
	promises         promises
}

// promises are what has to hold.
type promises struct {
	MemoryRatio float64       `json:"memoryRatio"`
	P99         time.Duration `json:"p99Nanoseconds"`
	Settle      time.Duration `json:"settleNanoseconds"`
	RestCPU     float64       `json:"restCPUPercent"`
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory of the built programs")
	flag.StringVar(&o.dir, "dir", "/var/tmp", "where to make the temporary data directory")
	flag.StringVar(&o.json, "json", "", "file to write all figures to")
	flag.IntVar(&o.sets, "sets", 2000, "how many sets")
	flag.IntVar(&o.replicas, "replicas", 5, "pods of each set")
	flag.Float64Var(&o.rate, "rate", 20, "changes per second")
	flag.Uint64Var(&o.seed, "seed", 1, "what the changes follow")
	flag.DurationVar(&o.podDelay, "pod-delay", 500*time.Millisecond, "how long a simulated pod takes to become ready")
	flag.DurationVar(&o.warmUp, "warm-up", 2*time.Minute, "how long the sets are changed before memory counts")
	flag.DurationVar(&o.duration, "duration", 10*time.Minute, "how long they are changed after that")
	flag.DurationVar(&o.rest, "rest", time.Minute, "how long to measure CPU at rest")
	flag.Float64Var(&o.promises.MemoryRatio, "memory-ratio", 1.2, "promise: memory at the end, of that after the warm-up")
	flag.DurationVar(&o.promises.P99, "p99", 2*time.Second, "promise: the time from a change to the first write, in 99 of 100 cases")
	flag.DurationVar(&o.promises.Settle, "settle", 2*time.Minute, "promise: the time from the last change until every set is right")
	flag.Float64Var(&o.promises.RestCPU, "rest-cpu", 1, "promise: CPU at rest, in percent of one core")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-load:", err)
		os.Exit(1) //nolint:gocritic // stop only gives the signals back, and the process ends.
	}
}

func run(ctx context.Context, o options) (err error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "ordinal-load-")
	if err != nil {
		return err
	}
	c := &cluster{ordinal: filepath.Join(bin, "ordinal"), data: filepath.Join(dir, "data")}
	defer func() {
		err = errors.Join(err, c.purge(context.WithoutCancel(ctx)), os.RemoveAll(dir))
	}()
	r := &report{Machine: rig.Machine(), LoadBefore: rig.LoadAverage(), Sets: o.sets, Replicas: o.replicas, Rate: o.rate, Seed: o.seed, Promises: o.promises}
	if err := c.up(ctx, o); err != nil {
		return err
	}
	if err := measure(ctx, c, o, r); err != nil {
		return err
	}
	return errors.Join(r.writeJSON(o.json), r.print(os.Stdout), r.broken())
}

// measure fills in the report.
func measure(ctx context.Context, c *cluster, o options, r *report) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	w, err := startWatcher(ctx, client)
	if err != nil {
		return err
	}
	defer w.stop()
	f := newFleet(client, w, rand.New(rand.NewPCG(o.seed, 0)), o.sets, o.replicas)
	rig.Progress("%d sets of %d come up", o.sets, o.replicas)
	began := time.Now()
	if err := f.createAll(ctx); err != nil {
		return err
	}
	// Some are slow on a slow machine, but the sets have to be there before they are changed.
	if err := w.settled(ctx, f.wanted(), time.Duration(o.sets)*time.Second+time.Minute); err != nil {
		return fmt.Errorf("the sets come up: %w", err)
	}
	r.ComeUp = time.Since(began).Seconds()
	if err := churn(ctx, c, f, o, r); err != nil {
		return err
	}
	rig.Progress("the sets settle")
	began = time.Now()
	if err := w.settled(ctx, f.wanted(), 10*o.promises.Settle); err != nil {
		return fmt.Errorf("every set is right after the last change: %w", err)
	}
	r.Settle = time.Since(began).Seconds()
	return atRest(ctx, c, o, r)
}

// churn changes sets for the warm-up and the time that counts.
func churn(ctx context.Context, c *cluster, f *fleet, o options, r *report) error {
	rig.Progress("%g changes per second: %s to warm up", o.rate, o.warmUp)
	if err := f.churn(ctx, o.rate, o.warmUp); err != nil {
		return err
	}
	f.watcher.forget()
	memory, err := c.startMeter(ctx)
	if err != nil {
		return err
	}
	rig.Progress("%g changes per second: %s", o.rate, o.duration)
	changes, began := f.count(), time.Now()
	if err := f.churn(ctx, o.rate, o.duration); err != nil {
		return err
	}
	r.Duration = time.Since(began).Seconds()
	r.Changes = f.since(changes)
	if err := memory.stop(r); err != nil {
		return err
	}
	// The last changes have their time too.
	if err := rig.Pause(ctx, o.promises.P99); err != nil {
		return err
	}
	r.Latencies, r.API = f.watcher.latencies(o.promises.P99), f.watcher.api()
	return nil
}

// atRest measures while nobody changes anything.
func atRest(ctx context.Context, c *cluster, o options, r *report) error {
	rig.Progress("rest: %s", o.rest)
	if err := rig.Pause(ctx, 20*time.Second); err != nil {
		return err
	}
	before, err := c.controller()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := rig.Pause(ctx, o.rest); err != nil {
		return err
	}
	after, err := c.controller()
	if err != nil {
		return err
	}
	r.RestCPU = 100 * (after.cpu - before.cpu) / time.Since(began).Seconds()
	r.MemoryRest = after.memory
	return nil
}
