// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package foreign takes Ordinal to clusters that are not its own: Kubernetes' programs as they come, one real node for the controller's
// image, and simulated nodes in three zones for the sets.
package foreign
