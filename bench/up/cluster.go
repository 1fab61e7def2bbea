// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ordinal-dev/ordinal/bench/rig"
)

const (
	// poll is how often a stage is looked at. It is short against what is measured and long against what a look costs.
	poll = 50 * time.Millisecond
	// limit is how long a whole start may take.
	limit = 5 * time.Minute
)

// cluster is the one that is measured.
type cluster struct {
	ordinal string
	data    string
	// client speaks to server; both are out of the kubeconfig that was written then.
	client  *http.Client
	server  string
	written time.Time
}

// workload is what is given to a cluster once it is ready; a cluster that has the set already gets nothing.
type workload struct {
	manifest string
	images   []string
}

// stages are the times since the start command at which things were so.
type stages struct {
	api, node, ready, pods, name time.Duration
}

// start starts the cluster, gives it the workload, and notes when each stage was reached.
func (c *cluster) start(ctx context.Context, w workload) (stages, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	up := make(chan error, 1)
	var s stages
	go func() {
		err := runQuietly(ctx, c.ordinal, "up", "--detach", "--data-dir", c.data)
		s.ready = time.Since(began)
		if err != nil {
			cancel() // nothing more will become ready
		}
		up <- err
	}()
	err := c.watchStart(ctx, began, &s)
	if upErr := <-up; upErr != nil {
		return s, upErr
	}
	if err != nil {
		return s, err
	}
	if err := c.give(ctx, w); err != nil {
		return s, err
	}
	if err := until(ctx, func() (bool, error) { return c.podsReady(ctx, began) }); err != nil {
		return s, fmt.Errorf("wait for the pods: %w", err)
	}
	s.pods = time.Since(began)
	if err := until(ctx, func() (bool, error) { return c.nameAnswers(ctx), nil }); err != nil {
		return s, fmt.Errorf("wait for a peer's name: %w", err)
	}
	s.name = time.Since(began)
	return s, nil
}

// watchStart notes when the API answers and the node is ready, while `ordinal up` is still at work.
func (c *cluster) watchStart(ctx context.Context, began time.Time, s *stages) error {
	if err := until(ctx, func() (bool, error) { return c.connect() && c.get(ctx, "/readyz", nil) == nil, nil }); err != nil {
		return fmt.Errorf("wait for the API: %w", err)
	}
	s.api = time.Since(began)
	if err := until(ctx, func() (bool, error) { return c.nodeReady(ctx, began) }); err != nil {
		return fmt.Errorf("wait for the node: %w", err)
	}
	s.node = time.Since(began)
	return nil
}

// restart stops the cluster and starts it again.
func (c *cluster) restart(ctx context.Context, w workload) (stages, error) {
	if err := runQuietly(ctx, c.ordinal, "down", "--data-dir", c.data); err != nil {
		return stages{}, err
	}
	return c.start(ctx, w)
}

// purge removes the cluster, whatever state it is in.
func (c *cluster) purge(ctx context.Context) error {
	if _, err := os.Stat(c.data); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return runQuietly(ctx, c.ordinal, "down", "--purge", "--yes", "--data-dir", c.data)
}

func (c *cluster) kubectl(ctx context.Context, args ...string) error {
	return runQuietly(ctx, c.ordinal, append([]string{"--data-dir", c.data, "kubectl"}, args...)...)
}

func (c *cluster) give(ctx context.Context, w workload) error {
	if len(w.images) > 0 {
		if err := runQuietly(ctx, c.ordinal, append([]string{"image", "import"}, w.images...)...); err != nil {
			return err
		}
	}
	if w.manifest == "" {
		return nil
	}
	return c.kubectl(ctx, "apply", "--filename", w.manifest)
}

// deleteSet deletes the set with its pods and claims, so that the next apply makes them anew.
func (c *cluster) deleteSet(ctx context.Context, manifest string) error {
	if err := c.kubectl(ctx, "delete", "--filename", manifest); err != nil {
		return err
	}
	return c.kubectl(ctx, "delete", "persistentvolumeclaims", "--selector", "app=visits")
}

