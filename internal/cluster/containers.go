// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// graceAnnotation is how the kubelet notes on a container how long its pod may take to end, in seconds.
const graceAnnotation = "io.kubernetes.pod.terminationGracePeriod"

const defaultGrace = 30 * time.Second

// stopPods ends every pod's containers with the grace that the pod asks for, then removes their sandboxes. The pods stay in
// the API: at the next start the kubelet brings them back under the same names, as after a reboot. When ctx ends, what is
// left is killed.
func stopPods(ctx context.Context, report func(left int)) error {
	conn, err := dialRuntime()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods of the container runtime: %w", err)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	left := len(list.Items)
	report(left)
	for _, sandbox := range list.Items {
		wait.Go(func() {
			err := stopPod(ctx, runtime, sandbox)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			left--
			report(left)
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// stopPod ends one pod. Its containers are asked all at once.
func stopPod(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, sandbox *runtimeapi.PodSandbox) error {
	filter := &runtimeapi.ContainerFilter{
		PodSandboxId: sandbox.Id, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	if err != nil {
		return fmt.Errorf("list containers of pod %s: %w", sandbox.Metadata.Name, err)
	}
	var wait sync.WaitGroup
	for _, container := range containers.Containers {
		wait.Go(func() {
			request := &runtimeapi.StopContainerRequest{ContainerId: container.Id, Timeout: int64(grace(container) / time.Second)}
			// A container that cannot be asked is ended with its sandbox.
			_, _ = runtime.StopContainer(ctx, request)
		})
	}
	wait.Wait()
	// Also when the user lost patience, the sandbox has to go: it holds processes, mounts and a network namespace.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if _, err := runtime.StopPodSandbox(last, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
		return fmt.Errorf("stop pod %s: %w", sandbox.Metadata.Name, err)
	}
	if _, err := runtime.RemovePodSandbox(last, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
		return fmt.Errorf("remove pod %s: %w", sandbox.Metadata.Name, err)
	}
	return nil
}

func grace(container *runtimeapi.Container) time.Duration {
	seconds, err := strconv.ParseInt(container.Annotations[graceAnnotation], 10, 32)
	if err != nil || seconds < 0 {
		return defaultGrace
	}
	return time.Duration(seconds) * time.Second
}
