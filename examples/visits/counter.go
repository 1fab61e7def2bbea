// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// counter counts in a file, as one decimal number. Whatever happens, the file holds a number that was counted: a new one is written beside it,
// made durable, and takes its place in one step.
type counter struct {
	file string
	mu   sync.Mutex
}

// newCounter gives the counter of a directory. It begins at 0, or where an earlier one ended.
func newCounter(dir string) (*counter, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("find the volume: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("find the volume: %s is not a directory", dir)
	}
	return &counter{file: filepath.Join(dir, "visits")}, nil
}

// value is the number counted so far.
func (c *counter) value() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

// add counts one more and gives the new number, once it is safe on disk.
func (c *counter) add() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.read()
	if err != nil {
		return 0, err
	}
	n++
	return n, c.write(n)
}

func (c *counter) read() (uint64, error) {
	data, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s holds %s, not a number: it is left as it is; correct it or move it away", c.file, excerpt(data))
	}
	return n, nil
}

// excerpt quotes the beginning of a file.
func excerpt(data []byte) string {
	const most = 40
	if len(data) > most {
		return strconv.Quote(string(data[:most])) + "…"
	}
	return strconv.Quote(string(data))
}

func (c *counter) write(n uint64) error {
	next := c.file + ".next"
	if err := writeDurably(next, strconv.AppendUint(nil, n, 10)); err != nil {
		return err
	}
	if err := os.Rename(next, c.file); err != nil {
		return err
	}
	// The new name is safe only when the directory is.
	return syncDir(filepath.Dir(c.file))
}

func writeDurably(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
