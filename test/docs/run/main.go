// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command run runs every command that the documents show, and compares what it prints with what they say that it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// Times of a command.
const (
	// limit is how long a command may take.
	limit = 3 * time.Minute
	// patience is for how long a command that only reads is run again, until it prints what it should.
	patience = time.Minute
	// settled is patience where what should be printed is not known yet.
	settled = 15 * time.Second
	pause   = time.Second
)

// reading are commands that change nothing.
var reading = regexp.MustCompile(`^((ordinal )?kubectl (get|describe|logs|events|rollout history)|ordinal (why|plan|status|takeover check|rollout history))\b`)

// options are the flags.
type options struct {
	root    string
	only    string
	rewrite bool
}

func main() {
	o := options{}
	flag.StringVar(&o.root, "root", ".", "root of the sources")
	flag.StringVar(&o.only, "only", "", "run only pages whose path matches this regular expression")
	flag.BoolVar(&o.rewrite, "rewrite", false, "write what commands print into the pages, where it is not what they show")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "run: %v\n", err)
		os.Exit(1)
	}
}

// tally counts what became of the commands.
type tally struct {
	pages, run, failed int
	// shown counts commands that were shown only, by the reason.
	shown map[string]int
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	all, err := pages(root)
	if err != nil {
		return err
	}
	t := &tally{shown: map[string]int{}}
	for _, p := range all {
		if only.MatchString(p.path) && ctx.Err() == nil {
			t.page(ctx, root, &p, o.rewrite)
		}
	}
	fmt.Println(t.String())
	if t.failed > 0 || ctx.Err() != nil {
		return errors.New("not all that the documents show is so")
	}
	return nil
}

// String is the summary line.
func (t *tally) String() string {
	text := fmt.Sprintf("%d commands run on %d pages, %d failed", t.run, t.pages, t.failed)
	sum := 0
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(t.shown)) {
		sum += t.shown[reason]
		reasons = append(reasons, fmt.Sprintf("%d because %s", t.shown[reason], reason))
	}
	if sum == 0 {
		return text
	}
	return fmt.Sprintf("%s, %d shown only: %s", text, sum, strings.Join(reasons, "; "))
}

// pages are the documents, but for those that are made from the code.
func pages(root string) ([]page, error) {
	paths := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" || filepath.Base(filepath.Dir(path)) == "reference" {
			return err
		}
		path, err = filepath.Rel(root, path)
		paths = append(paths, path)
		return err
	})
	if err != nil {
		return nil, err
	}
	var all []page
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		p, err := parse(path, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// page runs the commands of a page in a cluster of its own.
func (t *tally) page(ctx context.Context, root string, p *page, rewrite bool) {
	commands := p.commands()
	for _, x := range p.parts {
		if x.notRun != "" {
			t.shown[x.notRun]++
		}
	}
	if commands == 0 {
		return
	}
	if p.where != "simulate" && os.Geteuid() != 0 {
		t.shown["pods that are real need root"] += commands
		return
	}
	began := time.Now()
	done, err := runPage(ctx, root, p, rewrite)
	t.pages++
	t.run += done
	word := "ok    "
	if err != nil {
		t.failed++
		word = "FAILED"
	}
	fmt.Printf("%s %-45s %2d commands %6.1fs\n", word, p.path, done, time.Since(began).Seconds())
	if err != nil {
		fmt.Printf("%v\n\n", err)
	}
	if rewrite {
		if err := os.WriteFile(filepath.Join(root, p.path), []byte(strings.Join(p.lines, "\n")), 0o644); err != nil {
			fmt.Println(err)
		}
	}
}

// runPage gives how many commands were run, up to the first that failed.
func runPage(ctx context.Context, root string, p *page, rewrite bool) (done int, err error) {
	r, err := newRig(root)
	if err != nil {
		return 0, err
	}
	defer func() {
		// Also what was interrupted is stopped.
		err = errors.Join(err, r.stop(context.WithoutCancel(ctx)))
	}()
	if err := r.start(ctx, p.where); err != nil {
		return 0, err
	}
	s, err := newShell(ctx, r.work(), r.env, strings.NewReplacer(r.data(), layout.DefaultDataDir))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for i, x := range p.parts {
		switch {
		case x.file != "":
			err = os.WriteFile(filepath.Join(r.work(), x.file), []byte(x.content), 0o600)
		case x.notRun == "":
			done++
			err = p.step(ctx, s, i, rewrite)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// step runs a command and judges what it prints.
func (p *page) step(ctx context.Context, s *shell, i int, rewrite bool) error {
	x := p.parts[i]
	shown := p.shown(x)
	a, err := s.ask(ctx, x.command, shown, patienceFor(x.command, rewrite))
	switch {
	case err != nil:
		return fmt.Errorf("$ %s\n%w", x.command, err)
	case a.told == nil:
		return nil
	case rewrite && len(shown) > 0 && (a.code == 0 || reading.MatchString(x.command)):
		p.replace(i, a.printed)
		return nil
	}
	return fmt.Errorf("$ %s\n%w", x.command, a.told)
}

// patienceFor is for how long a command is run again until it prints what it should.
func patienceFor(command string, rewrite bool) time.Duration {
	switch {
	case !reading.MatchString(command):
		return 0
	case rewrite:
		return settled
	}
	return patience
}

// answer is what a command printed last, and what is wrong with that; nil if nothing is.
type answer struct {
	printed []string
	code    int
	told    error
}

// ask runs a command, again and again until it prints what is shown or patience is over.
func (s *shell) ask(ctx context.Context, command string, shown []string, within time.Duration) (answer, error) {
	var a answer
	timer := time.AfterFunc(limit, func() { _ = s.process.Cancel() })
	err := wait.PollUntilContextTimeout(ctx, pause, max(within, time.Nanosecond), true, func(context.Context) (done bool, err error) {
		if a.printed, a.code, err = s.run(command); err != nil {
			return false, err
		}
		a.told = verdict(shown, a.printed, a.code)
		return a.told == nil, nil
	})
	if !timer.Stop() {
		return a, fmt.Errorf("it does not end within %s", limit)
	}
	if a.told != nil {
		// What it printed tells more than that the time is over.
		err = nil
	}
	return a, err
}
