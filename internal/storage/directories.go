// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
)

// Names that begin with a dot cannot be those of volumes, which begin with a namespace.
const (
	freshPrefix = ".new-"   // Being made: the volume is not in use yet.
	trashPrefix = ".trash-" // Being deleted: the rest of it goes, whatever happens.
)

// A directory's name, with either prefix, has to fit into one file name.
const maxDirectoryName = 255 - len(trashPrefix)

// directories is the volumes directory. Whatever it does below that goes through an os.Root, which nothing leads out of.
type directories struct {
	root *os.Root
	path string // As the volumes' objects name it.
	real string // As the kernel names it: without symbolic links.

	// mounts lists the mount points at and below a directory.
	mounts func(path string) ([]string, error)

	mu sync.Mutex // Held while a volume's directory gets or loses its name.
}

func openDirectories(path string) (*directories, error) {
	path = filepath.Clean(path)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make volumes directory: %w", err)
	}
	// Any container's user may write to a volume. Nobody but root gets as far from the outside.
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, fmt.Errorf("close volumes directory to other users: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open volumes directory: %w", err)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("resolve volumes directory: %w", err), root.Close())
	}
	return &directories{root: root, path: path, real: resolved, mounts: mountsBelow}, nil
}

func (d *directories) close() { _ = d.root.Close() }

// directoryName is what a volume's directory is called: found by people, unique by the volume's name, and never more
// than one path element. A claim's name that is too long for that is cut.
func directoryName(namespace, claim, volume string) (string, error) {
	for _, name := range []string{namespace, claim, volume} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return "", fmt.Errorf("name a directory for volume %q of claim %q in namespace %q: %q: %s",
				volume, claim, namespace, name, strings.Join(problems, ", "))
		}
	}
	room := maxDirectoryName - len(namespace) - len(volume) - len("__")
	if room < 1 {
		return "", fmt.Errorf("name a directory for volume %q: the name is too long", volume)
	}
	return namespace + "_" + claim[:min(room, len(claim))] + "_" + volume, nil
}

// volumeOf is the volume that a directory was named after, empty if it is no volume's.
func volumeOf(directory string) string {
	parts := strings.Split(directory, "_")
	if len(parts) != 3 || strings.HasPrefix(directory, ".") {
		return ""
	}
	return parts[2]
}

// pathOf is where kubelet finds a directory.
func (d *directories) pathOf(directory string) string { return filepath.Join(d.path, directory) }

// directoryOf is the opposite of pathOf. It fails for a path that cannot be that of the named volume.
func (d *directories) directoryOf(path, volume string) (string, error) {
	name, err := filepath.Rel(d.path, path)
	if err != nil || filepath.Base(name) != name || volumeOf(name) != volume {
		return "", fmt.Errorf("%s is not the directory of volume %s in %s: delete the files by hand, and take the volume's finalizers off",
			path, volume, d.path)
	}
	return name, nil
}

// make makes a volume's directory unless it is there, and says whether it was missing. One that is there is left as it
// is: its mode and contents may be a workload's by now.
//
// The mode lets any user of a container write, as there may be no fsGroup to say which. It is not sticky: an init
// container's files must not become immovable for the user that the main container runs as.
func (d *directories) make(name string) (made bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info, err := d.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.makeFresh(name); err != nil {
			return false, d.remedy(err)
		}
		made = true
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, fmt.Errorf("%s is in the way: move it elsewhere", d.pathOf(name))
	}
	// Also if it was there: its maker may have been interrupted before this. The object that follows is durable, so
	// must be the directory that it leads to.
	return made, d.sync()
}

// makeFresh lets the directory appear under its name with its mode already set, as that depends on the umask otherwise.
func (d *directories) makeFresh(name string) error {
	fresh := freshPrefix + name
	if err := d.root.RemoveAll(fresh); err != nil {
		return err
	}
	if err := d.root.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := d.root.Chmod(fresh, 0o777); err != nil {
		return err
	}
	return d.root.Rename(fresh, name)
}

// remove deletes a volume's directory with all that is in it. It is the same to remove one that is gone, or half gone.
// Symbolic links are deleted, not followed. If something is mounted anywhere below, nothing is touched.
func (d *directories) remove(name string) error {
	if err := d.discard(name); err != nil {
		return err
	}
	return d.empty(trashPrefix + name)
}

// discard gives the directory a name that marks it as trash, from where there is no return.
func (d *directories) discard(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.unmounted(name); err != nil {
		return err
	}
	err := d.root.Rename(name, trashPrefix+name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return d.remedy(err)
	}
	return d.sync()
}

func (d *directories) empty(trash string) error {
	if err := d.unmounted(trash); err != nil {
		return err
	}
	if err := d.root.RemoveAll(trash); err != nil {
		return d.remedy(err)
	}
	return nil
}

// emptyTrash finishes the deletions that a former process was killed in. Deleting may take long: it ends early, between
// two volumes, when ctx is done.
func (d *directories) emptyTrash(ctx context.Context) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		klog.FromContext(ctx).Error(err, "Look for unfinished deletions")
		return
	}
	for _, entry := range entries {
		if ctx.Err() != nil {
			return
		}
		if !strings.HasPrefix(entry.Name(), trashPrefix) {
			continue
		}
		if err := d.empty(entry.Name()); err != nil {
			klog.FromContext(ctx).Error(err, "Finish a deletion", "directory", entry.Name())
		}
	}
}

// dropUnused removes directories that were made for a claim which then went away before its volume was saved. They are
// empty, or they are not such directories and stay: data that no volume leads to may be all that is left of a lost
// cluster, or of a volume that was to be retained.
func (d *directories) dropUnused(wanted func(volume string) bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		volume := volumeOf(strings.TrimPrefix(entry.Name(), freshPrefix))
		if !entry.IsDir() || volume == "" || wanted(volume) {
			continue
		}
		if err := d.root.Remove(entry.Name()); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	return nil
}

// free is how many bytes the disk has left for volumes.
func (d *directories) free() (*resource.Quantity, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.path, &s); err != nil {
		return nil, fmt.Errorf("ask for free space on %s: %w", d.path, err)
	}
	return resource.NewQuantity(int64(s.Bavail)*s.Bsize, resource.BinarySI), nil
}

// sync makes names durable.
func (d *directories) sync() error {
	dir, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (d *directories) unmounted(name string) error {
	points, err := d.mounts(filepath.Join(d.real, name))
	if err != nil {
		return fmt.Errorf("look for mounts below %s: %w", d.pathOf(name), err)
	}
	if len(points) > 0 {
		return fmt.Errorf("something is mounted at %s, so the volume is not deleted: unmount it (umount %s), and the deletion goes on by itself",
			points[0], points[0])
	}
	return nil
}

// mountsBelow asks the kernel, because a bind mount of the same disk shows in no file's attributes.
func mountsBelow(path string) ([]string, error) {
	found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return nil, err
	}
	points := make([]string, 0, len(found))
	for _, m := range found {
		points = append(points, m.Mountpoint)
	}
	return points, nil
}

// remedy adds to an error what mends it, since it is going to be read in an event.
func (d *directories) remedy(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: free some space on the disk of %s (df %s); it is tried again within a minute", err, d.path, d.path)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: the disk of %s is mounted read-only, often after an error of the disk (see dmesg)", err, d.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: root must be able to write to %s and below (ls -ld, lsattr -d)", err, d.path)
	}
	return err
}
