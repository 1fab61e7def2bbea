// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image builds container images from files, without a container engine, and writes, reads and checks image archives.
package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one entry of an image's file system.
type File struct {
	// Path is the file's place in the image; a leading slash makes no difference.
	Path string
	// Mode has the permissions and the type: a regular file, a directory (fs.ModeDir) or a symbolic link (fs.ModeSymlink).
	Mode fs.FileMode
	// Data is a regular file's content.
	Data []byte
	// Link is a symbolic link's target.
	Link string
	// UID and GID are the owner; root if they are not set.
	UID, GID int
}

// Spec describes an image of one layer for Linux.
type Spec struct {
	// Files are put into the layer in the order of their paths. Directories above them need not be named.
	Files []File
	// Entrypoint, Cmd and Env (NAME=VALUE) are the container's defaults.
	Entrypoint, Cmd, Env []string
	// User is the user (and group, UID:GID) that the container runs as; root if empty.
	User string
	// Labels are the image's labels.
	Labels map[string]string
	// Architecture is the processor's name in Go's spelling; the builder's own if empty.
	Architecture string
	// Created is when the image was made, as it says itself; the epoch if zero.
	Created time.Time
}

// epoch is the time of all files in an image, so that the same files give the same digest.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

func (s Spec) created() v1.Time {
	if s.Created.IsZero() {
		return v1.Time{Time: epoch()}
	}
	return v1.Time{Time: s.Created.UTC()}
}

// Build makes an image. Equal specs give equal digests, in whichever order they list their files.
func Build(s Spec) (v1.Image, error) { return build(s, empty.Image, types.DockerLayer) }

// BuildIndex makes an image for several processors, in the formats of OCI: one of each spec. Equal specs give equal digests.
func BuildIndex(specs ...Spec) (v1.ImageIndex, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var index v1.ImageIndex = empty.Index
	for _, s := range specs {
		img, err := build(s, base, types.OCILayer)
		if err != nil {
			return nil, err
		}
		platform := &v1.Platform{OS: "linux", Architecture: cmp.Or(s.Architecture, runtime.GOARCH)}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

// build makes an image in the format of base, with a layer of that type.
func build(s Spec, base v1.Image, kind types.MediaType) (v1.Image, error) {
	layer, err := newLayer(s.Files, kind)
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: s.created(), CreatedBy: "ordinal"},
	})
	if err != nil {
		return nil, fmt.Errorf("add the layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image configuration: %w", err)
	}
	config = config.DeepCopy()
	config.Created = s.created()
	config.OS = "linux"
	config.Architecture = cmp.Or(s.Architecture, runtime.GOARCH)
	config.Config = v1.Config{Entrypoint: s.Entrypoint, Cmd: s.Cmd, Env: s.Env, User: s.User, Labels: s.Labels}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, fmt.Errorf("set the image configuration: %w", err)
	}
	return img, nil
}

func newLayer(files []File, kind types.MediaType) (v1.Layer, error) {
	entries, err := complete(files)
	if err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	for _, f := range entries {
		if err := writeEntry(w, f); err != nil {
			return nil, fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end the layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressedCaching, tarball.WithMediaType(kind))
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	return layer, nil
}

// complete sorts files by path, and adds the directories above them that are not among them.
func complete(files []File) ([]File, error) {
	known := map[string]File{}
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, "/")
		if !fs.ValidPath(name) || name == "." {
			return nil, fmt.Errorf("file %q: not a clean path", f.Path)
		}
		if _, twice := known[name]; twice {
			return nil, fmt.Errorf("file %s: named twice", f.Path)
		}
		f.Path = name
		known[name] = f
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			above, ok := known[dir]
			if ok && !above.Mode.IsDir() {
				return nil, fmt.Errorf("file %s: %s is not a directory", name, dir)
			}
			if !ok {
				known[dir] = File{Path: dir, Mode: fs.ModeDir | 0o755}
			}
		}
	}
	// A directory's path is a prefix of the paths in it, so it comes before them.
	return slices.SortedFunc(maps.Values(known), func(a, b File) int { return cmp.Compare(a.Path, b.Path) }), nil
}

func writeEntry(w *tar.Writer, f File) error {
	header, err := headerOf(f)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	_, err = w.Write(f.Data)
	return err
}

func headerOf(f File) (*tar.Header, error) {
	h := &tar.Header{Name: f.Path, Mode: tarMode(f.Mode), Uid: f.UID, Gid: f.GID, ModTime: epoch(), Format: tar.FormatPAX}
	switch f.Mode.Type() {
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, int64(len(f.Data))
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, f.Path+"/"
	case fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
	default:
		return nil, fmt.Errorf("a file of type %s cannot be in an image", f.Mode.Type())
	}
	return h, nil
}

// tarMode is a mode in the bits that a tar header uses.
func tarMode(m fs.FileMode) int64 {
	mode := int64(m.Perm())
	for bit, value := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			mode |= value
		}
	}
	return mode
}
