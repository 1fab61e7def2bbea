// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// debianPackage is a package file, in its download directory or yet to be downloaded.
type debianPackage struct {
	name   string
	dir    string
	file   string
	sha256 string
}

func (p debianPackage) path() string { return filepath.Join(p.dir, p.file) }

// followed are the dependencies that count for an image: libraries, and the parts of nginx and redis. The rest is for installing a package
// on a host.
var followed = regexp.MustCompile(`^(z?lib|nginx|redis)`)

// resolve finds the packages that the named ones need, in the versions that the host's package sources offer now.
func resolve(ctx context.Context, dir string, names ...string) ([]debianPackage, error) {
	all, err := closure(ctx, names)
	if err != nil {
		return nil, err
	}
	// In a directory that has a package's file already, apt-get does not list it.
	empty, err := os.MkdirTemp("", "packages-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(empty) }()
	listing, err := apt(ctx, empty, "apt-get", append([]string{"download", "--print-uris"}, all...)...)
	if err != nil {
		return nil, err
	}
	found := make([]debianPackage, 0, len(all))
	for line := range strings.Lines(listing) {
		p, err := parsePackage(line)
		if err != nil {
			return nil, err
		}
		p.dir = dir
		found = append(found, p)
	}
	if len(found) != len(all) {
		return nil, fmt.Errorf("apt-get offers %d of the %d packages %s", len(found), len(all), strings.Join(all, " "))
	}
	return found, nil
}

// parsePackage reads a line of `apt-get download --print-uris`: 'URI' FILE SIZE SHA256:SUM.
func parsePackage(line string) (debianPackage, error) {
	fields := strings.Fields(line)
	if len(fields) != 4 || fields[1] != filepath.Base(fields[1]) {
		return debianPackage{}, fmt.Errorf("apt-get says %q, and not which file a package is", strings.TrimSpace(line))
	}
	sum, ok := strings.CutPrefix(fields[3], "SHA256:")
	if !ok {
		return debianPackage{}, fmt.Errorf("apt-get knows no SHA-256 of %s", fields[1])
	}
	name, _, _ := strings.Cut(fields[1], "_")
	return debianPackage{name: name, file: fields[1], sha256: sum}, nil
}

// closure lists, sorted, the named packages and those that they depend on.
func closure(ctx context.Context, names []string) ([]string, error) {
	all := slices.Clone(names)
	for next := all; len(next) > 0; {
		args := []string{"depends"}
		for _, kind := range []string{"recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"} {
			args = append(args, "--no-"+kind)
		}
		listing, err := apt(ctx, "", "apt-cache", append(args, next...)...)
		if err != nil {
			return nil, err
		}
		next = nil
		for _, name := range dependencies(listing) {
			if followed.MatchString(name) && !slices.Contains(all, name) {
				all, next = append(all, name), append(next, name)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// dependencies reads the output of `apt-cache depends`. Of alternatives, whose lines but the last begin with a bar, it takes the first.
func dependencies(listing string) []string {
	var names []string
	alternative := false
	for line := range strings.Lines(listing) {
		kind, name, ok := strings.Cut(strings.TrimSpace(line), ": ")
		more := strings.HasPrefix(kind, "|")
		kind = strings.TrimPrefix(kind, "|")
		if ok && !alternative && (kind == "Depends" || kind == "PreDepends") {
			names = append(names, name)
		}
		alternative = more
	}
	return names
}

// apt runs a program of apt in a directory.
func apt(ctx context.Context, dir, program string, args ...string) (string, error) {
	if _, err := exec.LookPath(program); err != nil {
		return "", fmt.Errorf("the test images are made from Debian or Ubuntu packages, and this host has no %s", program)
	}
	// Root reads the files anyway, so there is no need for apt's own user to be able to write here.
	cmd := exec.CommandContext(ctx, program, append([]string{"-q", "-o", "APT::Sandbox::User=root"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s (if it lacks package lists, run: apt-get update)", program, args[0], err, lastLine(said.String()))
	}
	return string(out), nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// download fetches the package files that are not there yet.
func download(ctx context.Context, packages []debianPackage) error {
	missing := slices.DeleteFunc(slices.Clone(packages), debianPackage.isThere)
	if len(missing) == 0 {
		return nil
	}
	args := []string{"download"}
	for _, p := range missing {
		if err := os.Remove(p.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		args = append(args, p.name)
	}
	if _, err := apt(ctx, missing[0].dir, "apt-get", args...); err != nil {
		return err
	}
	for _, p := range missing {
		if !p.isThere() {
			return fmt.Errorf("apt-get download did not fetch %s", p.file)
		}
	}
	return nil
}

// isThere tells whether the whole file is in its directory.
func (p debianPackage) isThere() bool {
	data, err := os.ReadFile(p.path())
	return err == nil && fmt.Sprintf("%x", sha256.Sum256(data)) == p.sha256
}

// tree is a file system by path, with /bin, /sbin and /lib* merged into /usr as on today's hosts.
type tree map[string]image.File

// unpack downloads packages and gives their files together. Nothing is installed and no script of theirs is run.
func unpack(ctx context.Context, packages []debianPackage) (tree, error) {
	if err := download(ctx, packages); err != nil {
		return nil, err
	}
	files := tree{}
	for _, p := range packages {
		content, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", p.path()).Output()
		if err == nil {
			err = files.add(bytes.NewReader(content))
		}
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", p.file, err)
		}
	}
	return files, nil
}

func (t tree) add(r io.Reader) error {
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f := image.File{Path: merged(header.Name), Mode: header.FileInfo().Mode(), Link: header.Linkname}
		switch header.Typeflag {
		case tar.TypeSymlink:
		case tar.TypeReg:
			if f.Data, err = io.ReadAll(archive); err != nil {
				return err
			}
		case tar.TypeLink:
			f.Data, f.Link = t[merged(header.Linkname)].Data, ""
		default:
			continue
		}
		t[f.Path] = f
	}
}

// merged is where a package's file is on a host whose /bin, /sbin, /lib and /lib64 are links into /usr.
func merged(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	top, _, _ := strings.Cut(name, "/")
	switch top {
	case "bin", "sbin", "lib", "lib64":
		return "usr/" + name
	default:
		return name
	}
}
