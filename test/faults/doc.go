// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults breaks a built `ordinal` while sets in it scale, roll, lose pods and are deleted: kill -9 of every part and of all
// at once, a full disk, an API that fails, webhooks that hang. After each fault nothing is lost, nothing runs twice, every set is right.
//
// `make test-faults` runs them, as they take longer than the other tests. Those with real pods need root on Linux, and the host for
// themselves. What is random follows -seed, which is printed.
package faults
