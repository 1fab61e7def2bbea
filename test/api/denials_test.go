// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/ordinal-dev/ordinal/internal/controller"
)

// denials are the requests for which the controller lacked rights. Quotas and terminating namespaces refuse with the same
// code and are none.
type denials struct {
	mu   sync.Mutex
	list []string
}

func (d *denials) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, text := range d.list {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

func (d *denials) add(r *http.Request, body []byte) {
	if !bytes.Contains(body, []byte(controller.User)) && !bytes.Contains(body, []byte("cannot set")) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.list) < 10 {
		d.list = append(d.list, fmt.Sprintf("the controller lacks a right: %s %s: %q", r.Method, r.URL.Path, body))
	}
}

// denialTransport looks for denials among the answers.
type denialTransport struct {
	next    http.RoundTripper
	denials *denials
}

// RoundTrip passes a request on.
func (t denialTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusForbidden {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	t.denials.add(r, body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
