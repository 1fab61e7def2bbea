// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"io"
	"os"
)

// NewLogFile makes a writer that opens its file at the first write, so that what says nothing leaves none.
func NewLogFile(path string) io.Writer { return &logFile{path: path} }

type logFile struct {
	path string
	file *os.File
}

func (l *logFile) Write(b []byte) (int, error) {
	if l.file == nil {
		file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	return l.file.Write(b)
}
