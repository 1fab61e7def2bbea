// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
)

// tailSize is how much of a child's last output is kept for error messages.
const tailSize = 8 << 10

// tail passes a child's output on, and keeps its end and the line that tells why it crashed, if one does.
type tail struct {
	next io.Writer

	mu    sync.Mutex
	last  []byte
	line  []byte
	crash string
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.watch(p)
	t.last = append(t.last, p...)
	if extra := len(t.last) - tailSize; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	t.mu.Unlock()
	// A log that cannot be written (a full disk, say) must not end the child, so its error is not passed on.
	_, _ = t.next.Write(p)
	return len(p), nil
}

// watch looks for the first line of a crash. What a Go program prints after it, a dump of all its goroutines, is longer
// than what is kept of the output.
func (t *tail) watch(p []byte) {
	for piece := range bytes.Lines(p) {
		if len(t.line) < tailSize {
			t.line = append(t.line, piece...)
		}
		if !bytes.HasSuffix(piece, []byte("\n")) {
			return
		}
		if line := strings.TrimSpace(string(t.line)); t.crash == "" && beginsCrash(line) {
			t.crash = line
		}
		t.line = t.line[:0]
	}
}

func beginsCrash(line string) bool {
	for _, start := range []string{"panic:", "fatal error:", "unexpected fault address", "runtime:"} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}

// reset forgets what an earlier run printed.
func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.line, t.crash = nil, nil, ""
}

// reason is the line that most likely tells why the child ended: how it crashed, or the last line that tells an error, or
// the last line that is not empty.
func (t *tail) reason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.crash != "" {
		return t.crash
	}
	lines := bytes.Split(bytes.TrimSpace(t.last), []byte("\n"))
	for _, line := range slices.Backward(lines) {
		if line := strings.TrimSpace(string(line)); looksLikeError(line) {
			return line
		}
	}
	if last := strings.TrimSpace(string(lines[len(lines)-1])); last != "" {
		return last
	}
	return "it printed nothing"
}

func looksLikeError(line string) bool {
	lower := strings.ToLower(line)
	for _, word := range []string{"error:", "fatal", "\"level\":\"error\"", "level=error"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return len(line) > 1 && (line[0] == 'E' || line[0] == 'F') && line[1] >= '0' && line[1] <= '9'
}
