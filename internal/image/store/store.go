// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store puts image archives into the container runtime, and lists what it has.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// namespace is where the kubelet's side of containerd looks for images.
	namespace = "k8s.io"
	// visibleWithin bounds the wait for the kubelet's side to notice a new image, and to be ready at all when the runtime just started.
	visibleWithin = 30 * time.Second
)

// Image is one name of an image that the runtime has.
type Image struct {
	// Name is the full name without tag and digest.
	Name string `json:"name"`
	// Tag is empty for an image that is named by its digest only.
	Tag string `json:"tag,omitempty"`
	// Digest is that of the image's manifest or index.
	Digest digest.Digest `json:"digest"`
	// Size is what the image takes compressed, in bytes.
	Size int64 `json:"size"`
}

// Reference is the name by which a pod uses the image.
func (i Image) Reference() string {
	if i.Tag == "" {
		return i.Name + "@" + i.Digest.String()
	}
	return i.Name + ":" + i.Tag
}

// runtime is a connection to containerd.
type runtime struct {
	*client.Client
}

// connect reaches the runtime, or says at once why it cannot.
func connect(ctx context.Context, socket string) (runtime, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return runtime{}, fmt.Errorf("reach the container runtime at %s: permission denied: try it as root", socket)
	case err != nil:
		return runtime{}, fmt.Errorf("the container runtime is not running (nothing answers at %s): start it with `ordinal up`", socket)
	}
	_ = conn.Close()
	c, err := client.New(socket, client.WithDefaultNamespace(namespace))
	if err != nil {
		return runtime{}, fmt.Errorf("reach the container runtime at %s: %w", socket, err)
	}
	return runtime{c}, nil
}

// List lists the runtime's images by name.
func List(ctx context.Context, socket string) ([]Image, error) {
	r, err := connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	stored, err := r.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	return r.tabulate(ctx, stored)
}

// tabulate makes the list that is shown. Images that have a tag are not shown once more by their digest.
func (r runtime) tabulate(ctx context.Context, stored []client.Image) ([]Image, error) {
	list := make([]Image, 0, len(stored))
	tagged := map[Image]bool{}
	for _, img := range stored {
		named, err := reference.ParseNamed(img.Name())
		if err != nil {
			continue // the runtime's own name for it, a bare digest
		}
		found := Image{Name: named.Name(), Digest: img.Target().Digest}
		if t, ok := named.(reference.Tagged); ok {
			tagged[found] = true
			found.Tag = t.Tag()
		}
		// What is missing is for other platforms, and not counted.
		if found.Size, err = img.Size(ctx); err != nil && !errdefs.IsNotFound(err) {
			return nil, fmt.Errorf("measure image %s: %w", img.Name(), err)
		}
		list = append(list, found)
	}
	list = slices.DeleteFunc(list, func(i Image) bool { return i.Tag == "" && tagged[Image{Name: i.Name, Digest: i.Digest}] })
	slices.SortFunc(list, func(a, b Image) int { return cmp.Compare(a.Reference(), b.Reference()) })
	return list, nil
}

// awaitVisible waits until the kubelet's side of the runtime knows an image by name. It learns of new images by events.
func (r runtime) awaitVisible(ctx context.Context, name string) error {
	conn, ok := r.Conn().(grpc.ClientConnInterface)
	if !ok {
		return fmt.Errorf("the runtime's client speaks %T, not gRPC", r.Conn())
	}
	service := cri.NewImageServiceClient(conn)
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, visibleWithin, true, func(ctx context.Context) (bool, error) {
		var res *cri.ImageStatusResponse
		res, last = service.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		return last == nil && res.GetImage() != nil, nil
	})
	if err != nil {
		return fmt.Errorf("image %s is imported, but the container runtime does not offer it to the kubelet: %w", name, errors.Join(last, err))
	}
	return nil
}

// fits tells whether an image can run on this machine; if not, the error names the platforms that it is for.
func (r runtime) fits(ctx context.Context, img images.Image) error {
	found, err := images.Platforms(ctx, r.ContentStore(), img.Target)
	if err != nil {
		return fmt.Errorf("read the platform of image %s: %w", img.Name, err)
	}
	here := platforms.Default()
	names := make([]string, 0, len(found))
	for _, p := range found {
		if here.Match(p) {
			return nil
		}
		names = append(names, platforms.Format(p))
	}
	if len(names) == 0 {
		return fmt.Errorf("%s is not an image that a container can run", img.Name)
	}
	return fmt.Errorf("image %s is for %s, this machine is %s", img.Name, strings.Join(names, ", "), platforms.DefaultString())
}
