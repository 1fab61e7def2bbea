// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance gives our controller to the tests that Kubernetes has for its own.
package conformance
