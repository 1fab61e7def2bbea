// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate writes what the chart and the base for kustomize hold of what the binary embeds, and of each other. It runs at the root of the project.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if err := run(context.Background(), "."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes the files below root. The chart renders the base, so its own come first.
func run(ctx context.Context, root string) error {
	own, err := inChart(root)
	if err != nil {
		return err
	}
	if err := own.write(root); err != nil {
		return err
	}
	base, err := rendered(ctx, root)
	if err != nil {
		return err
	}
	return base.write(root)
}

func (f files) write(root string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(f[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}
