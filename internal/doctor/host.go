// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// host is all that the checks know about the machine; tests give one that is made up.
type host struct {
	// root is the host's file system from / on, /proc and /sys included.
	root fs.FS
	// uid is the effective user.
	uid int
	// getenv reads the environment.
	getenv func(string) string
	// output runs a program and gives its standard output.
	output func(ctx context.Context, name string, args ...string) (string, error)
	// addresses are the host's interface addresses, by interface.
	addresses func() (map[string][]netip.Prefix, error)
	// statfs describes the file system that holds an existing path.
	statfs func(path string) (filesystem, error)
	// writable says why an existing path cannot be written to.
	writable func(path string) error
}

// filesystem is the part of statfs(2) that the checks need.
type filesystem struct {
	// kind is the magic number of the type.
	kind int64
	// free is the space in bytes that the superuser can still fill.
	free uint64
	// readOnly says that it is mounted so.
	readOnly bool
}

func newHost() *host {
	return &host{
		root:      os.DirFS("/"),
		uid:       os.Geteuid(),
		getenv:    os.Getenv,
		output:    output,
		addresses: addresses,
		statfs:    statfs,
		writable:  func(path string) error { return syscall.Access(path, 2) },
	}
}

// output gives a program two seconds: a check that hangs must not keep a cluster from saying what is wrong.
func output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return string(out), err
}

func addresses() (map[string][]netip.Prefix, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	found := map[string][]netip.Prefix{}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				found[i.Name] = append(found[i.Name], p)
			}
		}
	}
	return found, nil
}

func statfs(path string) (filesystem, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return filesystem{}, err
	}
	return filesystem{
		kind:     s.Type,
		free:     s.Bavail * uint64(s.Bsize),
		readOnly: s.Flags&syscall.MS_RDONLY != 0,
	}, nil
}

// name turns an absolute path into the name that the host's file system knows it by.
func name(file string) string {
	if n := strings.TrimPrefix(path.Clean(filepath.ToSlash(file)), "/"); n != "" {
		return n
	}
	return "."
}

// read gives a file's content without the white space around it, or "" if it cannot be read.
func (h *host) read(file string) string {
	content, err := fs.ReadFile(h.root, name(file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

func (h *host) exists(file string) bool {
	_, err := fs.Stat(h.root, name(file))
	return err == nil
}

func (h *host) executable(file string) bool {
	info, err := fs.Stat(h.root, name(file))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// lookPath finds a program on the path, and where system programs are even if the path leaves that out, as
// an ordinary user's does.
func (h *host) lookPath(program string) (string, bool) {
	dirs := filepath.SplitList(h.getenv("PATH"))
	for _, dir := range append(dirs, "/usr/local/sbin", "/usr/sbin", "/sbin") {
		if file := path.Join(dir, program); path.IsAbs(dir) && h.executable(file) {
			return file, true
		}
	}
	return "", false
}

// mountedReadOnly says whether the mount that holds a path does not let it be written to.
func (h *host) mountedReadOnly(file string) bool {
	best, readOnly := "", false
	for line := range strings.Lines(h.read("/proc/self/mounts")) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !within(file, fields[1]) || len(fields[1]) < len(best) {
			continue
		}
		options := "," + fields[3] + ","
		best, readOnly = fields[1], strings.Contains(options, ",ro,")
	}
	return readOnly
}

func within(file, dir string) bool {
	return dir == "/" || file == dir || strings.HasPrefix(file, dir+"/")
}
