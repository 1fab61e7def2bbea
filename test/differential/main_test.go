// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"os"
	"testing"
)

// tally counts what was compared. Tests run one after the other, as they share the incumbent's feature gates.
type tally struct {
	worlds, histories, templates int
}

var compared tally

// String is the summary of a run that ended with the given exit code.
func (c tally) String(code int) string {
	found := "no difference but for the named exceptions"
	if code != 0 {
		found = "DIFFERENT, as told above"
	}
	return fmt.Sprintf("differential: seed %d, %d worlds, %d histories, %d templates: %s", *seed, c.worlds, c.histories, c.templates, found)
}

// TestMain ends the output with one line that tells what was compared, and with which result.
func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Println(compared.String(code))
	os.Exit(code)
}
