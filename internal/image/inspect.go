// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// containerdName is the annotation in which engines that write OCI layouts put an image's full name.
const containerdName = "io.containerd.image.name"

// Content is one name of one image in an archive.
type Content struct {
	// Name is the full reference, docker.io/library/nginx:1.16 for "nginx:1.16". Empty if the archive gives the image no name.
	Name string
	// Target is the digest of the image's manifest or index. Docker archives have none: the runtime writes the manifest.
	Target digest.Digest
	// Config is the digest of the image's configuration. Set for docker archives only.
	Config digest.Digest
}

// Open opens an archive for reading, decompressed if it is compressed by gzip.
func Open(file string) (io.ReadCloser, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewReaderSize(f, 1<<20)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		_ = f.Close()
		return nil, err
	}
	if string(magic) != "\x1f\x8b" {
		return archiveFile{buffered, f}, nil
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		_ = f.Close()
		return nil, readError(err)
	}
	return archiveFile{unzipped, f}, nil
}

type archiveFile struct {
	io.Reader
	io.Closer
}

// Inspect reads a whole archive, an OCI layout or a docker archive, and says what it holds. An archive that it accepts is complete: every
// file that is referred to is there, nothing points outside, and what is named after its digest has that digest.
func Inspect(file string) ([]Content, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, withoutPath(err)
	case info.IsDir():
		return nil, errors.New("a directory, not an image archive")
	case info.Mode().IsRegular() && info.Size() == 0:
		return nil, errors.New("the file is empty")
	}
	r, err := Open(file)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer func() { _ = r.Close() }()
	found, err := scan(r)
	if err != nil {
		return nil, err
	}
	_, layout := found[ocispec.ImageLayoutFile]
	_, docker := found["manifest.json"]
	switch {
	case layout:
		return found.layout()
	case docker:
		return found.docker()
	default:
		return nil, errors.New("not an image archive: it has neither an oci-layout nor a manifest.json")
	}
}

// withoutPath is the reason of a file error: callers name the file as the user knows it.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// docker lists the images of a docker archive.
func (e entries) docker() ([]Content, error) {
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := e.decode("manifest.json", &manifest); err != nil {
		return nil, err
	}
	if len(manifest) == 0 {
		return nil, errors.New("the archive holds no image")
	}
	var contents []Content
	for _, m := range manifest {
		for _, file := range append(m.Layers, m.Config) {
			if !e.has(file) {
				return nil, fmt.Errorf("incomplete: manifest.json names %q, which is not in the archive", file)
			}
		}
		names, err := dockerNames(m.RepoTags)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			contents = append(contents, Content{Name: name, Config: e[path.Clean(m.Config)].digest})
		}
	}
	return contents, nil
}

// dockerNames gives at least one name, an empty one if there are no tags.
func dockerNames(tags []string) ([]string, error) {
	if len(tags) == 0 {
		return []string{""}, nil
	}
	names := make([]string, 0, len(tags))
	for _, tag := range tags {
		name, err := FullName(tag)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// layout lists the images of an OCI layout.
func (e entries) layout() ([]Content, error) {
	var version ocispec.ImageLayout
	if err := e.decode(ocispec.ImageLayoutFile, &version); err != nil {
		return nil, err
	}
	if version.Version != ocispec.ImageLayoutVersion {
		return nil, fmt.Errorf("an OCI layout of version %q: only %s is known", version.Version, ocispec.ImageLayoutVersion)
	}
	var index ocispec.Index
	if err := e.decode(ocispec.ImageIndexFile, &index); err != nil {
		return nil, err
	}
	if len(index.Manifests) == 0 {
		return nil, errors.New("the archive holds no image")
	}
	contents := make([]Content, 0, len(index.Manifests))
	for _, m := range index.Manifests {
		if err := e.complete(m); err != nil {
			return nil, err
		}
		name, err := LayoutName(m.Annotations)
		if err != nil {
			return nil, err
		}
		contents = append(contents, Content{Name: name, Target: m.Digest})
	}
	return contents, nil
}

// LayoutName is the full reference that the annotations of an image in an OCI layout give it. A bare tag ("latest"), which the layout's
// specification allows, names no image: then it is empty.
func LayoutName(annotations map[string]string) (string, error) {
	if name := annotations[containerdName]; name != "" {
		return FullName(name)
	}
	name := annotations[ocispec.AnnotationRefName]
	if !strings.ContainsAny(name, "/:@") {
		return "", nil
	}
	return FullName(name)
}

// FullName completes an image's name as all engines do: nginx becomes docker.io/library/nginx:latest.
func FullName(name string) (string, error) {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", name, err)
	}
	return ref.String(), nil
}

// complete checks that what a descriptor stands for is in the archive. An index may lack some of its platforms.
func (e entries) complete(d ocispec.Descriptor) error {
	file := blobPath(d.Digest)
	if !e.has(file) {
		return fmt.Errorf("incomplete: %s is not in the archive", d.Digest)
	}
	var children struct {
		Manifests []ocispec.Descriptor
		Config    *ocispec.Descriptor
		Layers    []ocispec.Descriptor
	}
	if err := e.decode(file, &children); err != nil {
		return err
	}
	blobs := children.Layers
	if children.Config != nil {
		blobs = append(blobs, *children.Config)
	}
	for _, blob := range blobs {
		if !e.has(blobPath(blob.Digest)) {
			return fmt.Errorf("incomplete: %s is not in the archive", blob.Digest)
		}
	}
	present := 0
	for _, m := range children.Manifests {
		if !e.has(blobPath(m.Digest)) {
			continue
		}
		present++
		if err := e.complete(m); err != nil {
			return err
		}
	}
	if len(children.Manifests) > 0 && present == 0 {
		return fmt.Errorf("incomplete: nothing that %s lists is in the archive", d.Digest)
	}
	return nil
}

func blobPath(d digest.Digest) string {
	algorithm, hex, _ := strings.Cut(string(d), ":")
	return path.Join(ocispec.ImageBlobsDir, algorithm, hex)
}

// decode reads a JSON file of the archive.
func (e entries) decode(file string, into any) error {
	found, ok := e[file]
	if !ok {
		return fmt.Errorf("incomplete: %s is not in the archive", file)
	}
	if found.json == nil {
		return fmt.Errorf("%s is not the JSON file that it should be", file)
	}
	if err := json.Unmarshal(found.json, into); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}
