// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ordinal translates between ordinals and the names of pods and claims.
package ordinal

import (
	"iter"
	"math"
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
	return template + "-" + PodName(set, ordinal)
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

// Range is a run of ordinals: Start, Start+1, … of length Count.
type Range struct {
	Start, Count int
}

// RangeOf is the range of ordinals that set asks for. It ends at the largest ordinal that a name can carry.
func RangeOf(set *appsv1.StatefulSet) Range {
	r := Range{Count: 1}
	if set.Spec.Replicas != nil {
		r.Count = max(0, int(*set.Spec.Replicas))
	}
	if set.Spec.Ordinals != nil {
		r.Start = max(0, int(set.Spec.Ordinals.Start))
	}
	r.Count = min(r.Count, math.MaxInt32-r.Start+1)
	return r
}

// End is the first ordinal after the range.
func (r Range) End() int {
	return r.Start + r.Count
}

// Contains tells if the range holds n.
func (r Range) Contains(n int) bool {
	return n >= r.Start && n < r.End()
}
