// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command e2e runs the parts of Kubernetes' own end-to-end suite that concern StatefulSets, with real pods, in a one-machine cluster that
// it starts for that and deletes again:
//
//	go run ./test/conformance/e2e [-only GROUPS] [-procs N]
//
// It needs root, and what scripts/conformance builds: run that instead. It ends with how many specs passed, failed, and were not run and
// why, and fails if one failed.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"
)

// options are the places of what was built, and what to run of it.
type options struct {
	// bin has ordinal and the archive of the pause image.
	bin string
	// images has the archives of the test images.
	images string
	// built has the suite, ginkgo, the directories of agnhost and of the tools; reports and logs go there too.
	built string
	// only tells which groups to run.
	only *regexp.Regexp
	// procs is how many specs run at a time.
	procs int
}

func (o options) program(name string) string { return filepath.Join(o.built, name) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("e2e", flag.ContinueOnError)
	flags.StringVar(&o.bin, "bin", "bin", "directory of ordinal and the pause image")
	flags.StringVar(&o.images, "images", "bin/testimages", "directory of the test images")
	flags.StringVar(&o.built, "built", "bin/conformance", "directory of the suite and its programs")
	flags.IntVar(&o.procs, "procs", 6, "how many specs run at a time; most of them wait most of the time")
	only := flags.String("only", "", "run the groups whose names match this regular expression")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.procs < 1 {
		return o, errors.New("give flags only, and at least one process")
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, err
	}
	for _, dir := range []*string{&o.bin, &o.images, &o.built} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return o, err
		}
	}
	return o, nil
}

func run(ctx context.Context, out io.Writer, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	chosen := chosenGroups(o.only)
	if len(chosen) == 0 {
		return fmt.Errorf("no group is named like %s", o.only)
	}
	c, err := newCluster(o)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, c.remove(context.WithoutCancel(ctx))) }()
	if err := c.start(ctx); err != nil {
		return err
	}
	return runGroups(ctx, out, c, chosen)
}

// runGroups runs groups one after the other, tells of each spec, and counts all at the end.
func runGroups(ctx context.Context, out io.Writer, c *cluster, groups []group) error {
	began := time.Now()
	var all []result
	for _, g := range groups {
		fmt.Fprintf(out, "\n== %s\n", g.name)
		results, err := c.runGroup(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		show(out, results)
		all = append(all, results...)
	}
	fmt.Fprintf(out, "\n%s, in %s\n", count(all), time.Since(began).Round(time.Second))
	if n := failures(all); n > 0 {
		return fmt.Errorf("%d specs failed; what they said is in %s", n, c.o.built)
	}
	return nil
}
