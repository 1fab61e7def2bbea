// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Field is a field that would change.
type Field struct {
	// Path names elements of lists by their names: spec.template.spec.containers[main].image.
	Path string `json:"path"`
	// From and To are its values; nil if it is not there.
	From any `json:"from,omitempty"`
	To   any `json:"to,omitempty"`
}

// fieldsOf are the fields in which two versions of an object differ, apart from what the server keeps for itself.
func fieldsOf(before, after runtime.Object) ([]Field, error) {
	a, err := content(before)
	if err != nil {
		return nil, err
	}
	b, err := content(after)
	if err != nil {
		return nil, err
	}
	return differ("", a, b), nil
}

// lastApplied is the annotation in which kubectl apply keeps what was applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// content is what people write of an object.
func content(o runtime.Object) (map[string]any, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", o, err)
	}
	m = runtime.DeepCopyJSON(m)
	for _, kept := range []string{"apiVersion", "kind", "status"} {
		delete(m, kept)
	}
	for _, kept := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(m, "metadata", kept)
	}
	unstructured.RemoveNestedField(m, "metadata", "annotations", lastApplied)
	if spec, ok := m["spec"].(map[string]any); ok {
		bareTemplates(spec)
	}
	if annotations, _, _ := unstructured.NestedMap(m, "metadata", "annotations"); len(annotations) == 0 {
		unstructured.RemoveNestedField(m, "metadata", "annotations")
	}
	return m, nil
}

func differ(path string, a, b any) []Field {
	if equality.Semantic.DeepEqual(a, b) {
		return nil
	}
	x, y, ok := elements(a, b)
	if !ok {
		return []Field{{Path: path, From: a, To: b}}
	}
	keys := slices.Sorted(maps.Keys(x))
	for _, key := range slices.Sorted(maps.Keys(y)) {
		if _, has := x[key]; !has {
			keys = append(keys, key)
		}
	}
	var fields []Field
	for _, key := range keys {
		fields = append(fields, differ(path+key, x[key], y[key])...)
	}
	if path == "" {
		for i := range fields {
			fields[i].Path = fields[i].Path[1:]
		}
	}
	return fields
}

// elements are the parts of two values by how a path names them; false if they cannot be compared by parts.
func elements(a, b any) (x, y map[string]any, ok bool) {
	switch a := a.(type) {
	case map[string]any:
		b, same := b.(map[string]any)
		return members(a), members(b), same
	case []any:
		b, same := b.([]any)
		x, xNamed := named(a)
		y, yNamed := named(b)
		return x, y, same && xNamed && yNamed
	default:
		return nil, nil, false
	}
}

func members(m map[string]any) map[string]any {
	all := make(map[string]any, len(m))
	for key, value := range m {
		all["."+key] = value
	}
	return all
}

// named are the elements of a list by their names; false if some have none.
func named(list []any) (map[string]any, bool) {
	all := make(map[string]any, len(list))
	for _, e := range list {
		m, _ := e.(map[string]any)
		name, ok := m["name"].(string)
		if !ok {
			if name, ok, _ = unstructured.NestedString(m, "metadata", "name"); !ok {
				return nil, false
			}
		}
		all["["+name+"]"] = e
	}
	return all, len(all) == len(list)
}
