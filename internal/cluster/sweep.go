// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/network"
)

// ownerFile notes whose containers the runtime directory holds.
func ownerFile() string { return filepath.Join(layout.RunDir, "owner") }

// adoptRunDir takes over the runtime directory. Pods that a killed `ordinal up` of the same data directory left running go
// on undisturbed; those of another data directory would be strangers to our kubelet, so they are ended first.
func adoptRunDir(data layout.Data) error {
	owner, err := os.ReadFile(ownerFile())
	if err == nil && string(owner) != string(data) {
		if err := sweep(layout.Data(owner)); err != nil {
			return fmt.Errorf("end what the cluster in %s left running: %w", owner, err)
		}
	}
	if err := os.WriteFile(ownerFile(), []byte(data), 0o600); err != nil {
		return fmt.Errorf("mark runtime directory: %w", err)
	}
	return nil
}

// Sweep ends and removes what a cluster that no longer runs has left on the host: containers, mounts, network. Its data
// stays. It must not be called while the cluster runs.
func Sweep(ctx context.Context, dataDir string) error {
	if state, err := ReadState(dataDir); err == nil && state.Simulated {
		return os.RemoveAll(layout.Data(dataDir).Run())
	}
	if owner, err := os.ReadFile(ownerFile()); err != nil || string(owner) != dataDir {
		return nil //nolint:nilerr // Nothing on this host belongs to that data directory.
	}
	binDir, err := BinDir()
	if err != nil {
		return err
	}
	return errors.Join(extendPath(binDir), sweep(layout.Data(dataDir)), network.Down(ctx))
}

// sweep ends leftover containers, unmounts and forgets them. After a stop in good order there is nothing left to do.
func sweep(data layout.Data) error {
	killLeftovers()
	errs := []error{
		unmount(layout.RunDir, func(m *mountinfo.Info) bool { return m.Mountpoint != layout.RunDir }),
		// The kubelet mounts its directory onto itself.
		unmount(data.Path("kubelet"), func(*mountinfo.Info) bool { return true }),
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, clearRunDir())
	}
	removeCgroups()
	errs = append(errs, removeLogLinks(containerLogLinks, data))
	return errors.Join(errs...)
}

// containerLogLinks is where every kubelet links the logs of its containers.
const containerLogLinks = "/var/log/containers"

// removeLogLinks removes the links that lead into the data directory. Those of others stay.
func removeLogLinks(dir string, data layout.Data) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		link := filepath.Join(dir, entry.Name())
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, string(data)+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	// It goes only if it is empty now.
	_ = unix.Rmdir(dir)
	return errors.Join(errs...)
}

// clearRunDir empties the runtime directory but for the lock that is held.
func clearRunDir() error {
	entries, err := os.ReadDir(layout.RunDir)
	if err != nil {
		return fmt.Errorf("clear runtime directory: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if path := filepath.Join(layout.RunDir, entry.Name()); path != layout.HostLock {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// killLeftovers kills the shims of our runtime with the containers that they hold.
func killLeftovers() {
	parents := processParents()
	for pid := range parents {
		if !isOurShim(pid) {
			continue
		}
		for child, parent := range parents {
			if parent == pid {
				_ = unix.Kill(child, unix.SIGKILL)
			}
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// processParents maps each process of the host to its parent.
func processParents() map[int]int {
	parents := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything, so fields are counted from its end: state, parent.
		_, rest, _ := strings.Cut(string(content[max(0, strings.LastIndexByte(string(content), ')')):]), ") ")
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(fields) < 2 {
			continue
		}
		parents[pid], _ = strconv.Atoi(fields[1])
	}
	return parents
}

func isOurShim(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(content), "\x00")
	return filepath.Base(args[0]) == "containerd-shim-runc-v2" && slices.Contains(args, layout.ContainerdSocket)
}

// unmount unmounts what is wanted of a directory and everything below, the deepest first.
func unmount(dir string, wanted func(*mountinfo.Info) bool) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	slices.SortFunc(mounts, func(a, b *mountinfo.Info) int { return len(b.Mountpoint) - len(a.Mountpoint) })
	var errs []error
	for _, mount := range mounts {
		if !wanted(mount) {
			continue
		}
		if err := unix.Unmount(mount.Mountpoint, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mount.Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}

// removeCgroups removes the empty control groups of pods. The kernel refuses to remove one that is in use.
func removeCgroups() {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/kubepods")
	roots = append(roots, "/sys/fs/cgroup/kubepods")
	for _, root := range roots {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			_ = unix.Rmdir(dir)
		}
	}
}

// Purge deletes a data directory of a stopped cluster. It refuses while anything is mounted below it: deleting would
// reach through the mount.
func Purge(dataDir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dataDir))
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, mount := range mounts {
		if mount.Mountpoint != dataDir {
			return fmt.Errorf("%s is still mounted; unmount it, then purge again: umount %s", mount.Mountpoint, mount.Mountpoint)
		}
	}
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		return fmt.Errorf("purge: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dataDir, entry.Name())))
	}
	// The directory itself stays when it is a mount point or not ours to remove.
	_ = os.Remove(dataDir)
	return errors.Join(errs...)
}
