// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// window is how long one CPU profile takes. They follow each other closely and are merged at the end, because it is not known
// before how long a piece of work takes.
const window = 5 * time.Second

// profiled is a process that serves its profiles.
type profiled struct {
	name, url string
	client    *http.Client
}

// save writes one profile to a file.
func (p profiled) save(ctx context.Context, profile, file string) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/debug/pprof/"+profile, http.NoBody)
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("profile %s of %s: %s", profile, p.name, response.Status)
	}
	target, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, response.Body)
	return errors.Join(err, target.Close())
}

// recording takes the profiles of the processes that work on a scenario. A nil one takes none.
type recording struct {
	// dir is for the profiles, whose names begin with that of the scenario; scratch is for what is merged into them.
	dir, scenario, scratch string
	window                 time.Duration
	done                   chan struct{}
	group                  errgroup.Group
	processes              []*follower
}

// follower is what was taken of one process: the files of its windows are complete once the recording's group has ended.
type follower struct {
	profiled
	windows []string
}

// record begins to take profiles, if they are wanted, of the API server and of the contender, if it runs already.
func (t *turn) record(ctx context.Context, scenario string) (*recording, error) {
	if t.options.profiles == "" {
		return nil, nil
	}
	client, err := rest.HTTPClientFor(t.plane.config)
	if err != nil {
		return nil, err
	}
	r := &recording{dir: t.options.profiles, scenario: scenario, scratch: t.plane.dir, window: window, done: make(chan struct{})}
	r.follow(ctx, profiled{name: "kube-apiserver", url: t.plane.config.Host, client: client})
	if t.contender != nil {
		r.follow(ctx, t.contender.profiled())
	}
	return r, nil
}

// follow begins to take the CPU profiles of a process.
func (r *recording) follow(ctx context.Context, p profiled) {
	if r == nil {
		return
	}
	f := &follower{profiled: p}
	r.processes = append(r.processes, f)
	r.group.Go(func() error {
		for {
			file := filepath.Join(r.scratch, fmt.Sprintf("%s.%d.pb.gz", r.name(p, "cpu"), len(f.windows)))
			if err := p.save(ctx, fmt.Sprintf("profile?seconds=%d", int(r.window.Seconds())), file); err != nil {
				return err
			}
			f.windows = append(f.windows, file)
			select {
			case <-r.done:
				return nil
			default:
			}
		}
	})
}

func (r *recording) name(p profiled, kind string) string {
	return r.scenario + "." + p.name + "." + kind
}

// end waits for the windows that go on, and writes all profiles.
func (r *recording) end(ctx context.Context) error {
	if r == nil {
		return nil
	}
	close(r.done)
	if err := r.group.Wait(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	for _, f := range r.processes {
		target := func(kind string) string { return filepath.Join(r.dir, r.name(f.profiled, kind)+".pb.gz") }
		err := errors.Join(merge(ctx, target("cpu"), f.windows), f.save(ctx, "heap?gc=1", target("heap")), f.save(ctx, "allocs", target("allocs")))
		if err != nil {
			return err
		}
	}
	return nil
}

// merge makes one profile of several, and deletes those.
func merge(ctx context.Context, target string, files []string) error {
	args := append([]string{"tool", "pprof", "-proto", "-symbolize=none", "-output=" + target}, files...)
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("merge profiles: %w\n%s", err, out)
	}
	var err error
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}
