// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxJSON is the largest manifest or configuration that is read.
	maxJSON = 8 << 20
	// maxJSONs is the most that all of them together may take.
	maxJSONs = 64 << 20
)

// entry is one file of an archive.
type entry struct {
	digest digest.Digest
	// json is the content, if the file may be JSON.
	json []byte
	// link is the file that a symbolic link stands for.
	link string
}

// entries are an archive's files by their clean paths.
type entries map[string]entry

// has tells whether a file, or what a link of that name stands for, is there.
func (e entries) has(file string) bool {
	found, ok := e[path.Clean(file)]
	if ok && found.link != "" {
		found, ok = e[found.link]
		return ok && found.link == ""
	}
	return ok
}

// scan reads an archive to its end.
func scan(r io.Reader) (entries, error) {
	found := entries{}
	kept := 0
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, readError(err)
		}
		name := path.Clean(header.Name)
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("unsafe: its file %q lies outside the archive", header.Name)
		}
		var file entry
		switch header.Typeflag {
		case tar.TypeSymlink:
			file, err = newLink(name, header.Linkname)
		case tar.TypeReg:
			file, err = newFile(archive, name, header.Size)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		if kept += len(file.json); kept > maxJSONs {
			return nil, errors.New("its manifests are too large")
		}
		found[name] = file
	}
	// What follows the last file carries nothing, but a compressed archive's checksum is there.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, readError(err)
	}
	return found, nil
}

func newLink(name, target string) (entry, error) {
	link := path.Join(path.Dir(name), target)
	if path.IsAbs(target) || !filepath.IsLocal(link) {
		return entry{}, fmt.Errorf("unsafe: its link %q points outside the archive", name)
	}
	return entry{link: link}, nil
}

func newFile(r io.Reader, name string, size int64) (entry, error) {
	hash := sha256.New()
	content := bufio.NewReader(io.TeeReader(r, hash))
	first, err := content.Peek(1)
	if err != nil && !errors.Is(err, io.EOF) {
		return entry{}, readError(err)
	}
	var text bytes.Buffer
	into := io.Discard
	if mayBeJSON(first) && size <= maxJSON {
		into = &text
	}
	if _, err := io.Copy(into, content); err != nil {
		return entry{}, readError(err)
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if want, isBlob := strings.CutPrefix(name, ocispec.ImageBlobsDir+"/sha256/"); isBlob && want != sum {
		return entry{}, fmt.Errorf("damaged: the content of %s does not have that digest", name)
	}
	return entry{digest: digest.NewDigestFromEncoded(digest.SHA256, sum), json: text.Bytes()}, nil
}

func mayBeJSON(first []byte) bool {
	return len(first) == 1 && strings.ContainsRune("{[ \t\r\n", rune(first[0]))
}

// readError says in plain words why an archive cannot be read.
func readError(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the file is cut short")
	case errors.Is(err, tar.ErrHeader):
		return errors.New("not an image archive: it is no tar file, or a damaged one")
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return errors.New("the file is damaged: it does not decompress")
	default:
		return err
	}
}
