// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ordinal-dev/ordinal/bench/rig"
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// The contenders, by their names in the tables.
const (
	incumbent = "kube-controller-manager"
	ours      = "Ordinal"
)

const (
	// controllerComponent is the name of Ordinal's controller among the cluster's components.
	controllerComponent = "controller"
	// pauseImage is in every cluster. It has no readiness probe, so a pod is ready as soon as the kubelet knows that it runs.
	pauseImage = "ordinal.dev/pause:1"
	// warmUp is the set by which a contender shows that it works. After calm, the work of its start is done.
	warmUp = "warm-up"
	calm   = 2 * time.Second
	// setLabel is the label by which the pods of a set are selected.
	setLabel = "set"
)

// shape is how many sets come up at the same time, and how large they are.
type shape struct {
	Sets     int `json:"sets"`
	Replicas int `json:"replicas"`
}

// shapes are those that are measured: one set by itself, and several that have to share the machine.
func shapes() []shape { return []shape{{Sets: 1, Replicas: 10}, {Sets: 5, Replicas: 4}} }

func (s shape) pods() int { return s.Sets * s.Replicas }

// contest is both contenders in one cluster, whose own controller is frozen. Each works in its turn, as a fresh process: one that was
// frozen would find that another has written what is its own, and hold back.
type contest struct {
	client     kubernetes.Interface
	contenders map[string]supervise.Process
	turns      []turn
}

// measureLatency starts a cluster, freezes its controller, and lets the contenders bring up sets in order, in turn.
func measureLatency(ctx context.Context, c *cluster, o options) (turns []turn, err error) {
	rig.Progress("start of the cluster")
	if err := runQuietly(ctx, c.ordinal, "up", "--detach", "--data-dir", c.data); err != nil {
		return nil, err
	}
	kubeconfig, dir := filepath.Join(c.data, "kubeconfig"), filepath.Dir(c.data)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pid, err := controllerOf(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := freeze(ctx, pid); err != nil {
		return nil, fmt.Errorf("freeze the cluster's controller: %w", err)
	}
	defer func() { err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)) }()
	contest := &contest{client: client, contenders: map[string]supervise.Process{
		ours:      oursProcess(filepath.Join(filepath.Dir(c.ordinal), layout.Controller), kubeconfig, dir),
		incumbent: incumbentProcess(o.incumbent, kubeconfig, dir),
	}}
	err = contest.rounds(ctx, o.rounds)
	return contest.turns, err
}

