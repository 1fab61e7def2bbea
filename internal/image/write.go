// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// WriteArchive writes an image as a docker archive under the name ref, which must have a tag. The file is complete or not there at all.
func WriteArchive(file, ref string, img v1.Image) error {
	tag, err := name.NewTag(ref, name.WithDefaultTag(""))
	if err != nil {
		return fmt.Errorf("image name %q: %w", ref, err)
	}
	if tag.TagStr() == "" {
		return fmt.Errorf("image name %q: it has no tag", ref)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".archive-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	err = tarball.Write(tag, img, temp)
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
