// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/ordinal-dev/ordinal/test/ports"
)

// A second `up` changes nothing for the first, wherever its data is to be.
func TestSecondUpIsRefused(t *testing.T) {
	s := onShared(t)
	s.webOf(1, withoutClaims)
	before, lives := s.cluster.mustStatus(t), s.lives()

	t.Run("same data", func(t *testing.T) {
		out := s.cluster.run(t.Context(), s.cluster.upArgs()...)
		checkRefusal(t, out, regexp.QuoteMeta(s.cluster.data), `ordinal (down|status)`)
	})
	t.Run("other data", func(t *testing.T) {
		other := *s.cluster
		other.data = filepath.Join(t.TempDir(), "other")
		port, err := ports.Any(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other.port = port
		checkRefusal(t, other.run(t.Context(), other.upArgs()...), `ordinal (down|status)`)
		if exists(other.data) {
			t.Errorf("it has begun to fill %s", other.data)
		}
	})
	for name, part := range s.cluster.mustStatus(t) {
		if part.PID != before[name].PID || part.State != running {
			t.Errorf("%s was disturbed: it was %+v and is %+v", name, before[name], part)
		}
	}
	s.checkSameLives(lives)
}
