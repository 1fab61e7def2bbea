// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"slices"
	"testing"

	"github.com/ordinal-dev/ordinal/internal/sim/history"
)

// A history that breaks because of three of its steps is shortened to those.
func TestShrink(t *testing.T) {
	h := history.Draw(1, 2)
	need := []history.Step{h.Steps[1], h.Steps[len(h.Steps)/2], h.Steps[len(h.Steps)-1]}
	tries := 0
	short := history.Shrink(h, func(h history.History) bool {
		tries++
		left := need
		for _, s := range h.Steps {
			if len(left) > 0 && s == left[0] {
				left = left[1:]
			}
		}
		return len(left) == 0
	})
	if !slices.Equal(short.Steps, need) {
		t.Errorf("of %d steps %v are left after %d tries", len(h.Steps), short.Steps, tries)
	}
}

// A history that breaks without any step is shortened to none.
func TestShrinkToNothing(t *testing.T) {
	short := history.Shrink(history.Draw(1, 3), func(history.History) bool { return true })
	if len(short.Steps) > 0 {
		t.Errorf("left are %v", short.Steps)
	}
}

// The same seed and number give the same history, and others give another.
func TestDraw(t *testing.T) {
	if a, b := history.Draw(7, 9), history.Draw(7, 9); a.String() != b.String() {
		t.Errorf("two draws are\n%s\n%s", a, b)
	}
	if a, b := history.Draw(7, 9), history.Draw(7, 10); a.String() == b.String() {
		t.Errorf("two histories are\n%s", a)
	}
}
