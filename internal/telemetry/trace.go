// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Names of spans. A sync is the root of a trace, with what it looks at, decides, does and writes of it below.
const (
	// SpanSync is one sync of a set.
	SpanSync = "sync"
	// SpanObserve is the reading of the caches.
	SpanObserve = "observe"
	// SpanPlan is the decision.
	SpanPlan = "plan"
	// SpanApply is all writes of a plan, each of which is a span below it by the kind of its action.
	SpanApply = "apply"
	// SpanStatus is the writing of the statuses of the set and of its policies.
	SpanStatus = "status"
)

// Attributes of spans.
const (
	// AttrNamespace and AttrName name the set of a sync.
	AttrNamespace = "k8s.namespace.name"
	AttrName      = "k8s.statefulset.name"
	// AttrResult is how a sync or an action ended, in the words of the metrics.
	AttrResult = "ordinal.result"
	// AttrAction and AttrReason are what an action does to which object, and why.
	AttrAction = "ordinal.action"
	AttrReason = "ordinal.reason"
)

// Tracer traces what a controller does. A nil Tracer traces nothing, and costs nothing.
type Tracer struct {
	spans trace.Tracer
}

// NewTracer makes a tracer whose spans go where those of t go.
func NewTracer(t trace.Tracer) *Tracer {
	return &Tracer{spans: t}
}

// Start begins a span below the one of ctx. It has to be ended.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.spans.Start(ctx, name)
	return ctx, Span{s}
}

// Span is a piece of work that takes time. The zero value is that of work that is not traced.
type Span struct {
	span trace.Span
}

// IsOn tells if the span is kept, so that it is worth to say more of it.
func (s Span) IsOn() bool {
	return s.span != nil && s.span.IsRecording()
}

// Set adds an attribute.
func (s Span) Set(key, value string) {
	if s.IsOn() {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// End ends the span. With an error, it has failed.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}
