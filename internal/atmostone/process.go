// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package atmostone

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a process that lives. Its descriptor means that process also after it has ended and its number was given away.
type process struct {
	pid, fd int
}

// livingProcesses are all processes of a container, found by its ID in the names of their control groups: also those that
// outlive the first one, and those that somebody runs in it. Whoever calls it closes them.
func livingProcesses(root, container string) ([]process, error) {
	groups, err := filepath.Glob(filepath.Join(root, "[0-9]*", "cgroup"))
	if err != nil {
		return nil, err
	}
	var alive []process
	for _, file := range groups {
		content, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(content, []byte(container)) {
			continue // it has ended, or is somebody else's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		p, err := open(pid)
		if err != nil {
			closeAll(alive)
			return nil, err
		}
		if p != nil {
			alive = append(alive, *p)
		}
	}
	return alive, nil
}

// open gives a process, or nil if it has ended. One whose parent has not yet asked how it ended counts as ended.
func open(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	p := process{pid: pid, fd: fd}
	ended, err := anyEnded([]process{p}, 0)
	if err != nil || ended {
		closeAll([]process{p})
		return nil, err
	}
	return &p, nil
}

// anyEnded tells whether one of the processes has ended, or ends within the limit.
func anyEnded(all []process, limit time.Duration) (bool, error) {
	fds := make([]unix.PollFd, len(all))
	for i, p := range all {
		fds[i] = unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN}
	}
	n, err := unix.Poll(fds, int(limit.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("wait for processes: %w", err)
	}
	return n > 0, nil
}

func closeAll(all []process) {
	for _, p := range all {
		_ = unix.Close(p.fd)
	}
}

// describe says which process it is, for people.
func (p process) describe(root string) string {
	name, err := os.ReadFile(filepath.Join(root, strconv.Itoa(p.pid), "comm"))
	if err != nil {
		return fmt.Sprintf("process %d", p.pid)
	}
	return fmt.Sprintf("process %d (%s)", p.pid, strings.TrimSpace(string(name)))
}
