// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeover swaps Ordinal's controller and the built-in one under running sets, at a real API server.
package takeover
