// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulate tests clusters of simulated nodes: a built `ordinal`, run by a user without rights.
package simulate
