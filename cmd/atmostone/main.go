// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command atmostone is what the container runtime runs before each container of a pod starts. It is a program of its own, and a small one,
// because that happens often and has to be quick: it takes some milliseconds where nothing has to be waited for.
package main

import (
	"fmt"
	"os"

	"github.com/ordinal-dev/ordinal/internal/atmostone"
)

func main() {
	if err := atmostone.Hook(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
