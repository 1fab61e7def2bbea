// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command reference writes the pages of docs/reference from the code, so that they cannot differ from it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// folder is where the pages are, from the root of the sources.
const folder = "docs/reference"

func main() {
	root := flag.String("root", ".", "root of the sources")
	out := flag.String("out", folder, "directory to write the pages to")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintf(os.Stderr, "reference: %v\n", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	// Flags show their defaults, and this one's depends on the user.
	if err := os.Setenv("ORDINAL_DATA_DIR", layout.DefaultDataDir); err != nil {
		return err
	}
	pages, err := pages(root)
	if err != nil {
		return err
	}
	err = os.MkdirAll(out, 0o755)
	for name, content := range pages {
		err = errors.Join(err, os.WriteFile(filepath.Join(out, name), []byte(content), 0o644))
	}
	return err
}

// pages are all pages by their name, made from the code below the root.
func pages(root string) (map[string]string, error) {
	// Commands show what is in there, too, and here that comes from all that is linked.
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError)
	all := map[string]string{
		"ordinal.md":            ordinalPage(),
		"ordinal-controller.md": controllerPage(),
	}
	for name, write := range map[string]func(source) (string, error){
		"metrics.md":           metricsPage,
		"events.md":            eventsPage,
		"conditions.md":        conditionsPage,
		"statefulsetpolicy.md": policyPage,
		"configuration.md":     configurationPage,
	} {
		text, err := write(source(root))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = text
	}
	return all, nil
}
