// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

func metricsPage(source) (string, error) {
	rows, err := metrics()
	if err != nil {
		return "", err
	}
	p := newPage("Metrics", "internal/telemetry")
	p.paragraphs("What `ordinal-controller --metrics-bind-address` serves at `/metrics`, beside the metrics of the Go runtime and the process. What the " +
		"values of the labels mean, and which questions these metrics answer, is in [docs/metrics.md](../metrics.md).")
	p.table([]string{"name", "type", "labels", "meaning"}, rows)
	return p.String(), nil
}

// metrics gives a row for each metric, by the name. A metric that shows no series is an error.
func metrics() ([][]string, error) {
	m := telemetry.Example()
	families, err := m.Registry().Gather()
	if err != nil {
		return nil, err
	}
	missing := described(m.Registry())
	var rows [][]string
	for _, f := range families {
		var labels []string
		for _, label := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, code(label.GetName()))
		}
		kind := strings.ToLower(f.GetType().String())
		rows = append(rows, []string{code(f.GetName()), kind, strings.Join(labels, ", "), f.GetHelp()})
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == f.GetName() })
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the example has no series of %v", missing)
	}
	return rows, nil
}

// described are the names of all metrics of a registry.
func described(r *prometheus.Registry) []string {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		r.Describe(descs)
	}()
	// A description gives its name in no other way.
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	var names []string
	for d := range descs {
		if found := name.FindStringSubmatch(d.String()); found != nil {
			names = append(names, found[1])
		}
	}
	return names
}
