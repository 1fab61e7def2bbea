// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package differential lets Kubernetes' own StatefulSet controller and Ordinal's work on the same random worlds, and
// compares what they do.
package differential
