// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package ordinal

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets every run test the same random names. Others are had with -rapid.seed, and more with -rapid.checks.
func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.nofailfile": "true"} {
		f := flag.Lookup(name)
		if f.Value.String() != f.DefValue {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
