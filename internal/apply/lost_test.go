// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"testing"

	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

// What is cut short because the lease is lost was not refused, so no event says so, and nothing else is begun.
func TestLostLeaseIsNoRefusal(t *testing.T) {
	ctx, lose := context.WithCancelCause(t.Context())
	calls := 0
	s := newServer(t, func(clienttesting.Action) error {
		calls++
		lose(ErrLeaseLost)
		return fmt.Errorf("post: %w", ErrLeaseLost)
	})
	create := func(name string) plan.Action { return plan.CreatePod{Pod: pod(name)} }
	p := plan.Plan{Steps: []plan.Step{
		{Chains: []plan.Chain{{create("web-0"), create("web-1")}, {create("web-2")}}},
		{Chains: []plan.Chain{{create("web-3")}}, Mode: plan.SlowStart, Always: true},
	}}
	outcomes := s.Apply(ctx, set, p)
	if calls != 1 || len(outcomes) != 1 || outcomes[0].Result != plan.ResultFailed {
		t.Errorf("after %d calls the outcomes are %v", calls, outcomes)
	}
	select {
	case e := <-s.events.Events:
		t.Errorf("an event says %q", e)
	default:
	}
}

// That a set gets on is told after each of its writes.
func TestProgress(t *testing.T) {
	s := newServer(t, nil)
	var got []string
	s.Progress = func(k observe.Key) { got = append(got, k.String()) }
	s.Apply(t.Context(), set, one(plan.CreatePod{Pod: pod("web-0")}, plan.CreatePod{Pod: pod("web-0")}, plan.CreatePod{Pod: pod("web-1")}))
	if len(got) != 2 || got[0] != namespace+"/web" {
		t.Errorf("progress is told of %q", got)
	}
}
