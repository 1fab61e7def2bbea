// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ordinal-dev/ordinal/test/ports"
)

const (
	// podsPerNode is what one simulated node takes.
	podsPerNode = 1000
	// sampling is how often memory is looked at.
	sampling = time.Second
)

// cluster is the one that is measured.
type cluster struct {
	ordinal, data string
	config        *rest.Config
	// pid is that of the controller. One that dies meanwhile ends the measurement.
	pid int
}

func (c *cluster) run(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, c.ordinal, append(args, "--data-dir", c.data)...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("ordinal %v: %w\n%s", args, err, exit.Stderr)
	}
	return out, err
}

// up starts the cluster, with room for twice the pods.
func (c *cluster) up(ctx context.Context, o options) error {
	port, err := ports.Three(ctx, 23000)
	if err != nil {
		return err
	}
	_, err = c.run(ctx, "up", "--simulate", "--detach", "--api-port", strconv.Itoa(port), "--pod-delay", o.podDelay.String(),
		"--nodes", strconv.Itoa(2*o.sets*o.replicas/podsPerNode+1),
		"--node-capacity", fmt.Sprintf("cpu=1000,memory=10Ti,pods=%d", podsPerNode))
	if err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(c.data, "kubeconfig")); err != nil {
		return err
	}
	c.config.QPS = -1
	out, err := c.run(ctx, "status", "--output", "json")
	if err != nil {
		return err
	}
	var status struct {
		Components []struct {
			Name string `json:"name"`
			PID  int    `json:"pid"`
		} `json:"components"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return fmt.Errorf("decode status: %w", err)
	}
	for _, part := range status.Components {
		if part.Name == "controller" {
			c.pid = part.PID
			return nil
		}
	}
	return errors.New("the cluster has no controller")
}

func (c *cluster) purge(ctx context.Context) error {
	_, err := c.run(ctx, "down", "--purge", "--yes")
	return err
}

// use is what a process has used: CPU time in seconds, and what it holds in bytes of memory that no file backs.
type use struct {
	cpu    float64
	memory uint64
}

func (c *cluster) controller() (use, error) {
	process, err := procfs.NewProc(c.pid)
	if err != nil {
		return use{}, fmt.Errorf("the controller is gone: %w", err)
	}
	stat, err := process.Stat()
	if err != nil {
		return use{}, err
	}
	status, err := process.NewStatus()
	if err != nil {
		return use{}, err
	}
	return use{cpu: stat.CPUTime(), memory: status.RssAnon}, nil
}

// meter looks at the controller's memory from time to time.
type meter struct {
	began  use
	start  time.Time
	end    context.CancelFunc
	wg     sync.WaitGroup
	values []uint64
	err    error
	c      *cluster
}

func (c *cluster) startMeter(ctx context.Context) (*meter, error) {
	began, err := c.controller()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &meter{began: began, start: time.Now(), end: cancel, c: c}
	m.wg.Go(func() {
		ticker := time.NewTicker(sampling)
		defer ticker.Stop()
		for {
			now, err := c.controller()
			if err != nil {
				m.err = err
				return
			}
			m.values = append(m.values, now.memory)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return m, nil
}

// stop ends the measurement and tells the report of it.
func (m *meter) stop(r *report) error {
	m.end()
	m.wg.Wait()
	now, err := m.c.controller()
	if err = errors.Join(m.err, err); err != nil {
		return err
	}
	r.ChurnCPU = 100 * (now.cpu - m.began.cpu) / time.Since(m.start).Seconds()
	r.MemoryWarm, r.MemoryEnd = ends(m.values)
	r.MemoryMost = slices.Max(m.values)
	return nil
}

// ends are the medians of the first and the last tenth, at least one value each: memory goes up and down with garbage collection.
func ends(values []uint64) (first, last uint64) {
	n := max(len(values)/10, 1)
	return median(values[:n]), median(values[len(values)-n:])
}

func median(values []uint64) uint64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
