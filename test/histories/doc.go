// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package histories runs the controller through random histories of a model cluster, and through every crash of some scenarios.
package histories
