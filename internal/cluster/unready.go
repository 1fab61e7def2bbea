// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// correctReadiness takes back what the API still tells of pods that do not run any more, because the cluster was stopped or
// the host went down. Until the kubelet has started them again nobody shall be sent to their old addresses. It must be
// called before anything that acts on readiness starts; pods that kept running are left alone.
func correctReadiness(ctx context.Context, client kubernetes.Interface) error {
	running, err := runningPods(ctx)
	if err != nil {
		return err
	}
	pods, err := podsOfNode(ctx, client)
	if err != nil {
		return err
	}
	var errs []error
	for _, pod := range pods.Items {
		if !isReady(&pod) || running[pod.UID] {
			continue
		}
		patch, err := json.Marshal(unreadyPatch(pod.UID))
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("mark pod %s/%s not ready: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

func podsOfNode(ctx context.Context, client kubernetes.Interface) (*corev1.PodList, error) {
	onNode := fields.OneTermEqualSelector("spec.nodeName", layout.NodeName).String()
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: onNode})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pods, nil
}

// runningPods are the UIDs of the pods that the container runtime still holds.
func runningPods(ctx context.Context) (map[types.UID]bool, error) {
	conn, err := dialRuntime()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	filter := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("list pods of the container runtime: %w", err)
	}
	running := map[types.UID]bool{}
	for _, sandbox := range list.Items {
		running[types.UID(sandbox.Metadata.Uid)] = true
	}
	return running, nil
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// unreadyPatch says that a pod is not ready, if it is still the same pod.
func unreadyPatch(uid types.UID) map[string]any {
	now := metav1.Now()
	condition := func(kind corev1.PodConditionType) map[string]any {
		return map[string]any{
			"type": kind, "status": corev1.ConditionFalse, "lastTransitionTime": now,
			"reason": "NodeStopped", "message": "the cluster was stopped; the pod is being started again",
		}
	}
	return map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status":   map[string]any{"conditions": []any{condition(corev1.PodReady), condition(corev1.ContainersReady)}},
	}
}