// controllerOf is the process of a cluster's own controller.
func controllerOf(ctx context.Context, c *cluster) (int, error) {
	components, err := c.components(ctx)
	if err != nil {
		return 0, err
	}
	for pid, name := range components {
		if name == controllerComponent {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("the cluster has no component %s", controllerComponent)
}

// oursProcess is Ordinal's controller with its default limits of requests, and as many workers as the other.
func oursProcess(binary, kubeconfig, dir string) supervise.Process {
	return contender(ours, binary, filepath.Join(dir, "ordinal.log"), "--kubeconfig="+kubeconfig, "--leader-elect=false", "--workers=5")
}

// incumbentProcess is kube-controller-manager with its StatefulSet controller alone, and with the limits that Ordinal has by default.
func incumbentProcess(binary, kubeconfig, dir string) supervise.Process {
	return contender(incumbent, binary, filepath.Join(dir, "incumbent.log"),
		"--controllers=statefulset-controller", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--concurrent-statefulset-syncs=5", "--kube-api-qps=200", "--kube-api-burst=400")
}

func contender(name, binary, log string, args ...string) supervise.Process {
	return supervise.Process{
		Name: name, Path: binary, Log: &rig.LogFile{Path: log}, LogFile: log, Grace: 10 * time.Second, Args: args,
		// That it works is shown by its first set.
		Ready: func(context.Context) error { return nil },
	}
}

// rounds gives each shape to both contenders. Who is first changes from round to round.
func (c *contest) rounds(ctx context.Context, rounds int) error {
	order := []string{incumbent, ours}
	for round := 1; round <= rounds; round++ {
		for _, s := range shapes() {
			for _, who := range order {
				rig.Progress("round %d of %d: %d × %d, %s", round, rounds, s.Sets, s.Replicas, who)
				if err := c.turn(ctx, s, who, round); err != nil {
					return fmt.Errorf("round %d, %s: %w", round, who, err)
				}
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// turn lets one contender bring up sets in a namespace of their own.
func (c *contest) turn(ctx context.Context, s shape, who string, round int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	supervisor := supervise.New(nil)
	if err := supervisor.Start(ctx, c.contenders[who]); err != nil {
		return fmt.Errorf("start %s: %w", c.contenders[who].Path, err)
	}
	defer supervisor.Stop(who)
	namespace := fmt.Sprintf("latency-%d-%dx%d-%s", round, s.Sets, s.Replicas, map[string]string{ours: "ordinal", incumbent: "incumbent"}[who])
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.remove(ctx, namespace)) }()
	if _, err := c.bringUp(ctx, namespace, shape{Sets: 1, Replicas: 1}, warmUp); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	if err := rig.Pause(ctx, calm); err != nil {
		return err
	}
	began := time.Now()
	seen, err := c.bringUp(ctx, namespace, s, "db")
	if err != nil {
		return err
	}
	if err := c.checkWriter(ctx, namespace, who); err != nil {
		return err
	}
	t := turnOf(s, seen, "db")
	t.Contender, t.Round, t.Seconds = who, round, seen.last().Sub(began).Seconds()
	c.turns = append(c.turns, t)
	rig.Progress("  all ready after %.2f s", t.Seconds)
	return nil
}

// freeze returns when a process has stopped: on a busy machine that takes a moment in which it works on.
func freeze(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		return strings.HasPrefix(state, "T"), err
	})
}

// bringUp makes sets, and gives what a watch showed of their pods until all of them were ready.
func (c *contest) bringUp(ctx context.Context, namespace string, s shape, name string) (sightings, error) {
	pods := c.client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	events, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	for n := range s.Sets {
		set := orderedSet(setName(name, n), s.Replicas)
		if _, err := c.client.AppsV1().StatefulSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	seen := sightings{}
	for {
		select {
		case event, open := <-events.ResultChan():
			now := time.Now()
			pod, ok := event.Object.(*corev1.Pod)
			if !open || !ok {
				return nil, fmt.Errorf("watch pods: %w", apierrors.FromObject(event.Object))
			}
			if seen.see(pod, now); seen.ready() == s.pods() {
				return seen, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d pods are ready: %w", seen.ready(), s.pods(), ctx.Err())
		}
	}
}

// checkWriter makes sure that all pods were made by the contender whose turn it is.
func (c *contest) checkWriter(ctx context.Context, namespace, who string) error {
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// client-go introduces a program to the API server by the name of its file.
	writer := filepath.Base(c.contenders[who].Path)
	for _, p := range pods.Items {
		if !slices.ContainsFunc(p.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == writer && f.Subresource == "" }) {
			return fmt.Errorf("pod %s was not made by %s, whose turn it is", p.Name, writer)
		}
	}
	return nil
}

// remove deletes a namespace and waits until it is gone, so that nothing of it is there in the next turn.
func (c *contest) remove(ctx context.Context, namespace string) error {
	if err := c.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err := until(ctx, func() (bool, error) {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait until namespace %s is gone: %w", namespace, err)
	}
	return nil
}

func setName(name string, n int) string { return fmt.Sprintf("%s-%d", name, n) }

func orderedSet(name string, replicas int) *appsv1.StatefulSet {
	labels := map[string]string{setLabel: name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(replicas)), ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(5)),
					Containers:                    []corev1.Container{{Name: "main", Image: pauseImage, ImagePullPolicy: corev1.PullNever}},
				},
			},
		},
	}
}

// sighting is when a watch showed first that a pod was there, and that it was ready.
type sighting struct{ made, ready time.Time }

// sightings are those of all pods, by name.
type sightings map[string]sighting

func (s sightings) see(p *corev1.Pod, now time.Time) {
	seen, found := s[p.Name]
	if !found {
		seen.made = now
	}
	if seen.ready.IsZero() && isReady(p) {
		seen.ready = now
	}
	s[p.Name] = seen
}

// ready is how many pods are.
func (s sightings) ready() int {
	n := 0
	for _, seen := range s {
		if !seen.ready.IsZero() {
			n++
		}
	}
	return n
}

// last is when the last pod became ready.
func (s sightings) last() time.Time {
	var last time.Time
	for _, seen := range s {
		if seen.ready.After(last) {
			last = seen.ready
		}
	}
	return last
}

// runLatency measures latency and tells of it.
func runLatency(ctx context.Context, c *cluster, o options) error {
	r := &latencyReport{Machine: rig.Machine(), Load: rig.LoadAverage(), Rounds: o.rounds}
	// What was measured until it failed is told all the same.
	var err error
	if r.Turns, err = measureLatency(ctx, c, o); len(r.Turns) == 0 {
		return err
	}
	return errors.Join(err, r.writeJSON(o.json), r.print(os.Stdout))
}
