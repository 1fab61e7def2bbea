// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// files are the content of a tar archive by name.
type files map[string][]byte

// write makes a tar archive of the files.
func (f files) write(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, f.bytes(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (f files) bytes(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(f[name])), Typeflag: tar.TypeReg}
		if target, ok := bytes.CutPrefix(f[name], []byte("-> ")); ok {
			header.Typeflag, header.Size, header.Linkname = tar.TypeSymlink, 0, string(target)
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := w.Write(f[name]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// without is the files without those whose names have a prefix.
func (f files) without(prefix string) files {
	rest := maps.Clone(f)
	maps.DeleteFunc(rest, func(name string, _ []byte) bool { return strings.HasPrefix(name, prefix) })
	return rest
}

func (f files) with(name, content string) files {
	more := maps.Clone(f)
	more[name] = []byte(content)
	return more
}

// docker is a docker archive of an image with the given tags.
func docker(tags ...string) files {
	manifest, err := json.Marshal([]map[string]any{{"Config": "c.json", "RepoTags": tags, "Layers": []string{"l/layer.tar", "m/layer.tar"}}})
	if err != nil {
		panic(err)
	}
	return files{
		"c.json":        []byte(`{"os":"linux"}`),
		"l/layer.tar":   []byte("first layer"),
		"m/layer.tar":   []byte("-> ../l/layer.tar"),
		"manifest.json": manifest,
	}
}

// layoutOf is an OCI layout of an index.
func layoutOf(t *testing.T, index v1.ImageIndex) files {
	t.Helper()
	dir := t.TempDir()
	if _, err := layout.Write(dir, index); err != nil {
		t.Fatal(err)
	}
	found := files{}
	root := os.DirFS(dir)
	for _, pattern := range []string{"*", "blobs/sha256/*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			name, err := filepath.Rel(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			if data, err := root.(interface{ ReadFile(string) ([]byte, error) }).ReadFile(name); err == nil {
				found[name] = data
			}
		}
	}
	return found
}

// indexOf is an index of one image with annotations.
func indexOf(img mutate.Appendable, annotations map[string]string) v1.ImageIndex {
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Annotations: annotations}})
}

func inspect(t *testing.T, file string) []image.Content {
	t.Helper()
	got, err := image.Inspect(file)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestInspectDocker(t *testing.T) {
	config := digest.FromString(`{"os":"linux"}`)
	got := inspect(t, docker("nginx:1.16", "example.test/a").write(t))
	want := []image.Content{
		{Name: "docker.io/library/nginx:1.16", Config: config},
		{Name: "example.test/a:latest", Config: config},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("contents = %+v, want %+v", got, want)
	}
	got = inspect(t, docker().write(t))
	if want := []image.Content{{Config: config}}; !reflect.DeepEqual(got, want) {
		t.Errorf("contents without tags = %+v, want %+v", got, want)
	}
}

func TestInspectWhatBuildMade(t *testing.T) {
	img := build(t, sample())
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := image.WriteArchive(file, "example.test/sample:1", img); err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	want := []image.Content{{Name: "example.test/sample:1", Config: digest.Digest(config.String())}}
	if got := inspect(t, file); !reflect.DeepEqual(got, want) {
		t.Errorf("contents = %+v, want %+v", got, want)
	}
}

func TestInspectLayout(t *testing.T) {
	img := build(t, sample())
	target := digest.Digest(digestOf(t, img))
	for name, c := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"full name":   {map[string]string{ocispec.AnnotationRefName: "example.test/a:2"}, "example.test/a:2"},
		"short name":  {map[string]string{ocispec.AnnotationRefName: "a:2"}, "docker.io/library/a:2"},
		"bare tag":    {map[string]string{ocispec.AnnotationRefName: "latest"}, ""},
		"nothing":     {nil, ""},
		"engine name": {map[string]string{ocispec.AnnotationRefName: "2", "io.containerd.image.name": "example.test/b:2"}, "example.test/b:2"},
	} {
		t.Run(name, func(t *testing.T) {
			want := []image.Content{{Name: c.want, Target: target}}
			if got := inspect(t, layoutOf(t, indexOf(img, c.annotations)).write(t)); !reflect.DeepEqual(got, want) {
				t.Errorf("contents = %+v, want %+v", got, want)
			}
		})
	}
}

