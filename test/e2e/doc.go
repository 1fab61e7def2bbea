// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests a built `ordinal` end to end: a real cluster, real pods, and nothing but a kubectl command line between
// the tests and the world. Tests judge the state of the world, never the calls that led to it.
//
// `make e2e` builds what they need and runs them. They need root on Linux, and the host for themselves: one cluster runs on a
// host at a time. Most tests share one cluster, each in a namespace of its own; those that break things start their own.
package e2e
