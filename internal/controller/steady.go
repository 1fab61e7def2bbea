// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// steady makes a client that goes on asking for what is listed and watched while the API server does not answer, or says that it
// cannot. client-go by itself would soon wait for up to a minute between two attempts, and be blind for as long after the API server
// is back.
func steady(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		// Of all that is read, lists and watches alone have a query.
		if r.Method != http.MethodGet || r.URL.RawQuery == "" || r.Context().Err() != nil || !isOutage(answer, err) {
			return answer, err
		}
		log := klog.FromContext(r.Context()).WithValues("path", r.URL.Path)
		log.Info("The API server cannot serve this at the moment, and is asked again until it does", "err", err, "status", statusOf(answer))
		pause := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: 2 * time.Second, Steps: 10}
		for isOutage(answer, err) {
			if answer != nil {
				_ = answer.Body.Close()
			}
			select {
			case <-r.Context().Done():
				return nil, context.Cause(r.Context())
			case <-time.After(pause.Step()):
			}
			answer, err = next.RoundTrip(r)
		}
		log.Info("The API server serves this again")
		return answer, err
	})
}

// isOutage tells if to ask again is all that can be done. A gateway's timeout is none: it is also how a resource version is refused
// that the API server has never had, as when its data were brought back from a backup.
func isOutage(answer *http.Response, err error) bool {
	if err != nil {
		return true
	}
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:
		return true
	default:
		return false
	}
}

func statusOf(answer *http.Response) string {
	if answer == nil {
		return ""
	}
	return answer.Status
}
