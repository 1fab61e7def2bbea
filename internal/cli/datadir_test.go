// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

func TestDataDirectoryComesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv(dataDirEnv, "")
	if got := defaultDataDir(); got != layout.DefaultDataDir {
		t.Errorf("without anything it is %s", got)
	}
	t.Setenv(dataDirEnv, "/elsewhere")
	if got := defaultDataDir(); got != "/elsewhere" {
		t.Errorf("the environment's is %s", got)
	}
}
