// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ordinal translates between ordinals and the names of pods and claims.
package ordinal

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// Pod is the identity that a pod's name tells.
type Pod struct {
	Set     string
	Ordinal int
}

// PodName is the name of the pod of set with the given ordinal.
func PodName(set string, ordinal int) string {
	return set + "-" + strconv.Itoa(ordinal)
}

// ClaimName is the name of the claim that the pod of set with the given ordinal has from template.
// Volume plugins spread zones by this form, so it is part of the contract.
func ClaimName(template, set string, ordinal int) string {
	return template + "-" + set + "-" + strconv.Itoa(ordinal)
}

// ParsePod reads a pod's name. It is false for every name that PodName cannot have written: no number at the end, a
// number with leading zeros, or one beyond 32 bits. So no two names share an ordinal.
func ParsePod(name string) (Pod, bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return Pod{}, false
	}
	n, ok := parseNumber(name[i+1:])
	return Pod{Set: name[:i], Ordinal: n}, ok
}

// Of is the ordinal of the pod called name in set; false when the pod cannot be a member of set.
func Of(set, name string) (int, bool) {
	p, ok := ParsePod(name)
	return p.Ordinal, ok && p.Set == set
}

// Claim is one way to read a claim's name.
type Claim struct {
	Template string
	Pod
}

// ParseClaim gives every way in which a claim's name can be read. There are several because names of templates and sets
// may contain dashes: data-a-b-0 is claim data of a-b-0, and claim data-a of b-0.
func ParseClaim(name string) iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		p, ok := ParsePod(name)
		if !ok {
			return
		}
		for i := range len(p.Set) {
			if p.Set[i] != '-' || i == 0 || i == len(p.Set)-1 {
				continue
			}
			c := Claim{Template: p.Set[:i], Pod: Pod{Set: p.Set[i+1:], Ordinal: p.Ordinal}}
			if !yield(c) {
				return
			}
		}
	}
}

func parseNumber(s string) (int, bool) {
	if s == "" || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return int(n), err == nil
}

// Interval are the ordinals from First to Last, both included.
type Interval struct {
	First, Last int
}

// ParseInterval reads "5" or "5-7".
func ParseInterval(s string) (Interval, bool) {
	first, last, isRange := strings.Cut(s, "-")
	a, ok := parseNumber(first)
	if !isRange {
		return Interval{First: a, Last: a}, ok
	}
	b, alsoOK := parseNumber(last)
	return Interval{First: a, Last: b}, ok && alsoOK && a <= b
}

// Merge puts intervals in order, and makes one of those that overlap or touch.
func Merge(all []Interval) []Interval {
	byFirst := func(a, b Interval) int { return cmp.Compare(a.First, b.First) }
	var merged []Interval
	for _, i := range slices.SortedFunc(slices.Values(all), byFirst) {
		if n := len(merged); n > 0 && i.First <= merged[n-1].Last+1 {
			merged[n-1].Last = max(merged[n-1].Last, i.Last)
			continue
		}
		merged = append(merged, i)
	}
	return merged
}

// Range are the ordinals that run: the first Count from Start on that are not reserved.
type Range struct {
	Start, Count int
	// Reserved are the ordinals that never run, as Merge gives them.
	Reserved []Interval
}

// RangeOf is the range of ordinals that set asks for, apart from those that are reserved. It ends at the largest ordinal
// that a name can carry.
func RangeOf(set *appsv1.StatefulSet, reserved ...Interval) Range {
	r := Range{Count: 1, Reserved: Merge(reserved)}
	if set.Spec.Replicas != nil {
		r.Count = max(0, int(*set.Spec.Replicas))
	}
	if set.Spec.Ordinals != nil {
		r.Start = max(0, int(set.Spec.Ordinals.Start))
	}
	left := math.MaxInt32 - r.Start + 1
	for _, i := range r.Reserved {
		left -= max(0, i.Last-max(i.First, r.Start)+1)
	}
	r.Count = min(r.Count, max(0, left))
	return r
}

// End is the first ordinal after all that run.
func (r Range) End() int {
	end := r.Start + r.Count
	if r.Count == 0 {
		return end
	}
	for _, i := range r.Reserved {
		if i.First >= end {
			break
		}
		end += max(0, i.Last-max(i.First, r.Start)+1)
	}
	return end
}

// All are the ordinals that run, ascending.
func (r Range) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		n, next := r.Start, 0
		for range r.Count {
			for ; next < len(r.Reserved) && r.Reserved[next].First <= n; next++ {
				n = max(n, r.Reserved[next].Last+1)
			}
			if !yield(n) {
				return
			}
			n++
		}
	}
}

// Below is how many ordinals below n run.
func (r Range) Below(n int) int {
	below := max(0, n-r.Start)
	for _, i := range r.Reserved {
		below -= max(0, min(i.Last, n-1)-max(i.First, r.Start)+1)
	}
	return min(below, r.Count)
}

// Contains tells if the ordinal runs.
func (r Range) Contains(n int) bool {
	return n >= r.Start && n < r.End() && !IsIn(r.Reserved, n)
}

// IsIn tells if one of the intervals holds n.
func IsIn(intervals []Interval, n int) bool {
	return slices.ContainsFunc(intervals, func(i Interval) bool { return n >= i.First && n <= i.Last })
}
