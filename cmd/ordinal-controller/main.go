// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ordinal-controller is the StatefulSet controller alone, which is all that a cluster needs of Ordinal.
package main

import (
	"os"

	"github.com/ordinal-dev/ordinal/internal/controller/command"
)

func main() {
	os.Exit(command.Run(os.Args[1:]))
}
