// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
)

const (
	minDisk  = 1 * gib
	wantDisk = 5 * gib
)

// Types of file systems, as statfs(2) numbers them.
const (
	fuseMagic    = 0x65735546
	nfsMagic     = 0x6969
	ninePMagic   = 0x01021997
	overlayMagic = 0x794c7630
	smb2Magic    = 0xfe534d42
	cifsMagic    = 0xff534d42
	tmpfsMagic   = 0x01021994
	vfatMagic    = 0x4d44
)

// unfit are the file systems on which container images cannot be unpacked: overlayfs keeps its upper layer there, which
// needs extended attributes, whiteouts and d_type.
func unfit(kind int64) (string, bool) {
	names := map[int64]string{
		fuseMagic:    "FUSE",
		nfsMagic:     "NFS",
		ninePMagic:   "9p",
		overlayMagic: "overlay",
		smb2Magic:    "SMB",
		cifsMagic:    "CIFS",
		vfatMagic:    "FAT",
	}
	name, found := names[kind&0xffffffff]
	return name, found
}

// otherDir is the remedy when the disk is the wrong one.
const otherDir = "ordinal up --data-dir DIR (on another disk)"

func checkDataDir(_ context.Context, h *host, o Options) []Result {
	dir, err := h.existing(o.DataDir)
	if err != nil {
		return fail("data directory", otherDir, "%s: %v", o.DataDir, err)
	}
	system, err := h.statfs(dir)
	if err != nil {
		return fail("data directory", otherDir, "%s: %v", dir, err)
	}
	if kind, found := unfit(system.kind); found && !o.Simulate {
		return fail("data directory", otherDir, "%s is on %s, which cannot hold container images", dir, kind)
	}
	if system.readOnly {
		return fail("data directory", otherDir, "%s is on a read-only file system", dir)
	}
	if err := h.writable(dir); err != nil {
		return fail("data directory", "chmod u+rwx "+dir, "%s cannot be written to: %v", dir, err)
	}
	if system.kind == tmpfsMagic {
		return warn("data directory", otherDir, "%s is in memory: its volumes are lost with the next reboot", dir)
	}
	if dir != path.Clean(o.DataDir) {
		return pass("data directory", "%s, to be made", o.DataDir)
	}
	return pass("data directory", "%s", o.DataDir)
}

func checkDisk(_ context.Context, h *host, o Options) []Result {
	dir, err := h.existing(o.DataDir)
	if err != nil {
		return nil // the data directory's own check tells
	}
	system, err := h.statfs(dir)
	if err != nil {
		return nil
	}
	remedy := fmt.Sprintf("du -xh --max-depth 2 %s | sort -h | tail, and free some of it", dir)
	switch {
	case system.free < minDisk:
		return fail("disk", remedy, "%s free at %s, and %s are needed", size(system.free), dir, size(minDisk))
	case system.free < wantDisk:
		return warn("disk", remedy, "%s free at %s; images and volumes soon need more", size(system.free), dir)
	default:
		return pass("disk", "%s free at %s", size(system.free), dir)
	}
}

// existing is the directory itself or the closest one above it that exists.
func (h *host) existing(dir string) (string, error) {
	if !path.IsAbs(dir) {
		return "", errors.New("not an absolute path")
	}
	for dir = path.Clean(dir); ; dir = path.Dir(dir) {
		info, err := fs.Stat(h.root, name(dir))
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a directory", dir)
		case dir == "/":
			return "", err
		}
	}
}
