// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ordinal is the one binary of Ordinal: the command line, and each component of the cluster under its own name.
package main

import (
	"os"

	"github.com/ordinal-dev/ordinal/internal/cli"
	"github.com/ordinal-dev/ordinal/internal/cluster/component"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == component.Command {
		os.Exit(component.Run(os.Args[2], os.Args[3:]))
	}
	os.Exit(cli.Run(os.Args[1:]))
}
