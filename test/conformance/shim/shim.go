// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shim is our controller behind the names by which Kubernetes' integration suite makes and runs its own.
package shim

import (
	"context"
	"sync"

	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/events"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// StatefulSetController is our controller.
type StatefulSetController struct {
	client kubernetes.Interface
}

// NewStatefulSetController makes a controller that works through client. It has caches of its own, so it does not need the
// informers.
func NewStatefulSetController(
	_ context.Context,
	_ coreinformers.PodInformer,
	_ appsinformers.StatefulSetInformer,
	_ coreinformers.PersistentVolumeClaimInformer,
	_ appsinformers.ControllerRevisionInformer,
	client kubernetes.Interface,
) *StatefulSetController {
	return &StatefulSetController{client: client}
}

// Run works until ctx is done. The update strategy Recreate is allowed: the API server accepts it only where its gate is on.
func (s *StatefulSetController) Run(ctx context.Context, workers int) {
	log := events.New(s.client.CoreV1(), telemetry.Component)
	var writing sync.WaitGroup
	defer writing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writing.Go(func() { log.Run(ctx) })
	c, err := controller.New(s.client, log, controller.Options{
		Workers: workers, Recreate: true, Defaulter: appsdefaults.SetObjectDefaults_StatefulSet,
	})
	if err == nil {
		err = c.Run(ctx)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The controller ended")
	}
}
