// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// The images that the tests run. The second nginx has the first one's content: what counts is that the name differs.
const (
	busyboxImage = "busybox:1.28.3"
	image        = "nginx:1.16"
	newImage     = "nginx:1.17"
)

// retag copies a docker archive of one image and gives the copy another name.
func retag(from, to, name string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	defer target.Close()
	in, out := tar.NewReader(source), tar.NewWriter(target)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return errors.Join(out.Close(), target.Sync())
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		if header.Name == "manifest.json" {
			if content, err = renamed(content, name); err != nil {
				return err
			}
			header.Size = int64(len(content))
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(content); err != nil {
			return err
		}
	}
}

// renamed is a docker archive's manifest whose one image has another name.
func renamed(manifest []byte, name string) ([]byte, error) {
	var images []map[string]any
	if err := json.Unmarshal(manifest, &images); err != nil {
		return nil, err
	}
	if len(images) != 1 {
		return nil, errors.New("the archive does not hold exactly one image")
	}
	images[0]["RepoTags"] = []string{name}
	return json.Marshal(images)
}
