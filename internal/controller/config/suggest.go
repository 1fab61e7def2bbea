// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
)

// near is how many letters may differ in a name that is taken for a slip.
const near = 2

// Fields are the paths of all fields that hold a value, without what says that a file is a configuration.
func Fields() []string {
	var all []string
	collect(reflect.ValueOf(new(v1alpha1.ControllerConfiguration)).Elem(), "", func(path string, hasValue bool) {
		if hasValue && path != "apiVersion" && path != "kind" {
			all = append(all, path)
		}
	})
	slices.Sort(all)
	return all
}

// collect tells of each field below a value.
func collect(v reflect.Value, path string, found func(path string, hasValue bool)) {
	for name, field := range fieldsOf(v) {
		at := strings.TrimPrefix(path+"."+name, ".")
		isGroup := field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[metav1.Duration]()
		found(at, !isGroup)
		if isGroup {
			collect(field, at, found)
		}
	}
}

// suggestion is what may have been meant by a field that does not exist: one of nearly the same path, or one of that name elsewhere.
func suggestion(path string) string {
	best, least := "", near+1
	collect(reflect.ValueOf(new(v1alpha1.ControllerConfiguration)).Elem(), "", func(known string, _ bool) {
		distance := min(edits(plain(path), plain(known)), edits(plain(last(path)), plain(last(known)))+1)
		if distance < least || distance == least && best != "" && known < best {
			best, least = known, distance
		}
	})
	if best == "" {
		return ""
	}
	return "; is it " + best + "?"
}

// last is the name of a field without the path to it.
func last(path string) string { return path[strings.LastIndex(path, ".")+1:] }

// plain is a name without what people write differently.
func plain(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

// edits is how many letters have to be put in, left out or replaced to get from one name to another.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			row[j+1] = min(row[j], above) + 1
			if a[i] == b[j] {
				row[j+1] = min(row[j+1], diagonal)
			} else {
				row[j+1] = min(row[j+1], diagonal+1)
			}
			diagonal = above
		}
	}
	return row[len(b)]
}
