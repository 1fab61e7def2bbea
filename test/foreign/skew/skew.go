// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package skew is the module with which the oldest control plane that the controller works with is built, apart from the main module,
// which has the newest. Nothing imports it: what is built is named in go.mod.
package skew
