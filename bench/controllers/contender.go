// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordinal-dev/ordinal/bench/rig"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
	"github.com/ordinal-dev/ordinal/test/ports"
)

// The contenders, by the names of their users.
const (
	incumbent = "kube-controller-manager"
	ours      = "ordinal"
)

// limits bound the requests that a contender makes in a second.
type limits string

const (
	// unlimited is the same for both: more than can be had.
	unlimited limits = "none"
	// defaults are those that each contender has if it is told nothing.
	defaults limits = "default"
)

// contender is a running one.
type contender struct {
	who        string
	pid        int
	url        string
	client     *http.Client
	supervisor *supervise.Supervisor
	began      time.Time
}

// startContender starts one, and returns when its process answers; that does not mean that it has begun to work.
func startContender(ctx context.Context, p *plane, who string, l limits, o options) (*contender, error) {
	port, err := ports.Any(ctx)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := p.kubeconfig(who)
	if err != nil {
		return nil, err
	}
	args, scheme := ordinalArgs(kubeconfig, port, o), "http"
	if who == incumbent {
		args, scheme = incumbentArgs(p, kubeconfig, port, o.workers), "https"
	}
	if l == unlimited {
		args = append(args, "--kube-api-qps=1000000", "--kube-api-burst=1000000")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.ca.PEM())
	c := &contender{
		who: who, supervisor: supervise.New(nil), began: time.Now(),
		url:    fmt.Sprintf("%s://%s:%d", scheme, loopback, port),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}},
	}
	ready := func(ctx context.Context) error {
		_, err := c.scrape(ctx)
		return err
	}
	if err := startWithin(ctx, c.supervisor, p.process(who, p.binaries[who], ready, args...)); err != nil {
		return nil, err
	}
	c.pid = c.supervisor.Statuses()[0].PID
	return c, nil
}

func ordinalArgs(kubeconfig string, port int, o options) []string {
	args := []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", fmt.Sprintf("--workers=%d", o.workers),
		fmt.Sprintf("--metrics-bind-address=%s:%d", loopback, port),
	}
	if o.profiles != "" {
		args = append(args, "--pprof")
	}
	return args
}

func incumbentArgs(p *plane, kubeconfig string, port, workers int) []string {
	return []string{
		"--controllers=statefulset-controller", "--kubeconfig=" + kubeconfig, "--leader-elect=false",
		fmt.Sprintf("--concurrent-statefulset-syncs=%d", workers),
		"--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + p.file("loopback.crt"), "--tls-private-key-file=" + p.file("loopback.key"),
		"--authentication-skip-lookup=true", "--authorization-always-allow-paths=/healthz,/metrics",
	}
}

// stop ends the contender. It is an error if it had ended by itself before.
func (c *contender) stop() error {
	before := c.supervisor.Statuses()[0]
	c.supervisor.Stop(c.who)
	if before.State != supervise.Running || before.Restarts > 0 {
		return fmt.Errorf("%s ended by itself: %s", c.who, before.LastExit)
	}
	return nil
}

func (c *contender) profiled() profiled { return profiled{name: c.who, url: c.url, client: c.client} }

// work is what a contender tells of its syncs.
type work struct {
	adds, syncs, seconds float64
}

// scrape asks the contender for its metrics.
func (c *contender) scrape(ctx context.Context) (work, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/metrics", http.NoBody)
	if err != nil {
		return work{}, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return work{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return work{}, fmt.Errorf("metrics: %s", response.Status)
	}
	return parseWork(response.Body)
}

// parseWork reads what both contenders tell in the same words.
func parseWork(metrics io.Reader) (work, error) {
	var w work
	fields := map[string]*float64{
		`workqueue_adds_total{name="statefulset"}`:                  &w.adds,
		`workqueue_work_duration_seconds_count{name="statefulset"}`: &w.syncs,
		`workqueue_work_duration_seconds_sum{name="statefulset"}`:   &w.seconds,
	}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		field, wanted := fields[name]
		if !wanted {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return work{}, fmt.Errorf("read metric %s: %w", name, err)
		}
		*field = n
	}
	return w, lines.Err()
}

// watched are the kinds that a StatefulSet controller has to see before it can do anything.
func watched() []string {
	return []string{"statefulsets", "pods", "persistentvolumeclaims", "controllerrevisions"}
}

// awaitWatching waits until a contender that was just started sees all that it has to see.
func awaitWatching(ctx context.Context, log *auditLog, who string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	missing := watched()
	for len(missing) > 0 {
		requests, err := log.take()
		if err != nil {
			return err
		}
		for _, r := range requests {
			if r.User.Username == who && r.Verb == "watch" {
				missing = slices.DeleteFunc(missing, func(kind string) bool { return kind == r.Object.Resource })
			}
		}
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%s does not watch %v: %w", who, missing, err)
		}
	}
	return nil
}

// awaitQuiet waits until no contender has asked for anything for some time.
func awaitQuiet(ctx context.Context, log *auditLog, quiet time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	last, err := log.size()
	if err != nil {
		return err
	}
	for since := time.Now(); time.Since(since) < quiet; {
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait until no requests come: %w", err)
		}
		size, err := log.size()
		if err != nil {
			return err
		}
		if size != last {
			last, since = size, time.Now()
		}
	}
	return nil
}
