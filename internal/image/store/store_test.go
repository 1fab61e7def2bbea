// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// wantError checks that an error is one line with the given text; without text, that there is none.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error = %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")):
		t.Errorf("error = %v, want one line with %q", err, want)
	}
}

func TestCheckNames(t *testing.T) {
	named := image.Content{Name: "example.test/a:1", Target: "sha256:01"}
	first, second := image.Content{Target: "sha256:02"}, image.Content{Target: "sha256:03"}
	for name, c := range map[string]struct {
		contents []image.Content
		name     string
		want     string
	}{
		"all named":           {contents: []image.Content{named}},
		"named once more":     {contents: []image.Content{named}, name: "b:1", want: "have names already (example.test/a:1)"},
		"nameless":            {contents: []image.Content{named, first}, want: "give it one with --name"},
		"nameless, given one": {contents: []image.Content{named, first, first}, name: "b:1"},
		"two nameless":        {contents: []image.Content{first, second}, name: "b:1", want: "2 images"},
		"given a bad one":     {contents: []image.Content{first}, name: "B:1", want: "B:1"},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, checkNames(c.contents, c.name), c.want) })
	}
}

func TestNewImage(t *testing.T) {
	target := ocispec.Descriptor{Digest: digest.FromString("x"), Annotations: map[string]string{ocispec.AnnotationRefName: "nginx:1.16"}}
	for given, want := range map[string]string{"": "docker.io/library/nginx:1.16", "other:1": "docker.io/library/nginx:1.16"} {
		got, err := newImage(target, given)
		if err != nil || got.Name != want || got.Target.Digest != target.Digest || got.Labels[pinned] != "pinned" {
			t.Errorf("newImage(_, %q) = %+v, %v, want %s, pinned", given, got, err, want)
		}
	}
	target.Annotations = map[string]string{ocispec.AnnotationRefName: "latest"}
	if got, err := newImage(target, "example.test/a:1"); err != nil || got.Name != "example.test/a:1" {
		t.Errorf("newImage of a nameless image = %+v, %v, want the given name", got, err)
	}
	if got, err := newImage(target, ""); err == nil {
		t.Errorf("newImage without any name = %+v, want an error", got)
	}
}

func TestReference(t *testing.T) {
	for want, i := range map[string]Image{
		"example.test/a:1":         {Name: "example.test/a", Tag: "1", Digest: "sha256:01"},
		"example.test/a@sha256:01": {Name: "example.test/a", Digest: "sha256:01"},
	} {
		if got := i.Reference(); got != want {
			t.Errorf("reference = %s, want %s", got, want)
		}
	}
}

func TestNothingWorksWithoutTheRuntime(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	const want = "the container runtime is not running"
	_, err := List(t.Context(), socket)
	wantError(t, err, want)
	wantError(t, Import(t.Context(), socket, ImportOptions{Archives: []Archive{{Path: "a.tar"}}}), want)

	img, err := image.Build(image.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a.tar")
	if err := image.WriteArchive(file, "example.test/a:1", img); err != nil {
		t.Fatal(err)
	}
	wantError(t, EnsureImported(t.Context(), socket, file), want)
	wantError(t, EnsureImported(t.Context(), socket, file+".missing"), file+".missing: no such file")
}
