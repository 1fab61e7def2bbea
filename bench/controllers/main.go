// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controllers gives the same work to kube-controller-manager's StatefulSet controller and to Ordinal's, one after the
// other on the same control plane, and compares what it costs: time, CPU, memory, requests, latency. It prints a Markdown
// table of ratios, and can write all figures as JSON and a plot as SVG.
//
// It needs no root. All it starts ends with it, and all it writes is in a temporary directory or where its flags say.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ordinal-dev/ordinal/bench/rig"
)

// options are the command's flags.
type options struct {
	ordinal, incumbent string
	dir                string
	only               []string
	scale              float64
	rounds             int
	workers            int
	defaultScale       float64
	defaultRounds      int
	settle, rest       time.Duration
	json, svg          string
	profiles           string
	sizes              sizes
}

// sizes are how much work there is at a scale of 1.
type sizes struct {
	ordered, parallelSets, parallelPods, single, rolling, paced, update, settled int
}

func main() {
	var o options
	flag.StringVar(&o.ordinal, "ordinal", "bin/ordinal", "the built ordinal, with ordinal-controller beside it")
	flag.StringVar(&o.incumbent, "incumbent", "bin/.bench-incumbent", "the built kube-controller-manager")
	flag.StringVar(&o.dir, "dir", "", "where to make the temporary directory, instead of where the system has them")
	only := flag.String("only", "", "names of the stages to run, with commas; all without it")
	flag.Float64Var(&o.scale, "scale", 1, "how much of the work to give")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each contender gets the work without limits of requests")
	flag.IntVar(&o.workers, "workers", 5, "how many sets each contender works on at once")
	flag.IntVar(&o.defaultRounds, "default-rounds", 1, "how often each contender gets the work with its default limits of requests")
	flag.Float64Var(&o.defaultScale, "default-scale", 0.1, "how much of the scaled work to give then")
	flag.DurationVar(&o.settle, "settle", 5*time.Second, "how long to wait after the work before memory is measured")
	flag.DurationVar(&o.rest, "rest", time.Minute, "how long to watch a contender that has nothing to do")
	flag.StringVar(&o.json, "json", "", "file to write all figures to")
	flag.StringVar(&o.svg, "svg", "", "file to write the plot to")
	flag.StringVar(&o.profiles, "profiles", "", "directory to write profiles to; then Ordinal does the work once, alone, and there are no tables")
	flag.IntVar(&o.sizes.ordered, "ordered", 1000, "sets of three that come up in order, with a claim for each pod")
	flag.IntVar(&o.sizes.parallelSets, "parallel-sets", 10, "large Parallel sets that come up")
	flag.IntVar(&o.sizes.parallelPods, "parallel-pods", 1000, "pods of each large Parallel set")
	flag.IntVar(&o.sizes.single, "single", 300, "pods of the one set that comes up in order")
	flag.IntVar(&o.sizes.rolling, "rolling", 500, "sets of three that get a new template, and then are scaled to zero")
	flag.IntVar(&o.sizes.paced, "paced", 100, "sets of three with pods that take a second, which come up in order and get a new template")
	flag.IntVar(&o.sizes.update, "update", 200, "pods of the Parallel set that gets a new template")
	flag.IntVar(&o.sizes.settled, "settled", 2000, "settled sets of three for the restart and the rest")
	flag.Parse()
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // stop only gives the signals back, and the process ends.
	}
}

func run(ctx context.Context, o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	report := &report{Machine: rig.Machine(), Load: rig.LoadAverage(), Scale: o.scale, Workers: o.workers}
	began := time.Now()
	// What was measured until it failed or was interrupted is told all the same.
	err := measureAll(ctx, o, report)
	report.Took = time.Since(began).Round(time.Second).String()
	if len(report.Results) == 0 || o.profiles != "" {
		return err
	}
	return errors.Join(err, report.writeJSON(o.json), report.writeSVG(o.svg), report.print(os.Stdout))
}

func (o options) validate() error {
	known := map[string]bool{}
	for _, s := range stages(o.sizes, o.scale, unlimited) {
		known[s.name] = true
	}
	for _, name := range o.only {
		if !known[name] {
			return fmt.Errorf("-only: no stage is named %s; there are %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	if o.scale <= 0 || o.defaultScale <= 0 || o.workers < 1 {
		return errors.New("-scale, -default-scale and -workers have to be more than 0")
	}
	return nil
}

// contenders are those that get the work in a round, in the order in which they do.
func (o options) contenders(round int) []string {
	switch {
	case o.profiles != "":
		return []string{ours}
	case round%2 == 0:
		return []string{ours, incumbent}
	default:
		return []string{incumbent, ours}
	}
}

// measureAll runs all rounds on one control plane.
func measureAll(ctx context.Context, o options, r *report) (err error) {
	dir, err := os.MkdirTemp(o.dir, "ordinal-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	p, err := startPlane(ctx, dir, o)
	if err != nil {
		return err
	}
	defer p.stop()
	k, err := startKubelet(ctx, p.config)
	if err != nil {
		return err
	}
	defer k.stop()
	w, err := startWatcher(ctx, p.config)
	if err != nil {
		return err
	}
	defer w.stop()
	b := &bench{options: o, plane: p, kubelet: k, watcher: w, report: r}
	if o.profiles != "" {
		return b.rounds(ctx, unlimited, 1, o.scale)
	}
	if err := b.rounds(ctx, unlimited, o.rounds, o.scale); err != nil {
		return err
	}
	return b.rounds(ctx, defaults, o.defaultRounds, o.scale*o.defaultScale)
}

// bench is a run of the command.
type bench struct {
	options options
	plane   *plane
	kubelet *kubelet
	watcher *watcher
	report  *report
}

// rounds gives each stage to both contenders in turn. Who is first changes from round to round.
func (b *bench) rounds(ctx context.Context, l limits, rounds int, scale float64) error {
	for round := 1; round <= rounds; round++ {
		for _, s := range stages(b.options.sizes, scale, l) {
			if len(b.options.only) > 0 && !slices.Contains(b.options.only, s.name) {
				continue
			}
			for _, who := range b.options.contenders(round) {
				rig.Progress("round %d of %d, limits %s: %s, %s", round, rounds, l, s.name, who)
				t := &turn{bench: b, stage: s, who: who, round: round, limits: l}
				if err := t.run(ctx); err != nil {
					return fmt.Errorf("%s, round %d, %s: %w", s.name, round, who, err)
				}
			}
		}
	}
	return nil
}
