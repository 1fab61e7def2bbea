// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodes simulates nodes: machines that exist in the API only, with pods that become ready, fail or wait as they are told.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options are what a user may choose about the simulated nodes.
type Options struct {
	// Count is how many nodes there are.
	Count int
	// Capacity is what each node has.
	Capacity corev1.ResourceList
	// PodDelay is how long a pod takes to become ready, or to fail, once it has a node.
	PodDelay time.Duration
	// Ready, if set, is called once, when the nodes are there and their pods are looked after.
	Ready func()
}

// DefaultCapacity is what a node has of what the user does not name.
const DefaultCapacity = "cpu=64,memory=256Gi,ephemeral-storage=1Ti,pods=1000"

// ParseCapacity reads resources as RESOURCE=QUANTITY, with commas between them. What it does not name is as in DefaultCapacity.
func ParseCapacity(text string) (corev1.ResourceList, error) {
	capacity := corev1.ResourceList{}
	for part := range strings.SplitSeq(DefaultCapacity+","+text, ",") {
		if part == "" {
			continue
		}
		name, amount, _ := strings.Cut(part, "=")
		quantity, err := resource.ParseQuantity(amount)
		if err != nil || name == "" || quantity.Sign() < 0 {
			return nil, fmt.Errorf("%q is no capacity; give it as cpu=4,memory=8Gi,pods=110", part)
		}
		capacity[corev1.ResourceName(name)] = quantity
	}
	return capacity, nil
}

// Rules are the rights that Run needs.
func Rules() []rbacv1.PolicyRule {
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	return []rbacv1.PolicyRule{
		rule("", "nodes", "get", "list", "create", "delete"),
		rule("", "nodes/status", "patch"),
		rule("", "pods", "get", "list", "watch", "delete"),
		rule("", "pods/status", "patch"),
		rule("", "events", "create", "patch"),
		rule("coordination.k8s.io", "leases", "get", "create", "update"),
	}
}

// Run makes the nodes and looks after them and their pods until ctx is done.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	if o.Count < 1 {
		return errors.New("there has to be a node")
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "ordinal-nodes"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// As many kubelets as there are nodes would not wait for each other either.
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make API client: %w", err)
	}
	names := make([]string, o.Count)
	for i := range names {
		names[i] = Name(i)
	}
	if err := ensure(ctx, client, names, o.Capacity); err != nil {
		return err
	}
	pods, err := newPods(ctx, client, names, o.PodDelay)
	if err != nil {
		return err
	}
	var loops sync.WaitGroup
	defer loops.Wait()
	for _, name := range names {
		loops.Go(func() { heartbeat(ctx, client, name) })
	}
	return pods.run(ctx, o.Ready)
}
