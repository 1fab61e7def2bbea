// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version holds the version that a binary was built as.
package version

// version is set by the linker.
var version = "dev"

// Get is the version of this binary; dev if it was built without one.
func Get() string { return version }
