// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

// simulatedLabel marks the nodes that this package has made.
const simulatedLabel = "ordinal.dev/simulated"

// A node's lease is renewed well within the time after which Kubernetes takes the node for lost.
const (
	leaseSeconds = 80
	renewal      = 20 * time.Second
)

// Name is the i-th node's name.
func Name(i int) string { return fmt.Sprintf("node-%d", i) }

// ensure makes the named nodes, and removes those that an earlier start had more.
func ensure(ctx context.Context, client kubernetes.Interface, names []string, capacity corev1.ResourceList) error {
	for _, name := range names {
		if err := ensureNode(ctx, client, newNode(name, capacity, metav1.Now())); err != nil {
			return fmt.Errorf("make node %s: %w", name, err)
		}
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: simulatedLabel})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range list.Items {
		name := list.Items[i].Name
		if slices.Contains(names, name) {
			continue
		}
		if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove node %s: %w", name, err)
		}
	}
	return nil
}

// ensureNode makes a node, or gives one that is there its capacity and the state of one that works. Labels and taints that a user
// has given it stay.
func ensureNode(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": node.Status})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// newNode is a node that works. It has no address, so that nobody takes something else on this host for its kubelet.
func newNode(name string, capacity corev1.ResourceList, now metav1.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH, simulatedLabel: "true",
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, now),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, now),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, now),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, now),
			},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: runtime.GOARCH, OperatingSystem: "linux", OSImage: "simulated", KernelVersion: "simulated",
				ContainerRuntimeVersion: "simulated://", KubeletVersion: version.Get().GitVersion,
			},
		},
	}
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, now metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: kind, Status: status, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason: "Simulated", Message: "this node exists in the API only",
	}
}

// heartbeat keeps a node alive until ctx is done.
func heartbeat(ctx context.Context, client kubernetes.Interface, node string) {
	lease.NewController(clock.RealClock{}, client, node, leaseSeconds, nil, renewal, node, corev1.NamespaceNodeLease, nil).Run(ctx)
}
