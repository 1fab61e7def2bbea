// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package atmostone

import (
	"reflect"
	"testing"
)

func TestInTheWay(t *testing.T) {
	old, next := Pod{"shop", "db-0", "u1"}, Pod{"shop", "db-0", "u2"}
	for _, test := range []struct {
		name    string
		started []Container
		want    []string
	}{
		{"nothing runs", nil, nil},
		{"the earlier pod", []Container{{"a", old}}, []string{"a"}},
		{"all containers of the earlier pod", []Container{{"a", old}, {"b", old}}, []string{"a", "b"}},
		{"two earlier pods", []Container{{"a", old}, {"b", Pod{"shop", "db-0", "u0"}}}, []string{"a", "b"}},
		{"other containers of the same pod", []Container{{"a", next}, {"b", next}}, nil},
		{"another pod of the set", []Container{{"a", Pod{"shop", "db-1", "u1"}}}, nil},
		{"a pod of that name elsewhere", []Container{{"a", Pod{"test", "db-0", "u1"}}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, c := range InTheWay(next, test.started) {
				got = append(got, c.ID)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("in the way are %v, want %v", got, test.want)
			}
		})
	}
}

// A pod that is being started late, when its successor already runs, is held up too.
func TestSuccessorIsInTheWay(t *testing.T) {
	old, next := Pod{"shop", "db-0", "u1"}, Pod{"shop", "db-0", "u2"}
	if got := InTheWay(old, []Container{{"a", next}}); len(got) != 1 {
		t.Errorf("in the way are %v, want the successor's container", got)
	}
}
