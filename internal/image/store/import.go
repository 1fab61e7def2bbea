// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// pinned is the label that keeps the kubelet from deleting an image when the disk fills up: an imported image may be in no registry, so it
// could not come back.
const pinned = "io.cri-containerd.pinned"

// Archive is a file that holds images.
type Archive struct {
	// Path is the file: an OCI layout in a tar file or a docker archive, plain or compressed by gzip.
	Path string
	// Label is what errors call the file; the path if it is empty.
	Label string
}

func (a Archive) String() string { return cmp.Or(a.Label, a.Path) }

// ImportOptions say what to import.
type ImportOptions struct {
	Archives []Archive
	// Name names the image of an archive that gives its one image no name. It is an error if there is no such image.
	Name string
	// Report, unless nil, is called with each name of an image once pods can use it.
	Report func(Image)
}

// Import puts the images of archives into the runtime. All archives are checked before the first is imported, and of one archive all images
// are unpacked, which checks their layers, before the first gets its name.
func Import(ctx context.Context, socket string, o ImportOptions) error {
	r, err := connect(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for _, a := range o.Archives {
		contents, err := image.Inspect(a.Path)
		if err == nil {
			err = checkNames(contents, o.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	for _, a := range o.Archives {
		if err := r.importArchive(ctx, a, o); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

// EnsureImported imports an archive unless the runtime has all its images already, under their names. Then it does next to nothing.
func EnsureImported(ctx context.Context, socket, file string) error {
	contents, err := image.Inspect(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	r, err := connect(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for _, c := range contents {
		has, err := r.has(ctx, c)
		if err != nil {
			return fmt.Errorf("look for image %s: %w", c.Name, err)
		}
		if !has {
			return Import(ctx, socket, ImportOptions{Archives: []Archive{{Path: file}}})
		}
	}
	return nil
}

// checkNames tells whether every image will have a name.
func checkNames(contents []image.Content, name string) error {
	unnamed := map[image.Content]bool{}
	for _, c := range contents {
		if c.Name == "" {
			unnamed[c] = true
		}
	}
	switch {
	case len(unnamed) == 0 && name != "":
		return fmt.Errorf("its images have names already (%s), --name is for one that has none", contents[0].Name)
	case len(unnamed) > 0 && name == "":
		return errors.New("the archive gives its image no name: give it one with --name NAME:TAG")
	case len(unnamed) > 1:
		return fmt.Errorf("the archive gives %d images no name, and one --name is not enough", len(unnamed))
	}
	if name != "" {
		_, err := image.FullName(name)
		return err
	}
	return nil
}

// has tells whether an image is in the runtime, unpacked and under its name.
func (r runtime) has(ctx context.Context, c image.Content) (bool, error) {
	if c.Name == "" {
		return false, nil
	}
	img, err := r.GetImage(ctx, c.Name)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	config, err := img.Config(ctx)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if img.Target().Digest != c.Target && config.Digest != c.Config {
		return false, nil
	}
	return img.IsUnpacked(ctx, "")
}

// importArchive makes the images of one archive usable, or leaves no trace of them. Until it has ended, a lease keeps what was written.
func (r runtime) importArchive(ctx context.Context, a Archive, o ImportOptions) (err error) {
	lease, err := r.LeasesService().Create(ctx, leases.WithRandomID(), leases.WithExpiration(time.Hour))
	if err != nil {
		return fmt.Errorf("lease room for the image: %w", err)
	}
	defer func() {
		var options []leases.DeleteOpt
		if err != nil {
			options = append(options, leases.SynchronousDelete) // clear away now what was written
		}
		err = errors.Join(err, r.LeasesService().Delete(context.WithoutCancel(ctx), lease, options...))
	}()
	found, err := r.load(quiet(leases.WithLease(ctx, lease.ID)), a.Path, o.Name)
	if err != nil {
		return err
	}
	for _, img := range found {
		if err := r.record(ctx, img); err != nil {
			return err
		}
	}
	for _, img := range found {
		if err := r.awaitVisible(ctx, img.Name); err != nil {
			return err
		}
	}
	return r.report(ctx, found, o.Report)
}

// quiet keeps the client from logging what it returns as an error anyway.
func quiet(ctx context.Context) context.Context {
	logger := logrus.New()
	logger.SetOutput(io.Discard)
	return log.WithLogger(ctx, logrus.NewEntry(logger))
}

// load writes an archive's content to the runtime's store and unpacks its images, which nothing refers to yet.
func (r runtime) load(ctx context.Context, file, name string) ([]images.Image, error) {
	in, err := image.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	top, err := archive.ImportIndex(ctx, r.ContentStore(), in)
	if err != nil {
		return nil, fmt.Errorf("store the archive: %w", err)
	}
	blob, err := content.ReadBlob(ctx, r.ContentStore(), top)
	if err != nil {
		return nil, fmt.Errorf("read the archive's index: %w", err)
	}
	var index ocispec.Index
	if err := json.Unmarshal(blob, &index); err != nil {
		return nil, fmt.Errorf("read the archive's index: %w", err)
	}
	found := make([]images.Image, 0, len(index.Manifests))
	for _, m := range index.Manifests {
		img, err := newImage(m, name)
		if err != nil {
			return nil, err
		}
		if err := r.unpack(ctx, img); err != nil {
			return nil, err
		}
		found = append(found, img)
	}
	return found, nil
}

// newImage is the runtime's entry for an image of an archive. The label that makes it the kubelet's is not among its own: the kubelet's side
// of the runtime sets it once it has made the other entries that it needs.
func newImage(target ocispec.Descriptor, name string) (images.Image, error) {
	own, err := image.LayoutName(target.Annotations)
	if err != nil {
		return images.Image{}, err
	}
	if own == "" {
		if own, err = image.FullName(name); err != nil {
			return images.Image{}, err
		}
	}
	return images.Image{Name: own, Target: target, Labels: map[string]string{pinned: "pinned"}}, nil
}

// unpack checks an image, ties its parts together for the runtime's garbage collector, and unpacks its layers.
func (r runtime) unpack(ctx context.Context, img images.Image) error {
	if err := r.fits(ctx, img); err != nil {
		return err
	}
	cs := r.ContentStore()
	parts := images.SetChildrenLabels(cs, images.FilterPlatforms(images.ChildrenHandler(cs), platforms.Default()))
	if err := images.WalkNotEmpty(ctx, parts, img.Target); err != nil {
		return fmt.Errorf("read image %s: %w", img.Name, err)
	}
	if err := client.NewImage(r.Client, img).Unpack(ctx, ""); err != nil {
		return fmt.Errorf("unpack image %s: %w", img.Name, err)
	}
	return nil
}

// record gives an image its name, instead of the image that had it.
func (r runtime) record(ctx context.Context, img images.Image) error {
	_, err := r.ImageService().Create(ctx, img)
	if errdefs.IsAlreadyExists(err) {
		_, err = r.ImageService().Update(ctx, img, "target", "labels")
	}
	if err != nil {
		return fmt.Errorf("name image %s: %w", img.Name, err)
	}
	return nil
}

func (r runtime) report(ctx context.Context, found []images.Image, report func(Image)) error {
	if report == nil {
		return nil
	}
	stored := make([]client.Image, 0, len(found))
	for _, img := range found {
		stored = append(stored, client.NewImage(r.Client, img))
	}
	list, err := r.tabulate(ctx, stored)
	if err != nil {
		return err
	}
	for _, img := range list {
		report(img)
	}
	return nil
}
