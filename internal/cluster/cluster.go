// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/ordinal-dev/ordinal/internal/cluster/frugal"
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/network"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
	"github.com/ordinal-dev/ordinal/internal/doctor"
	"github.com/ordinal-dev/ordinal/internal/image/store"
)

// startLimit bounds the start of the whole cluster. A first start on a slow disk takes a minute.
const startLimit = 5 * time.Minute

// Report tells the user what happened: one line of progress.
type Report func(line string)

// Cluster is a cluster that runs, or ran, in this process.
type Cluster struct {
	host
	supervisor *supervise.Supervisor
	state      *statePublisher
	locks      []*os.File
	report     Report
	began      time.Time
}

// Start brings up the cluster and returns when it is ready. When it fails, or ctx ends first, everything that was started
// is stopped again before it returns.
func Start(ctx context.Context, o Options, version string, report Report) (*Cluster, error) {
	began := time.Now()
	binDir, err := BinDir()
	if err != nil {
		return nil, err
	}
	if err := extendPath(binDir); err != nil {
		return nil, err
	}
	c := &Cluster{report: report, began: began, host: host{
		Options: o, data: layout.Data(o.DataDir), binDir: binDir, self: filepath.Join(binDir, selfName()), caps: readCapabilities(),
	}}
	if err := c.prepare(ctx, version); err != nil {
		c.unlock()
		return nil, c.explain(err)
	}
	startCtx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s; see %s", startLimit, c.data.Path("log")))
	defer cancel()
	if err := c.start(startCtx); err != nil {
		c.stop(context.WithoutCancel(ctx))
		err = c.explain(err)
		c.state.fail(err)
		c.unlock()
		return nil, err
	}
	c.state.phase(PhaseReady)
	go frugal.Run()
	return c, nil
}

// prepare takes the locks and lays out the data directory and the host's network.
func (c *Cluster) prepare(ctx context.Context, version string) error {
	if c.Simulate {
		return c.prepareSimulated(ctx, version)
	}
	// Nothing is made in the data directory before it is certain that it may be used.
	if err := errors.Join(makePrivate(layout.RunDir), c.lock(layout.HostLock)); err != nil {
		return err
	}
	if err := c.checkHost(ctx); err != nil {
		return err
	}
	if err := c.prepareData(version); err != nil {
		return err
	}
	if err := adoptRunDir(c.data); err != nil {
		return err
	}
	if err := c.issueKeys(); err != nil {
		return err
	}
	return network.Up(ctx)
}

// prepareData takes the data directory and lays it out.
func (c *Cluster) prepareData(version string) error {
	if err := errors.Join(makePrivate(string(c.data)), c.lock(c.data.Lock())); err != nil {
		return err
	}
	if err := c.checkKind(); err != nil {
		return err
	}
	for _, dir := range []string{c.data.Path("log"), c.data.Volumes(), c.data.Path("etcd")} {
		if err := makePrivate(dir); err != nil {
			return err
		}
	}
	c.state = newStatePublisher(c.data.State(), State{
		PID: os.Getpid(), Version: version, Started: c.began, Kubeconfig: c.Kubeconfig, APIPort: c.APIPort, Phase: PhaseStarting,
		Simulated: c.Simulate,
	})
	c.supervisor = supervise.New(c.state.components)
	return nil
}

// issueKeys makes all that has to be secret.
func (c *Cluster) issueKeys() error {
	if err := issueCredentials(c.Options, c.began); err != nil {
		return err
	}
	return c.configureEncryption()
}

// closing is how long the sockets of processes that were just killed may take to close.
const closing = 5 * time.Second

// checkHost looks at the host before anything on it is changed. Where the last cluster was killed, its ports may take a
// moment to get free.
func (c *Cluster) checkHost(ctx context.Context) error {
	options := doctor.Options{DataDir: string(c.data), BinDir: c.binDir, APIPort: c.APIPort, Simulate: c.Simulate}
	failures := doctor.Failures(doctor.Run(ctx, options))
	if last, err := ReadState(string(c.data)); len(failures) > 0 && err == nil && last.Phase == PhaseDead {
		_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, closing, false, func(ctx context.Context) (bool, error) {
			failures = doctor.Failures(doctor.Run(ctx, options))
			return len(failures) == 0, nil
		})
	}
	var errs []error
	for _, failure := range failures {
		errs = append(errs, fmt.Errorf("%s: %s; %s", failure.Name, failure.Detail, failure.Remedy))
	}
	return errors.Join(errs...)
}

