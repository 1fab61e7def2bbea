// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "tool"), filepath.Join(dir, "tool.tar")
	if err := os.WriteFile(program, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := run([]string{"-ref", "example.test/tool:1", "-arch", "arm64", "-user", "1:2", "-env", "A=1", "-env", "B=2", "-o", file, program})
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if config.Architecture != "arm64" || c.User != "1:2" || !slices.Equal(c.Env, []string{"A=1", "B=2"}) || !slices.Equal(c.Entrypoint, []string{"/tool"}) {
		t.Errorf("config = %+v", config)
	}
}

func TestRunFails(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for want, args := range map[string][]string{
		"give -ref":  {"-ref", "a:1", "tool"},
		"one prog":   {"-ref", "a:1", "-o", "a.tar"},
		missing:      {"-ref", "a:1", "-o", missing + ".tar", missing},
		"no tag":     {"-ref", "a", "-o", missing + ".tar", os.Args[0]},
		"not define": {"-what"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("run %q: %v, want %q", args, err, want)
		}
	}
}
