// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Without a tracer nothing is traced, and nothing is allocated for it.
func TestNoTracerCostsNothing(t *testing.T) {
	var tracer *Tracer
	ctx := t.Context()
	broken := errors.New("broken")
	n := testing.AllocsPerRun(100, func() {
		below, span := tracer.Start(ctx, SpanSync)
		span.Set(AttrNamespace, "default")
		span.End(broken)
		if below != ctx || span.IsOn() {
			t.Error("something is traced")
		}
	})
	if n != 0 {
		t.Errorf("%g things are allocated", n)
	}
}

func TestTracer(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test"))
	ctx, outer := tracer.Start(t.Context(), SpanSync)
	outer.Set(AttrName, "web")
	_, inner := tracer.Start(ctx, SpanPlan)
	if !inner.IsOn() {
		t.Error("nothing is kept")
	}
	inner.End(errors.New("broken"))
	outer.End(nil)
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans have ended", len(ended))
	}
	plan, sync := ended[0], ended[1]
	if plan.Name() != SpanPlan || plan.Parent().SpanID() != sync.SpanContext().SpanID() || plan.Status().Code != codes.Error ||
		plan.Status().Description != "broken" || sync.Status().Code == codes.Error {
		t.Errorf("the spans are %v and %v", plan, sync)
	}
	if a := sync.Attributes(); len(a) != 1 || string(a[0].Key) != AttrName || a[0].Value.AsString() != "web" {
		t.Errorf("the attributes are %v", a)
	}
	// What is not sampled is not kept.
	never := NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test"))
	if _, span := never.Start(context.WithoutCancel(ctx), SpanSync); span.IsOn() {
		t.Error("what is not sampled is kept")
	}
}