// start starts the parts, each as soon as what it needs is there.
func (c *Cluster) start(ctx context.Context) error {
	if c.Simulate {
		return c.startSimulated(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	runtimeReady, apiReady := make(chan struct{}), make(chan struct{})
	group.Go(func() error {
		if err := c.startRuntime(ctx); err != nil {
			return err
		}
		close(runtimeReady)
		return nil
	})
	group.Go(func() error {
		if err := c.startAPI(ctx); err != nil {
			return err
		}
		close(apiReady)
		return nil
	})
	group.Go(func() error {
		for _, ready := range []chan struct{}{apiReady, runtimeReady} {
			select {
			case <-ready:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return c.startRest(ctx)
	})
	return group.Wait()
}

// startAPI starts the datastore and the API server.
func (c *Cluster) startAPI(ctx context.Context) error {
	if err := c.run(ctx, c.etcd()); err != nil {
		return err
	}
	return c.run(ctx, c.apiServer())
}

// startRuntime starts the container runtime and gives it the image that every pod needs.
func (c *Cluster) startRuntime(ctx context.Context) error {
	process, err := c.containerd()
	if err != nil {
		return err
	}
	if err := c.run(ctx, process); err != nil {
		return err
	}
	archive := filepath.Join(c.binDir, layout.PauseArchive)
	if err := store.EnsureImported(ctx, layout.ContainerdSocket, archive); err != nil {
		return fmt.Errorf("import pause image: %w", err)
	}
	return nil
}

// startRest starts everything that speaks to the API server.
func (c *Cluster) startRest(ctx context.Context) error {
	config, err := c.adminConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := correctReadiness(ctx, client); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := bootstrap(ctx, config, client, c.StorageClasses); err != nil {
			return err
		}
		inner, ctx := errgroup.WithContext(ctx)
		inner.Go(func() error { return c.run(ctx, c.storage()) })
		inner.Go(func() error { return c.run(ctx, c.controller()) })
		inner.Go(func() error { return c.runMade(ctx, c.dns) })
		return inner.Wait()
	})
	group.Go(func() error {
		c.sealSecrets(ctx, client)
		return nil
	})
	group.Go(func() error { return c.run(ctx, c.controllerManager()) })
	group.Go(func() error { return c.run(ctx, c.scheduler()) })
	group.Go(func() error { return c.run(ctx, c.proxy()) })
	group.Go(func() error {
		if err := c.runMade(ctx, c.kubelet); err != nil {
			return err
		}
		if err := nodeReady(ctx, client, c.began); err != nil {
			return fmt.Errorf("wait for node to be ready: %w", err)
		}
		if err := c.kubeletKnowsPods(ctx, client); err != nil {
			return fmt.Errorf("wait for kubelet to know its pods: %w", err)
		}
		c.say("node", c.began)
		return nil
	})
	return group.Wait()
}

func (c *Cluster) runMade(ctx context.Context, describe func() (supervise.Process, error)) error {
	process, err := describe()
	if err != nil {
		return err
	}
	return c.run(ctx, process)
}

// run starts one component and says when it is ready.
func (c *Cluster) run(ctx context.Context, p supervise.Process) error {
	began := time.Now()
	if err := c.supervisor.Start(ctx, p); err != nil {
		return err
	}
	c.say(p.Name, began)
	return nil
}

func (c *Cluster) say(name string, since time.Time) {
	c.report(fmt.Sprintf("  %-24s ready after %4.1fs   (%4.1fs)", name, time.Since(since).Seconds(), time.Since(c.began).Seconds()))
}

func (c *Cluster) adminConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.data.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read own kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	return config, nil
}

// nodeReady waits until the node reports after since that pods can run on it.
func nodeReady(ctx context.Context, client kubernetes.Interface, since time.Time) error {
	selector := fields.OneTermEqualSelector("metadata.name", layout.NodeName).String()
	source := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", func(o *metav1.ListOptions) {
		o.FieldSelector = selector
	})
	_, err := watchtools.UntilWithSync(ctx, source, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		node, ok := event.Object.(*corev1.Node)
		return ok && isReadySince(node, since), nil
	})
	return err
}

// isReadySince tells whether a node has said since a moment that it is ready. What it said earlier was before a restart.
func isReadySince(node *corev1.Node, since time.Time) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))
	})
}

// Stop ends everything in reverse order: the kubelet, the pods with the grace that each asks for, the components, the datastore
// last. When ctx ends, what is left is killed. It may be called once.
func (c *Cluster) Stop(ctx context.Context) {
	c.stop(ctx)
	c.state.phase(PhaseStopped)
	c.unlock()
}

func (c *Cluster) stop(ctx context.Context) {
	c.state.phase(PhaseStopping)
	killer := context.AfterFunc(ctx, c.supervisor.Kill)
	defer killer()
	if c.Simulate {
		c.stopParts("nodes", "controller", "storage", "kube-scheduler", "kube-controller-manager")
		if err := os.RemoveAll(c.data.Run()); err != nil {
			c.report("  clean up: " + err.Error())
		}
		return
	}
	c.supervisor.Stop("kubelet")
	if err := stopPods(ctx, c.state.podsLeft); err != nil && ctx.Err() == nil && c.runtimeRuns() {
		c.report("  " + err.Error())
	}
	c.stopParts("controller", "storage", "kube-scheduler", "kube-controller-manager", "kube-proxy", "coredns", "containerd")
	if err := errors.Join(sweep(c.data), network.Down(context.WithoutCancel(ctx))); err != nil {
		c.report("  clean up: " + err.Error())
	}
}

// stopParts stops the named parts at once, and then what they need.
func (c *Cluster) stopParts(names ...string) {
	var group errgroup.Group
	for _, name := range names {
		group.Go(func() error {
			c.supervisor.Stop(name)
			return nil
		})
	}
	_ = group.Wait()
	c.supervisor.Stop(apiServerName)
	c.supervisor.Stop("etcd")
}

func (c *Cluster) runtimeRuns() bool {
	for _, status := range c.supervisor.Statuses() {
		if status.Name == "containerd" && status.PID != 0 {
			return true
		}
	}
	return false
}
