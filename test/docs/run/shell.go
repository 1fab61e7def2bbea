// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endMark begins the line that ends what a command prints.
const endMark = "\x00end "

// shell is a shell in which commands run one after the other, as a reader would type them.
type shell struct {
	// reader makes of what is printed here what a reader would see: their data directory, for example.
	reader  *strings.Replacer
	process *exec.Cmd
	in      io.Writer
	out     *bufio.Reader
}

// newShell starts a shell in a directory.
func newShell(ctx context.Context, dir string, env []string, reader *strings.Replacer) (*shell, error) {
	process := exec.CommandContext(ctx, "bash", "--noprofile", "--norc")
	process.Dir, process.Env, process.Stderr = dir, env, os.Stderr
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process.Cancel = func() error { return syscall.Kill(-process.Process.Pid, syscall.SIGKILL) }
	in, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	return &shell{reader, process, in, bufio.NewReader(out)}, nil
}

// run runs a command, and gives the lines that it prints, errors too, and its exit code. The code is what $? is for the next one.
func (s *shell) run(command string) (printed []string, code int, err error) {
	quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
	script := `eval ` + quoted + ` 2>&1 </dev/null; (code=$?; printf '\n\0end %d\n' $code; exit $code)` + "\n"
	if _, err := io.WriteString(s.in, script); err != nil {
		return nil, 0, fmt.Errorf("write to the shell: %w", err)
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			return printed, 0, fmt.Errorf("the shell has ended: %w", err)
		}
		line = strings.TrimRight(line, "\r\n")
		if rest, isEnd := strings.CutPrefix(line, endMark); isEnd {
			code, err := strconv.Atoi(rest)
			return trimmed(printed), code, err
		}
		printed = append(printed, s.reader.Replace(line))
	}
}

// trimmed are lines without the empty ones at the end.
func trimmed(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// close ends the shell, and what it has started and not left to run by itself.
func (s *shell) close() error {
	err := syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL)
	if ended := s.process.Wait(); ended == nil {
		return errors.Join(err, errors.New("the shell has ended by itself"))
	}
	return err
}
