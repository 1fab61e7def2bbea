// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
	"github.com/ordinal-dev/ordinal/internal/nodes"
)

// A simulated cluster is the same control plane without a node: all of it is in the data directory and on some ports of loopback,
// so that it needs no rights, changes nothing on the host, and may run beside others.

// simulatedPorts is how many ports a simulated cluster has, the API server's first.
const simulatedPorts = 3

// maxSocketPath is how long the path of a Unix socket may be.
const maxSocketPath = 107

// checkSimulation checks what a user may choose about a simulated cluster.
func (o *Options) checkSimulation() error {
	if !o.Simulate {
		return nil
	}
	if o.Nodes < 1 {
		return fmt.Errorf("--nodes: %d is not a number of nodes; give one from 1 on", o.Nodes)
	}
	if o.PodDelay < 0 {
		return fmt.Errorf("--pod-delay: %s is no delay; give one from 0s on", o.PodDelay)
	}
	if _, err := nodes.ParseCapacity(o.NodeCapacity); err != nil {
		return fmt.Errorf("--node-capacity: %w", err)
	}
	longest := filepath.Join(layout.Data(o.DataDir).Run(), "controller.sock")
	if len(longest) > maxSocketPath {
		return fmt.Errorf("--data-dir: %s is too long for the sockets in it by %d characters; give a shorter one",
			o.DataDir, len(longest)-maxSocketPath)
	}
	return nil
}

// runDir is where this cluster's sockets are.
func (h *host) runDir() string {
	if h.Simulate {
		return h.data.Run()
	}
	return layout.RunDir
}

func (h *host) etcdSocket() string {
	return filepath.Join(h.runDir(), filepath.Base(layout.EtcdSocket))
}

func (h *host) controllerManagerPort() int {
	if h.Simulate {
		return h.APIPort + 1
	}
	return layout.ControllerManagerPort
}

func (h *host) schedulerPort() int {
	if h.Simulate {
		return h.APIPort + 2
	}
	return layout.SchedulerPort
}

// simulator stands in for all nodes.
func (h *host) simulator() supervise.Process {
	return h.announced(h.child("nodes",
		"--kubeconfig="+h.data.ComponentKubeconfig("nodes"),
		fmt.Sprintf("--count=%d", h.Nodes),
		"--capacity="+h.NodeCapacity,
		"--pod-delay="+h.PodDelay.String(),
	))
}

// checkKind keeps what real nodes have run from simulated ones, and the other way round: the pods in the datastore are the other
// kind's.
func (c *Cluster) checkKind() error {
	last, err := ReadState(string(c.data))
	if err != nil || last.PID == 0 || last.Simulated == c.Simulate {
		return nil //nolint:nilerr // Nothing is known of an earlier cluster.
	}
	if c.Simulate {
		return fmt.Errorf("%s holds a cluster with real pods; give --data-dir another directory", c.data)
	}
	return fmt.Errorf("%s holds a simulated cluster; start it with --simulate, or give --data-dir another directory", c.data)
}

// prepareSimulated looks at what little of the host is needed, and takes the data directory.
func (c *Cluster) prepareSimulated(ctx context.Context, version string) error {
	// Whoever has this directory also has the ports, and is the better one to name.
	if held, err := isLocked(c.data.Lock()); err == nil && held {
		return c.alreadyRunning(c.data.Lock())
	}
	if err := c.checkHost(ctx); err != nil {
		return err
	}
	if err := c.prepareData(version); err != nil {
		return err
	}
	return errors.Join(makePrivate(c.data.Run()), c.issueKeys())
}

// startSimulated starts the parts of a simulated cluster.
func (c *Cluster) startSimulated(ctx context.Context) error {
	if err := c.startAPI(ctx); err != nil {
		return err
	}
	config, err := c.adminConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		c.sealSecrets(ctx, client)
		return nil
	})
	group.Go(func() error { return c.run(ctx, c.controllerManager()) })
	group.Go(func() error { return c.run(ctx, c.scheduler()) })
	group.Go(func() error {
		if err := bootstrap(ctx, config, client, c.StorageClasses); err != nil {
			return err
		}
		inner, ctx := errgroup.WithContext(ctx)
		for _, process := range []supervise.Process{c.storage(), c.controller(), c.simulator()} {
			inner.Go(func() error { return c.run(ctx, process) })
		}
		return inner.Wait()
	})
	return group.Wait()
}
