// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command up measures a one-machine cluster: how long each stage of a start takes, and what it costs in memory and CPU while a
// StatefulSet of three runs in it and nobody does anything. It prints a Markdown table that names the machine.
//
// With -rounds it measures something else: how long it takes in that cluster, with real pods, from a pod's readiness to the next pod
// of its set, beside kube-controller-manager's StatefulSet controller.
//
// It needs root, and the host for itself: it starts a cluster of its own in a temporary directory, and deletes it at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ordinal-dev/ordinal/bench/rig"
)

// options are the command's flags.
type options struct {
	bin      string
	manifest string
	dir      string
	starts   int
	settle   time.Duration
	idle     time.Duration
	// rounds is how often latency is measured, instead of all else.
	rounds    int
	incumbent string
	json      string
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory of the built programs")
	flag.StringVar(&o.manifest, "manifest", "examples/visits.yaml", "the StatefulSet of three to start, named visits")
	flag.StringVar(&o.dir, "dir", "/var/tmp", "where to make the temporary data directory")
	flag.IntVar(&o.starts, "starts", 3, "how many later starts to take the median of")
	flag.DurationVar(&o.settle, "settle", 30*time.Second, "how long to wait before the idle time")
	flag.DurationVar(&o.idle, "idle", 5*time.Minute, "how long to measure CPU")
	flag.IntVar(&o.rounds, "rounds", 0, "how often to measure the time from a ready pod to the next one, with both controllers, instead of all else")
	flag.StringVar(&o.incumbent, "incumbent", "bin/.bench-incumbent", "the built kube-controller-manager for that")
	flag.StringVar(&o.json, "json", "", "file to write all figures of that to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-up:", err)
		os.Exit(1) //nolint:gocritic // stop only gives the signals back, and the process ends.
	}
}

func run(ctx context.Context, o options) (err error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	load := rig.LoadAverage()
	dir, err := os.MkdirTemp(o.dir, "ordinal-bench-")
	if err != nil {
		return err
	}
	c := &cluster{ordinal: filepath.Join(bin, "ordinal"), data: filepath.Join(dir, "data")}
	defer func() {
		err = errors.Join(err, c.purge(context.WithoutCancel(ctx)), os.RemoveAll(dir))
	}()
	if o.rounds > 0 {
		return runLatency(ctx, c, o)
	}
	m, err := measure(ctx, c, o, filepath.Join(bin, "visits.tar"))
	if err != nil {
		return err
	}
	m.machine, m.load = rig.Machine(), load
	return m.print(os.Stdout)
}

// measurement is all that the command finds out.
type measurement struct {
	machine string
	load    string
	first   stages
	again   stages
	fresh   stages
	parts   []part
	idle    time.Duration
}

func measure(ctx context.Context, c *cluster, o options, image string) (*measurement, error) {
	m := &measurement{}
	var err error
	rig.Progress("first start, with an empty data directory")
	if m.first, err = c.start(ctx, workload{manifest: o.manifest, images: []string{image}}); err != nil {
		return nil, err
	}
	var again, fresh []stages
	for n := range o.starts {
		rig.Progress("later start %d of %d, the set is there already", n+1, o.starts)
		s, err := c.restart(ctx, workload{})
		if err != nil {
			return nil, err
		}
		again = append(again, s)
	}
	for n := range o.starts {
		rig.Progress("later start %d of %d, the set is applied anew", n+1, o.starts)
		if err := c.deleteSet(ctx, o.manifest); err != nil {
			return nil, err
		}
		s, err := c.restart(ctx, workload{manifest: o.manifest})
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, s)
	}
	m.again, m.fresh = median(again), median(fresh)
	rig.Progress("idle: %s to settle, then %s", o.settle, o.idle)
	if m.parts, m.idle, err = c.idle(ctx, o.settle, o.idle); err != nil {
		return nil, err
	}
	return m, nil
}

// runQuietly runs a program and shows what it said only if it failed.
func runQuietly(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", filepath.Base(name), args, err, out)
	}
	return nil
}
