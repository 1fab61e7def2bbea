// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

// Shrink gives the shortest history that can be had from h by leaving out steps, for which breaks still is true. What it leaves out
// is tried in ever smaller pieces, until no single step can be left out.
func Shrink(h History, breaks func(History) bool) History {
	for size := max(1, len(h.Steps)/2); ; {
		shorter, ok := without(h, size, breaks)
		switch {
		case ok:
			h = shorter
		case size == 1:
			return h
		default:
			size /= 2
		}
		size = max(1, min(size, len(h.Steps)/2))
	}
}

// without leaves out as many pieces of a size as it can; false if it cannot leave out any.
func without(h History, size int, breaks func(History) bool) (History, bool) {
	found := false
	for from := 0; from < len(h.Steps); {
		shorter := h
		shorter.Steps = append(append([]Step{}, h.Steps[:from]...), h.Steps[min(from+size, len(h.Steps)):]...)
		if breaks(shorter) {
			h, found = shorter, true
			continue
		}
		from += size
	}
	return h, found
}
