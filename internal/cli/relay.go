// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// relay shows the progress lines of a detached start. It returns nil once the cluster is ready, and else the error that
// the cluster told, or errSilent when it ended without one.
func relay(from io.Reader, to io.Writer) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		switch {
		case strings.HasPrefix(line, readyMark):
			return nil
		case strings.HasPrefix(line, errorMark):
			rest, _ := io.ReadAll(lines)
			return errors.New(strings.TrimSpace(line[len(errorMark):] + string(rest)))
		case line != "":
			if _, err := fmt.Fprint(to, line); err != nil {
				return err
			}
		}
		if err != nil {
			return errSilent
		}
	}
}
