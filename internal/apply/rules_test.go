// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// Batches double up to 500: after those of 1 to 256 come 500, and not 512.
func TestBatchesAreBounded(t *testing.T) {
	const failing = 511
	var chains []plan.Chain
	for n := range 1200 {
		chains = append(chains, plan.Chain{plan.DeletePod{Pod: ref(plan.KindPod, fmt.Sprint("web-", n))}})
	}
	s := newServer(t, func(a clienttesting.Action) error {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok && d.Name == fmt.Sprint("web-", failing) {
			return errors.New("no")
		}
		return apierrors.NewNotFound(corev1.Resource("pods"), "gone")
	})
	s.Recorder = &record.FakeRecorder{}
	outcomes := s.Apply(t.Context(), set, plan.Plan{Steps: []plan.Step{{Mode: plan.SlowStart, Chains: chains}}})
	if len(outcomes) != failing+maxBatch {
		t.Errorf("%d chains are tried, want %d", len(outcomes), failing+maxBatch)
	}
}

// A write that has begun is finished when the controller is told to stop, but it does not take for ever.
func TestWritesAreNotCutShort(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	ctx, cancel := call(stopped)
	defer cancel()
	if ctx.Err() != nil {
		t.Errorf("the write ends with %v", ctx.Err())
	}
	if at, ok := ctx.Deadline(); !ok || time.Until(at) > callTimeout {
		t.Errorf("the write ends at %v (%t)", at, ok)
	}
}
