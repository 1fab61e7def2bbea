// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// requestTime is how long a collector may take to answer, unless the environment says otherwise.
	requestTime = 10 * time.Second
	// maxAnswer is as much of an answer as is told.
	maxAnswer = 1 << 10
)

// sender sends spans to a collector.
type sender struct {
	target  string
	headers map[string]string
	client  *http.Client
}

func newSender(target string) (*sender, error) {
	s := &sender{target: target, client: &http.Client{Timeout: requestTime}}
	if text := variable("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_TIMEOUT: %w", err)
		}
		s.client.Timeout = time.Duration(ms) * time.Millisecond
	}
	var err error
	if s.headers, err = headersOf(variable("HEADERS")); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = tlsConfig(); err != nil {
		return nil, err
	}
	s.client.Transport = transport
	return s, nil
}

// tlsConfig is with whom a connection to the collector is secure; nil for the system's authorities.
func tlsConfig() (*tls.Config, error) {
	authority, cert, key := variable("CERTIFICATE"), variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY")
	if authority == "" && cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s holds no certificate", authority)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Start is part of otlptrace.Client.
func (s *sender) Start(context.Context) error { return nil }

// Stop is part of otlptrace.Client.
func (s *sender) Stop(context.Context) error {
	s.client.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans, and tries again as long as ctx allows while the collector says that it may take them later.
func (s *sender) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// On the wire, that is the same as a request of the collector's service, whose Go type brings gRPC with it.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode traces: %w", err)
	}
	pause := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 8 * time.Second}
	var last error
	err = wait.ExponentialBackoffWithContext(ctx, pause, func(ctx context.Context) (bool, error) {
		var again bool
		again, last = s.post(ctx, body)
		return !again, nil
	})
	if last == nil {
		return err
	}
	return last
}

// post sends spans once, and tells if it may be tried again.
func (s *sender) post(ctx context.Context, body []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	for name, value := range s.headers {
		r.Header.Set(name, value)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return true, err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return true, fmt.Errorf("read answer of collector: %w", err)
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, fmt.Errorf("the collector answers %s: %q", answer.Status, text)
}