// An index may list platforms whose blobs are elsewhere, as long as one is there.
func TestInspectLayoutOfSomePlatforms(t *testing.T) {
	other := sample()
	other.Architecture = "riscv64"
	here, there := build(t, sample()), build(t, other)
	platforms := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: here}, mutate.IndexAddendum{Add: there})
	all := layoutOf(t, indexOf(platforms, nil))
	blob := func(img v1.Image) string { return "blobs/sha256/" + strings.TrimPrefix(digestOf(t, img), "sha256:") }
	some := all.without(blob(there))
	inspect(t, some.write(t))
	wantError(t, some.without(blob(here)).write(t), "nothing that sha256:")
}

func TestInspectCompressed(t *testing.T) {
	whole := zipped(t, docker("a:1").bytes(t))
	file := filepath.Join(t.TempDir(), "image.tar.gz")
	write := func(data []byte) string {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if got := inspect(t, write(whole)); len(got) != 1 || got[0].Name != "docker.io/library/a:1" {
		t.Errorf("contents = %+v, want a:1", got)
	}
	wantError(t, write(whole[:len(whole)-4]), "cut short")
	wantError(t, write(whole[:5]), "cut short")
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-6] ^= 1
	wantError(t, write(damaged), "does not decompress")
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func wantError(t *testing.T, file, want string) {
	t.Helper()
	got, err := image.Inspect(file)
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Inspect = %+v, %v, want an error of one line with %q", got, err, want)
	}
}

// Wherever an archive is cut off, it is refused.
func TestInspectRefusesEveryTruncation(t *testing.T) {
	whole := docker("a:1").bytes(t)
	file := filepath.Join(t.TempDir(), "image.tar")
	end := bytes.LastIndex(whole, []byte("RepoTags")) // what follows is padding
	for size := 0; size < end; size += 64 {
		if err := os.WriteFile(file, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := image.Inspect(file); err == nil {
			t.Errorf("of %d bytes the first %d were accepted: %+v", len(whole), size, got)
		}
	}
}

func TestInspectRefusesBadArchives(t *testing.T) {
	good := layoutOf(t, indexOf(build(t, sample()), nil))
	layer := ""
	for name, data := range good {
		if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
			layer = name
		}
	}
	for name, c := range map[string]struct {
		files files
		want  string
	}{
		"other tar":           {files{"a": []byte("b")}, "not an image archive"},
		"path above":          {docker("a:1").with("../../etc/cron.d/x", "boo"), "lies outside"},
		"absolute path":       {docker("a:1").with("/etc/cron.d/x", "boo"), "lies outside"},
		"link above":          {docker("a:1").with("x", "-> ../../etc/passwd"), "points outside"},
		"absolute link":       {docker("a:1").with("x", "-> /etc/passwd"), "points outside"},
		"dangling link":       {docker("a:1").without("l/"), "is not in the archive"},
		"layer missing":       {docker("a:1").without("m/"), `"m/layer.tar", which is not in`},
		"config missing":      {docker("a:1").without("c.json"), `"c.json", which is not in`},
		"bad tag":             {docker("A B"), "A B"},
		"no image":            {docker("a:1").with("manifest.json", "[]"), "no image"},
		"manifest not JSON":   {docker("a:1").with("manifest.json", "hello"), "not the JSON"},
		"manifest broken":     {docker("a:1").with("manifest.json", `[{"Config":`), "manifest.json"},
		"layout damaged":      {good.with(layer, "other"), "damaged"},
		"layout layer lost":   {good.without(layer), "is not in the archive"},
		"layout blobs lost":   {good.without("blobs/"), "is not in the archive"},
		"layout without list": {good.without("index.json"), "index.json is not in the archive"},
		"layout of no image":  {good.with("index.json", "{}"), "no image"},
		"layout of future":    {good.with("oci-layout", `{"imageLayoutVersion":"9"}`), `version "9"`},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, c.files.write(t), c.want) })
	}
}

func TestInspectRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	wantError(t, dir, "a directory")
	wantError(t, filepath.Join(dir, "missing"), "no such file")
	for content, want := range map[string]string{"": "empty", "x": "cut short", strings.Repeat("no tar file ", 100): "no tar file"} {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		wantError(t, file, want)
	}
}
