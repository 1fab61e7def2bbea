// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api tests the controller against a real API server, with Kubernetes' other controllers and a model of a kubelet.
package api
