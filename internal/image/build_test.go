// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// sample is a spec with every kind of file in it.
func sample() image.Spec {
	return image.Spec{
		Files: []image.File{
			{Path: "/usr/bin/tool", Mode: 0o755, Data: []byte("#!")},
			{Path: "usr/bin/alias", Mode: fs.ModeSymlink | 0o777, Link: "tool"},
			{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
			{Path: "/etc/secret", Mode: 0o600, Data: []byte("s"), UID: 7, GID: 8},
			{Path: "/bin/su", Mode: fs.ModeSetuid | 0o755},
		},
		Entrypoint: []string{"/usr/bin/tool"},
		Cmd:        []string{"run"},
		Env:        []string{"A=b"},
		User:       "1:2",
		Labels:     map[string]string{"k": "v"},
	}
}

func build(t *testing.T, s image.Spec) v1.Image {
	t.Helper()
	img, err := image.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func digestOf(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// listing is what an image's file system looks like, a line for each entry.
func listing(t *testing.T, img v1.Image) []string {
	t.Helper()
	r := mutate.Extract(img)
	defer func() { _ = r.Close() }()
	var lines []string
	for entries := tar.NewReader(r); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s is of %s, want the epoch", h.Name, h.ModTime)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%c %04o %d:%d %s %s%s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Name, h.Linkname, data)))
	}
}

func TestBuild(t *testing.T) {
	img := build(t, sample())
	want := []string{
		"5 0755 0:0 bin",
		"0 4755 0:0 bin/su",
		"5 0755 0:0 etc",
		"0 0600 7:8 etc/secret s",
		"5 1777 0:0 tmp",
		"5 0755 0:0 usr",
		"5 0755 0:0 usr/bin",
		"2 0777 0:0 usr/bin/alias tool",
		"0 0755 0:0 usr/bin/tool #!",
	}
	if got := listing(t, img); !slices.Equal(got, want) {
		t.Errorf("files:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	wantConfig := v1.Config{
		Entrypoint: []string{"/usr/bin/tool"}, Cmd: []string{"run"}, Env: []string{"A=b"}, User: "1:2", Labels: map[string]string{"k": "v"},
	}
	if !reflect.DeepEqual(config.Config, wantConfig) {
		t.Errorf("config = %+v, want %+v", config.Config, wantConfig)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("platform = %s/%s, want linux/%s", config.OS, config.Architecture, runtime.GOARCH)
	}
}

func TestBuildIsReproducible(t *testing.T) {
	first := digestOf(t, build(t, sample()))
	shuffled := sample()
	slices.Reverse(shuffled.Files)
	if got := digestOf(t, build(t, shuffled)); got != first {
		t.Errorf("digest = %s in another order, want %s", got, first)
	}
	changed := sample()
	changed.Files[0].Data = []byte("#?")
	if got := digestOf(t, build(t, changed)); got == first {
		t.Errorf("digest = %s with other content too", got)
	}
	elsewhere := sample()
	elsewhere.Architecture = "riscv64"
	if got := digestOf(t, build(t, elsewhere)); got == first {
		t.Errorf("digest = %s for another processor too", got)
	}
}

// An image for several processors says for each which it is for, in the formats of OCI throughout.
func TestBuildIndex(t *testing.T) {
	var specs []image.Spec
	for _, arch := range []string{"amd64", "arm64"} {
		s := sample()
		s.Architecture, s.Created = arch, time.Unix(7, 0)
		specs = append(specs, s)
	}
	index := buildIndex(t, specs...)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		own, err := img.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s for %s: %s, %s, of second %d",
			m.MediaType, m.Platform, own.Config.MediaType, own.Layers[0].MediaType, config.Created.Unix()))
	}
	const format = "application/vnd.oci.image.manifest.v1+json for linux/%s: application/vnd.oci.image.config.v1+json, " +
		"application/vnd.oci.image.layer.v1.tar+gzip, of second 7"
	if want := []string{fmt.Sprintf(format, "amd64"), fmt.Sprintf(format, "arm64")}; !slices.Equal(got, want) {
		t.Errorf("it holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := image.BuildIndex(image.Spec{Files: []image.File{{Path: ""}}}); err == nil {
		t.Error("a bad path is accepted")
	}
}

func buildIndex(t *testing.T, specs ...image.Spec) v1.ImageIndex {
	t.Helper()
	index, err := image.BuildIndex(specs...)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// A layout has the same bytes whenever and wherever it is written, and is read as what it is.
func TestWriteLayout(t *testing.T) {
	dir := t.TempDir()
	index := buildIndex(t, sample())
	var written [2][]byte
	for i := range written {
		file := filepath.Join(dir, "sample.tar")
		if err := image.WriteLayout(file, "example.test/sample:1", index); err != nil {
			t.Fatal(err)
		}
		contents, err := image.Inspect(file)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if len(contents) != 1 || contents[0].Name != "example.test/sample:1" || contents[0].Target.String() != hash.String() {
			t.Errorf("contents = %+v, want %s", contents, hash)
		}
		if written[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(written[0], written[1]) {
		t.Error("the same image gives two files")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files = %v, %v, want the archive alone", left, err)
	}
}

func TestWriteLayoutFails(t *testing.T) {
	index := buildIndex(t, sample())
	file := filepath.Join(t.TempDir(), "missing", "a.tar")
	for ref, want := range map[string]string{"sample": "no tag", "UPPER:1": "UPPER", "sample:1": file} {
		if err := image.WriteLayout(file, ref, index); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("WriteLayout as %q: %v, want %q", ref, err, want)
		}
	}
}

func TestBuildRefusesBadFiles(t *testing.T) {
	for name, files := range map[string][]image.File{
		"not a clean path":    {{Path: "../etc/passwd"}},
		"clean path":          {{Path: ""}},
		"named twice":         {{Path: "a"}, {Path: "/a"}},
		"a is not a director": {{Path: "a"}, {Path: "a/b"}},
		"of type p":           {{Path: "pipe", Mode: fs.ModeNamedPipe}},
	} {
		if _, err := image.Build(image.Spec{Files: files}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Build of %+v: %v, want %q", files, err, name)
		}
	}
}

func TestWriteArchive(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sample.tar")
	img := build(t, sample())
	for range 2 { // the second replaces the first
		if err := image.WriteArchive(file, "example.test/sample:1", img); err != nil {
			t.Fatal(err)
		}
	}
	tag, err := name.NewTag("example.test/sample:1")
	if err != nil {
		t.Fatal(err)
	}
	back, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(back); err != nil {
		t.Error(err)
	}
	if got, want := digestOf(t, back), digestOf(t, img); got != want {
		t.Errorf("digest = %s after a round trip, want %s", got, want)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files = %v, %v, want the archive alone", left, err)
	}
}

func TestWriteArchiveFails(t *testing.T) {
	img := build(t, sample())
	dir := t.TempDir()
	for ref, want := range map[string]string{"sample": "no tag", "UPPER:1": "UPPER", "": "image name"} {
		if err := image.WriteArchive(filepath.Join(dir, "a.tar"), ref, img); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("WriteArchive as %q: %v, want %q", ref, err, want)
		}
	}
	file := filepath.Join(dir, "missing", "a.tar")
	if err := image.WriteArchive(file, "sample:1", img); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("WriteArchive to a missing directory: %v, want an error that names %s", err, file)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files = %v, %v, want none", left, err)
	}
}
