// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// lock takes a lock that only one cluster may hold. The kernel lets go of it when this process ends, however it ends.
func (c *Cluster) lock(path string) error {
	held, err := takeLock(path)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return c.alreadyRunning(path)
	}
	if err != nil {
		return err
	}
	c.locks = append(c.locks, held)
	if err := errors.Join(held.Truncate(0), writeAt(held, fmt.Sprintf("%d %s\n", os.Getpid(), c.data))); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

func (c *Cluster) alreadyRunning(lock string) error {
	content, _ := os.ReadFile(lock)
	pid, dir, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
	return fmt.Errorf("a cluster already runs on this host (pid %s, data directory %s); use it, or stop it with: ordinal down --data-dir %s",
		pid, dir, dir)
}

func (c *Cluster) unlock() {
	for _, file := range c.locks {
		_ = file.Close()
	}
	c.locks = nil
}

// takeLock locks a file for this process alone, or gives EWOULDBLOCK.
func takeLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}

// isLocked tells whether some process holds a lock.
func isLocked(path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open lock: %w", err)
	}
	defer func() { _ = file.Close() }()
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Running tells whether a cluster runs on this host, whatever its data directory.
func Running(context.Context) bool {
	held, err := isLocked(layout.HostLock)
	return err == nil && held
}

// makePrivate makes a directory that only root may enter.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return os.Chmod(dir, 0o700)
}

func selfName() string {
	self, err := os.Executable()
	if err != nil {
		return "ordinal"
	}
	return filepath.Base(self)
}
