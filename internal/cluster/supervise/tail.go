// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// tailSize is how much of a child's last output is kept for error messages.
const tailSize = 8 << 10

// tail passes a child's output on and keeps its end.
type tail struct {
	next io.Writer

	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.last = append(t.last, p...)
	if extra := len(t.last) - tailSize; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	t.mu.Unlock()
	// A log that cannot be written (a full disk, say) must not end the child, so its error is not passed on.
	_, _ = t.next.Write(p)
	return len(p), nil
}

// lastLine is the last line that tells an error, or else the last line that is not empty.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.last), []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(string(lines[i])); looksLikeError(line) {
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
	for _, word := range []string{"error:", "panic:", "fatal", "\"level\":\"error\"", "level=error"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return len(line) > 1 && (line[0] == 'E' || line[0] == 'F') && line[1] >= '0' && line[1] <= '9'
}
