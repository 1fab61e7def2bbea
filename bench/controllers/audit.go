// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
)

// auditPolicy makes the API server write down the requests of the contenders, and nobody else's.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + incumbent + `", "` + ours + `"]
- level: None
`

// Stages of a request, as the API server names them.
const (
	stageStarted  = "ResponseStarted"
	stageComplete = "ResponseComplete"
)

// request is what is written down of one.
type request struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// Received is when the API server got it.
	Received time.Time `json:"requestReceivedTimestamp"`
	// Answered is when it had answered, or in a watch when it began to.
	Answered time.Time `json:"stageTimestamp"`
}

// resource names what a request is about.
func (r request) resource() string {
	if r.Object.Subresource != "" {
		return r.Object.Resource + "/" + r.Object.Subresource
	}
	return cmp.Or(r.Object.Resource, "other")
}

// isWrite tells if a request changes an object. Events are counted by themselves.
func (r request) isWrite() bool {
	switch r.Verb {
	case "get", "list", "watch":
		return false
	default:
		return !r.isEvent()
	}
}

func (r request) isEvent() bool { return r.Object.Resource == "events" }

// took tells if a write was carried out.
func (r request) took() bool { return r.isWrite() && r.Response.Code < http.StatusBadRequest }

// inFlight is how many requests the API server worked on between two moments, on the average. Watches do
// not count.
func inFlight(requests []request, began, end time.Time) float64 {
	var served time.Duration
	for _, q := range requests {
		if from, to := q.Received, q.Answered; q.Verb != "watch" && from.Before(end) && to.After(began) {
			served += slices.MinFunc([]time.Time{to, end}, time.Time.Compare).Sub(slices.MaxFunc([]time.Time{from, began}, time.Time.Compare))
		}
	}
	return served.Seconds() / end.Sub(began).Seconds()
}

// auditLog is what the API server writes down, while it does.
type auditLog struct {
	path string
	// read is how many bytes have been taken.
	read int64
}

// size is how long the log is. It stays the same while no contender asks for anything.
func (a *auditLog) size() (int64, error) {
	info, err := os.Stat(a.path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// take gives the requests that have come since it was called last.
func (a *auditLog) take() ([]request, error) {
	file, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.NewSectionReader(file, a.read, 1<<40))
	if err != nil {
		return nil, err
	}
	whole := bytes.LastIndexByte(content, '\n') + 1
	a.read += int64(whole)
	return parseRequests(content[:whole])
}

// parseRequests leaves out what has a second line: a watch is counted when it begins, all else when it ends.
func parseRequests(lines []byte) ([]request, error) {
	var all []request
	for line := range bytes.Lines(lines) {
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		counts := stageComplete
		if r.Verb == "watch" {
			counts = stageStarted
		}
		if r.Stage == counts {
			all = append(all, r)
		}
	}
	return all, nil
}
