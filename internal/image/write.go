// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// WriteArchive writes an image as a docker archive under the name ref, which must have a tag. The file is complete or not there at all.
func WriteArchive(file, ref string, img v1.Image) error {
	tag, err := tagOf(ref)
	if err != nil {
		return err
	}
	return replace(file, func(w io.Writer) error { return tarball.Write(tag, img, w) })
}

// WriteLayout writes an image for several processors as an archive of an OCI layout under the name ref, which must have a tag. Equal
// images give equal files. The file is complete or not there at all.
func WriteLayout(file, ref string, index v1.ImageIndex) error {
	tag, err := tagOf(ref)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".layout-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	files, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	err = files.AppendIndex(index, layout.WithAnnotations(map[string]string{
		ocispec.AnnotationRefName: tag.TagStr(),
		containerdName:            tag.Name(),
	}))
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return replace(file, func(w io.Writer) error { return pack(dir, w) })
}

func tagOf(ref string) (name.Tag, error) {
	tag, err := name.NewTag(ref, name.WithDefaultTag(""))
	if err != nil {
		return name.Tag{}, fmt.Errorf("image name %q: %w", ref, err)
	}
	if tag.TagStr() == "" {
		return name.Tag{}, fmt.Errorf("image name %q: it has no tag", ref)
	}
	return tag, nil
}

// replace writes a file in the place of the one that may be there, or leaves that as it is.
func replace(file string, write func(io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(file), ".archive-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	err = write(temp)
	// The file is for others to read too; CreateTemp keeps it to its owner.
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// pack writes the files of a directory as an archive, in the order of their names and without what they have of this machine.
func pack(dir string, to io.Writer) error {
	w := tar.NewWriter(to)
	files := os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return writeEntry(w, File{Path: path, Mode: 0o644, Data: data})
	})
	return errors.Join(err, w.Close())
}
