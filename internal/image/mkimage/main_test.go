// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
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

// Programs for several processors make one image, which knows them all.
func TestRunForSeveralProcessors(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-ref", "example.test/tool:1", "-user", "1:2", "-label", "k=v", "-created", "1000", "-o", filepath.Join(dir, "tool.tar")}
	for _, arch := range []string{"amd64", "arm64"} {
		program := filepath.Join(dir, arch, "tool")
		if err := errors.Join(os.Mkdir(filepath.Dir(program), 0o700), os.WriteFile(program, []byte(arch), 0o600)); err != nil {
			t.Fatal(err)
		}
		args = append(args, arch+"="+program)
	}
	if err := run(args); err != nil {
		t.Fatal(err)
	}
	// Each processor's own is read back as a client of a registry would.
	if err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-xf", filepath.Join(dir, "tool.tar")).Run(); err != nil {
		t.Fatal(err)
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Error(err)
	}
	var processors []string
	for _, img := range imagesOf(t, all) {
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c := config.Config; c.User != "1:2" || c.Labels["k"] != "v" || !slices.Equal(c.Entrypoint, []string{"/tool"}) || config.Created.Unix() != 1000 {
			t.Errorf("config = %+v", config)
		}
		processors = append(processors, config.OS+"/"+config.Architecture)
	}
	if !slices.Equal(processors, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("it is for %v", processors)
	}
}

// imagesOf gives the images of the one index in a layout.
func imagesOf(t *testing.T, all v1.ImageIndex) []v1.Image {
	t.Helper()
	manifest, err := all.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout holds %+v, %v, want one index", manifest, err)
	}
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := partial.FindImages(index, func(v1.Descriptor) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return images
}

func TestRunFails(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for want, args := range map[string][]string{
		"give -ref":  {"-ref", "a:1", "tool"},
		"one prog":   {"-ref", "a:1", "-o", "a.tar"},
		missing:      {"-ref", "a:1", "-o", missing + ".tar", missing},
		"no tag":     {"-ref", "a", "-o", missing + ".tar", os.Args[0]},
		"or ARCH=":   {"-ref", "a:1", "-o", "a.tar", "tool", "tool"},
		"is not ARC": {"-ref", "a:1", "-o", "a.tar", "amd64=" + os.Args[0], "tool"},
		"it is not ": {"-label", "name"},
		"syntax":     {"-created", "yesterday"},
		"not define": {"-what"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("run %q: %v, want %q", args, err, want)
		}
	}
}
