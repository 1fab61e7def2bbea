// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// stand is what an image of the suite is made of here.
type stand struct {
	// archive holds the image that everything else goes on top of.
	archive string
	// tools is set if the programs of the tools directory are wanted.
	tools bool
	// agnhost is set if the program agnhost is wanted; it is then what the image runs.
	agnhost bool
}

// stands are the images that we have something for, by their names without host and tag. Pods that ask for another one never run.
func stands(o options) map[string]stand {
	busybox := filepath.Join(o.images, "busybox.tar")
	return map[string]stand{
		"e2e-test-images/agnhost":           {archive: busybox, tools: true, agnhost: true},
		"e2e-test-images/busybox":           {archive: busybox},
		"e2e-test-images/glibc-dns-testing": {archive: busybox, tools: true},
		"e2e-test-images/nginx":             {archive: filepath.Join(o.images, "nginx.tar")},
		"pause":                             {archive: filepath.Join(o.bin, "pause.tar")},
	}
}

// wantedImages asks the suite for the names of its images.
func wantedImages(ctx context.Context, suite string) ([]string, error) {
	out, err := exec.CommandContext(ctx, suite, "--list-images").Output()
	if err != nil {
		return nil, fmt.Errorf("ask the suite for its images: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// writeArchives makes an archive in dir for each of the names that there is a stand for, under exactly that name.
func writeArchives(dir string, names []string, o options) ([]string, error) {
	from := stands(o)
	var files []string
	for _, name := range names {
		_, local, _ := strings.Cut(name, "/")
		kind, tag, _ := strings.Cut(local, ":")
		s, ok := from[kind]
		if !ok {
			continue
		}
		img, err := s.build(name, o)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		file := filepath.Join(dir, path.Base(kind)+"-"+tag+".tar")
		if err := image.WriteArchive(file, name, img); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, errors.New("the suite asks for none of the images that there is something for")
	}
	return files, nil
}

// build makes the image. Its name is in a label: equal images would have one ID, and a pod's status could name either.
func (s stand) build(name string, o options) (v1.Image, error) {
	img, err := tarball.ImageFromPath(s.archive, nil)
	if err != nil {
		return nil, err
	}
	files, err := s.files(o)
	if err != nil {
		return nil, err
	}
	if len(files) > 0 {
		if img, err = onTop(img, files); err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	changed := config.Config
	if s.agnhost {
		changed.Entrypoint, changed.Cmd = []string{"/agnhost"}, []string{"pause"}
	}
	changed.Labels = map[string]string{"name": name}
	return mutate.Config(img, changed)
}

// files are what goes on top of the archive's image.
func (s stand) files(o options) ([]image.File, error) {
	var files []image.File
	if s.tools {
		found, err := tree(o.program("tools"))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if s.agnhost {
		found, err := tree(o.program("agnhost"))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
		files = append(files,
			image.File{Path: "agnhost-2", Mode: fs.ModeSymlink | 0o777, Link: "agnhost"},
			image.File{Path: "uploads", Mode: fs.ModeDir | 0o755})
	}
	return files, nil
}

// onTop adds a layer of files to an image.
func onTop(img v1.Image, files []image.File) (v1.Image, error) {
	built, err := image.Build(image.Spec{Files: files})
	if err != nil {
		return nil, err
	}
	layers, err := built.Layers()
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layers...)
}

// tree reads all files and links below a directory, as an image has them. What packages keep in /bin, /sbin, /lib and /lib64 goes
// below /usr, because the image that it is laid upon has links there.
func tree(dir string) ([]image.File, error) {
	var files []image.File
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := fileOf(dir, name, entry)
		files = append(files, f)
		return err
	})
	return files, err
}

func fileOf(dir, name string, entry fs.DirEntry) (image.File, error) {
	info, err := entry.Info()
	if err != nil {
		return image.File{}, err
	}
	within, err := filepath.Rel(dir, name)
	if err != nil {
		return image.File{}, err
	}
	switch top, _, _ := strings.Cut(within, "/"); top {
	case "bin", "sbin", "lib", "lib64":
		within = "usr/" + within
	}
	f := image.File{Path: within, Mode: info.Mode()}
	if entry.Type() == fs.ModeSymlink {
		f.Link, err = os.Readlink(name)
	} else {
		f.Data, err = os.ReadFile(name)
	}
	return f, err
}
