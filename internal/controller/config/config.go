// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the controller's configuration file and checks configurations. It says of each mistake in which line and
// field it is, and of all of them at once.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
)

// Formats of the log.
const (
	// FormatText is that of Kubernetes' own components.
	FormatText = "text"
	// FormatJSON is one JSON object in each line.
	FormatJSON = "json"
)

// Default is the configuration of a controller that is told nothing.
func Default() v1alpha1.ControllerConfiguration {
	return v1alpha1.ControllerConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.Kind},
		Workers:          20,
		ClientConnection: v1alpha1.ClientConnection{QPS: 200, Burst: 400},
		LeaderElection: v1alpha1.LeaderElection{
			LeaderElect:       true,
			ResourceNamespace: metav1.NamespaceSystem,
			ResourceName:      "ordinal-controller",
			LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
			RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
			RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
		},
		Logging: v1alpha1.Logging{Format: FormatText},
	}
}

// Problem is a mistake in a field, which is named by its path, such as leaderElection.retryPeriod or namespaces[1].
type Problem struct {
	Field string
	// Text goes on after the field's name, such as "must be at least 1, not 0".
	Text string
}

// File is a configuration file that could be read, though not all in it need make sense: see Refuse.
type File struct {
	v1alpha1.ControllerConfiguration

	name     string
	lines    map[string]int
	problems []lined
}

// Read reads a file. What it does not set has its default.
func Read(name string) (*File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(name, text)
}

// Parse reads the text of a file. The name is used in errors alone.
func Parse(name string, text []byte) (*File, error) {
	root, err := document(name, text)
	if err != nil {
		return nil, err
	}
	f := &File{ControllerConfiguration: Default(), name: name, lines: map[string]int{}}
	// They say what the file is, so they have no default.
	f.TypeMeta = metav1.TypeMeta{}
	d := decoder{lines: f.lines, first: max(1, root.Line)}
	d.decode(root, &f.ControllerConfiguration)
	f.problems = d.problems
	return f, nil
}

// Names tells if the file sets a field.
func (f *File) Names(field string) bool {
	return f != nil && f.lines[field] > 0
}

// Refuse is all that is wrong with the file, in the order of its lines: what could not be read in it, and these problems with fields
// that it sets; nil if nothing is.
func (f *File) Refuse(more []Problem) error {
	all := slices.Clone(f.problems)
	for _, p := range more {
		all = append(all, lined{Problem: p, line: f.lines[p.Field]})
	}
	slices.SortStableFunc(all, func(a, b lined) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, 0, len(all))
	for _, p := range all {
		text := p.Text
		if p.Field != "" {
			text = p.Field + ": " + text
		}
		errs = append(errs, fmt.Errorf("%s:%d: %s", f.name, p.line, text))
	}
	return errors.Join(errs...)
}

// lined is a problem with its line.
type lined struct {
	Problem

	line int
}
