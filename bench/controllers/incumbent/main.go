// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command incumbent is kube-controller-manager and nothing else, so that it is measured with the memory settings that it has by
// itself.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
