// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// A sync is one trace, which tells what was done, why, and what became of it.
func TestTraceOfASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		spans := tracetest.NewSpanRecorder()
		tracer := telemetry.NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test"))
		stop := c.run(Options{Tracer: tracer})
		c.create(setsResource, newSet())
		settle()
		stop()
		names := map[string]string{}
		for _, s := range spans.Ended() {
			names[s.SpanContext().SpanID().String()] = s.Name()
		}
		// The first trace: what is below what.
		var got, attributes []string
		first := spans.Ended()[0].SpanContext().TraceID()
		for _, s := range spans.Ended() {
			if s.SpanContext().TraceID() != first {
				continue
			}
			got = append(got, strings.TrimPrefix(names[s.Parent().SpanID().String()]+"/"+s.Name(), "/"))
			for _, a := range s.Attributes() {
				attributes = append(attributes, string(a.Key)+"="+a.Value.AsString())
			}
		}
		want := []string{"sync/observe", "sync/plan", "apply/CreateRevision", "apply/CreateClaim", "apply/CreatePod", "sync/apply", "sync/status", "sync"}
		if !slices.Equal(got, want) {
			t.Errorf("the spans are %q, want %q", got, want)
		}
		for _, want := range []string{
			"k8s.namespace.name=default", "k8s.statefulset.name=web", "ordinal.result=done", "ordinal.result=Done", "ordinal.reason=NoPod",
		} {
			if !slices.Contains(attributes, want) {
				t.Errorf("no span has %s: %q", want, attributes)
			}
		}
	})
}