// connect makes a client from the kubeconfig, and a new one when a start has written that anew.
func (c *cluster) connect() bool {
	file := filepath.Join(c.data, "kubeconfig")
	info, err := os.Stat(file)
	if err != nil {
		return false
	}
	if info.ModTime().Equal(c.written) {
		return true
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return false
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false
	}
	c.client, c.server, c.written = client, config.Host, info.ModTime()
	return true
}

// get asks the API server and decodes the answer.
func (c *cluster) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// nodeReady does not believe a heartbeat that an earlier start has left behind.
func (c *cluster) nodeReady(ctx context.Context, began time.Time) (bool, error) {
	var nodes corev1.NodeList
	if err := c.get(ctx, "/api/v1/nodes", &nodes); err != nil {
		return false, nil //nolint:nilerr // It answers soon.
	}
	for _, n := range nodes.Items {
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return !condition.LastHeartbeatTime.Time.Before(began.Truncate(time.Second)), nil
			}
		}
	}
	return false, nil
}

// podsReady says whether all pods of the set are ready, in containers that this start has started, and their claims bound.
func (c *cluster) podsReady(ctx context.Context, began time.Time) (bool, error) {
	var set appsv1.StatefulSet
	if err := c.get(ctx, "/apis/apps/v1/namespaces/default/statefulsets/visits", &set); err != nil {
		return false, nil //nolint:nilerr // It answers soon.
	}
	var pods corev1.PodList
	var claims corev1.PersistentVolumeClaimList
	if err := errors.Join(c.get(ctx, "/api/v1/namespaces/default/pods?labelSelector=app%3Dvisits", &pods),
		c.get(ctx, "/api/v1/namespaces/default/persistentvolumeclaims?labelSelector=app%3Dvisits", &claims)); err != nil {
		return false, err
	}
	ready := 0
	for _, p := range pods.Items {
		if readySince(&p, began.Truncate(time.Second)) {
			ready++
		}
	}
	bound := 0
	for _, claim := range claims.Items {
		if claim.Status.Phase == corev1.ClaimBound {
			bound++
		}
	}
	want := int(*set.Spec.Replicas)
	return ready == want && bound >= want, nil
}

func readySince(p *corev1.Pod, began time.Time) bool {
	return isReady(p) && p.DeletionTimestamp == nil && !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running == nil || s.State.Running.StartedAt.Time.Before(began)
	})
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// nameAnswers asks for one pod's name from inside another.
func (c *cluster) nameAnswers(ctx context.Context) bool {
	return c.kubectl(ctx, "exec", "visits-0", "--", "/visits", "lookup", "visits-1.visits") == nil
}

// until asks again and again until the answer is yes.
func until(ctx context.Context, condition func() (bool, error)) error {
	for {
		if done, err := condition(); done || err != nil {
			return err
		}
		if err := rig.Pause(ctx, poll); err != nil {
			return err
		}
	}
}

// components are the process IDs that `ordinal status` names, and that of the supervisor.
func (c *cluster) components(ctx context.Context) (map[int]string, error) {
	out, err := exec.CommandContext(ctx, c.ordinal, "status", "--output", "json", "--data-dir", c.data).Output()
	if err != nil {
		return nil, fmt.Errorf("ordinal status: %w", err)
	}
	var status struct {
		PID        int `json:"pid"`
		Components []struct {
			Name string `json:"name"`
			PID  int    `json:"pid"`
		} `json:"components"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return nil, fmt.Errorf("decode status: %w", err)
	}
	names := map[int]string{status.PID: "supervisor"}
	for _, component := range status.Components {
		names[component.PID] = component.Name
	}
	return names, nil
}

// idle waits for things to settle, then measures what each part uses over some time.
func (c *cluster) idle(ctx context.Context, settle, idle time.Duration) ([]part, time.Duration, error) {
	if err := rig.Pause(ctx, settle); err != nil {
		return nil, 0, err
	}
	names, err := c.components(ctx)
	if err != nil {
		return nil, 0, err
	}
	before, err := processes(os.DirFS("/proc"))
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	if err := rig.Pause(ctx, idle); err != nil {
		return nil, 0, err
	}
	after, err := processes(os.DirFS("/proc"))
	if err != nil {
		return nil, 0, err
	}
	return parts(names, before, after), time.Since(began), nil
}
