// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// After an outage, however long, what is watched is known again within seconds; and while it lasts, the API server is not beset.
func TestWatchesComeBackSoon(t *testing.T) {
	for name, down := range map[string]func() (*http.Response, error){
		"no answer":   func() (*http.Response, error) { return nil, errors.New("connection refused") },
		"unavailable": func() (*http.Response, error) { return answered(http.StatusServiceUnavailable), nil },
		"overloaded":  func() (*http.Response, error) { return answered(http.StatusTooManyRequests), nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const outage = 10 * time.Minute
				back, asked := time.Now().Add(outage), 0
				client := steady(roundTripper(func(*http.Request) (*http.Response, error) {
					if asked++; time.Now().Before(back) {
						return down()
					}
					return answered(http.StatusOK), nil
				}))
				if status, err := send(t.Context(), t, client, http.MethodGet, "/api/v1/pods?watch=true"); err != nil || status != http.StatusOK {
					t.Fatalf("answer is %d, %v", status, err)
				}
				if late := time.Since(back); late > 4*time.Second {
					t.Errorf("it is noticed %v late that the API server is back", late)
				}
				if most := int(outage/time.Second) + 10; asked > most {
					t.Errorf("asked %d times within %v", asked, outage)
				}
			})
		})
	}
}

// Who waits for something else is told what the API server says.
func TestOnlyOutagesAreWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		method, path string
		status       int
	}{
		"a write":                               {http.MethodPut, "/api/v1/namespaces/default/pods/web-0?x=y", http.StatusServiceUnavailable},
		"a single object":                       {http.MethodGet, "/apis/apps/v1/namespaces/default/statefulsets/web", http.StatusServiceUnavailable},
		"a resource version that never was":     {http.MethodGet, "/api/v1/pods?watch=true", http.StatusGatewayTimeout},
		"a resource version that is too old":    {http.MethodGet, "/api/v1/pods?watch=true", http.StatusGone},
		"a right that is missing":               {http.MethodGet, "/api/v1/pods?limit=500", http.StatusForbidden},
		"a kind that is not served":             {http.MethodGet, "/apis/ordinal.dev/v1alpha1/statefulsetpolicies?limit=500", http.StatusNotFound},
		"an answer that is as it should always": {http.MethodGet, "/api/v1/pods?limit=500", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			client := steady(roundTripper(func(*http.Request) (*http.Response, error) {
				asked++
				return answered(test.status), nil
			}))
			status, err := send(t.Context(), t, client, test.method, test.path)
			if err != nil || status != test.status || asked != 1 {
				t.Errorf("answer is %d, %v after %d requests", status, err, asked)
			}
		})
	}
}

// To be told to stop ends the wait.
func TestOutageIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		client := steady(roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") }))
		began := time.Now()
		if _, err := send(ctx, t, client, http.MethodGet, "/api/v1/pods?watch=true"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func answered(status int) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: http.NoBody, Header: http.Header{}}
}

// send asks for something, and gives the status of the answer.
func send(ctx context.Context, t *testing.T, client http.RoundTripper, method, path string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
