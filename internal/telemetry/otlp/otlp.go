// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package otlp sends traces to a collector by OTLP over HTTP. It sets up OpenTelemetry's own SDK, and does by itself only what would
// bring gRPC into the binary: the sending.
package otlp

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
	"github.com/ordinal-dev/ordinal/internal/version"
)

const (
	// flushTime is how long the sending of what is left may take at the end.
	flushTime = 5 * time.Second
	// quiet is for how long an error is not told again.
	quiet = time.Minute
)

// Traces are what a process traces and sends. A nil one traces nothing.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// Start begins to send traces to a collector, whose address is a URL, or, if that is empty, what the variables of OpenTelemetry
// say. It gives nil if neither does.
func Start(ctx context.Context, endpoint string) (*Traces, error) {
	target, err := targetOf(endpoint)
	if target == "" || err != nil {
		return nil, err
	}
	sender, err := newSender(target)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, sender)
	if err != nil {
		return nil, fmt.Errorf("start traces: %w", err)
	}
	// What the environment says of this process wins.
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", telemetry.Manager), attribute.String("service.version", version.Get())),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this process for traces: %w", err)
	}
	otel.SetErrorHandler(&complaints{tell: func(err error) { klog.FromContext(ctx).Error(err, "Traces are lost", "endpoint", target) }})
	klog.FromContext(ctx).Info("Sending traces", "endpoint", target)
	return &Traces{provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))}, nil
}

// Tracer traces the controller.
func (t *Traces) Tracer() *telemetry.Tracer {
	if t == nil {
		return nil
	}
	return telemetry.NewTracer(t.provider.Tracer("github.com/ordinal-dev/ordinal"))
}

// Stop sends what is left, for a few seconds at most.
func (t *Traces) Stop(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The last traces are lost")
	}
}

// targetOf is the URL to which traces are sent; empty if they are not.
func targetOf(endpoint string) (string, error) {
	if endpoint == "" {
		if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
			return "", nil
		}
		if exact := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); exact != "" {
			return exact, nil
		}
		endpoint = os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	if endpoint == "" {
		return "", nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("read endpoint of traces: %w", err)
	}
	return u.JoinPath("v1/traces").String(), nil
}

// variable is what the environment says of the exporter, of its traces rather than of all that it exports.
func variable(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// headersOf reads a list of names and values, such as "a=1,b=2".
func headersOf(list string) (map[string]string, error) {
	headers := map[string]string{}
	for item := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, value, ok := strings.Cut(item, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, fmt.Errorf("read headers of traces: %q is no name=value", item)
		}
		headers[strings.TrimSpace(name)] = value
	}
	return headers, nil
}

// complaints tell of errors, but not again and again.
type complaints struct {
	tell func(error)

	mu   sync.Mutex
	last time.Time
}

// Handle is told of an error.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last) > quiet {
		c.last = time.Now()
		c.tell(err)
	}
}
