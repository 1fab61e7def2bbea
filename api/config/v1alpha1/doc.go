// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the type of the controller's configuration file, group config.ordinal.dev. Nothing in it runs.
package v1alpha1
