// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
)

// document gives the root of the one YAML document of a text.
func document(name string, text []byte) (*yaml.Node, error) {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if err := documents.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		return nil, syntax(name, err)
	}
	if err := documents.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:%d: there is more than one document", name, second.Line)
	}
	if len(first.Content) == 0 {
		return &yaml.Node{Kind: yaml.MappingNode}, nil
	}
	return first.Content[0], nil
}

// syntax words why a text is no YAML.
func syntax(name string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if _, scanErr := fmt.Sscanf(text, "line %d:", &line); scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
		return fmt.Errorf("%s:%d: %s", name, line, text)
	}
	return fmt.Errorf("%s: %s", name, text)
}

// decoder puts a YAML document into a configuration, and takes down all mistakes.
type decoder struct {
	// first is the line of the document's beginning.
	first    int
	lines    map[string]int
	problems []lined
}

func (d *decoder) decode(root *yaml.Node, c *v1alpha1.ControllerConfiguration) {
	d.value(root, reflect.ValueOf(c).Elem(), "")
	d.is("apiVersion", c.APIVersion, v1alpha1.APIVersion)
	d.is("kind", c.Kind, v1alpha1.Kind)
}

// is checks what the file says that it is.
func (d *decoder) is(field, got, want string) {
	switch {
	case got == want:
	case d.lines[field] == 0:
		d.add(d.first, field, "is missing: must be %s", want)
	default:
		d.add(d.lines[field], field, "must be %s, not %q", want, got)
	}
}

func (d *decoder) add(line int, field, format string, args ...any) {
	d.problems = append(d.problems, lined{line: line, Problem: Problem{Field: field, Text: fmt.Sprintf(format, args...)}})
}

// value decodes a node into a variable. What is null counts as left out.
func (d *decoder) value(n *yaml.Node, into reflect.Value, field string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		if duration, ok := reflect.TypeAssert[*metav1.Duration](into.Addr()); ok {
			d.duration(n, duration, field)
			return
		}
		d.fields(n, into, field)
	case reflect.Slice:
		d.items(n, into, field)
	default:
		d.scalar(n, into, field)
	}
}

// fields decodes a mapping.
func (d *decoder) fields(n *yaml.Node, into reflect.Value, field string) {
	if n.Kind != yaml.MappingNode {
		d.add(n.Line, field, "must hold fields, not %s", shown(n))
		return
	}
	known := fieldsOf(into)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := strings.TrimPrefix(field+"."+key.Value, ".")
		to, ok := known[key.Value]
		switch {
		case !ok:
			d.add(key.Line, path, "is no field%s", suggestion(path))
		case d.lines[path] > 0:
			d.add(key.Line, path, "is in line %d already", d.lines[path])
		default:
			d.lines[path] = key.Line
			d.value(value, to, path)
		}
	}
}

// fieldsOf are the fields of a struct by their names in a file.
func fieldsOf(s reflect.Value) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	for i := range s.NumField() {
		name, rest, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ",")
		if strings.Contains(rest, "inline") {
			maps.Copy(all, fieldsOf(s.Field(i)))
			continue
		}
		all[name] = s.Field(i)
	}
	return all
}

func (d *decoder) items(n *yaml.Node, into reflect.Value, field string) {
	if n.Kind != yaml.SequenceNode {
		d.add(n.Line, field, "must be a list, not %s", shown(n))
		return
	}
	all := reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", field, i)
		d.lines[path] = item.Line
		d.value(item, all.Index(i), path)
	}
	into.Set(all)
}

func (d *decoder) duration(n *yaml.Node, into *metav1.Duration, field string) {
	parsed, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.add(n.Line, field, "must be a duration such as 15s, not %s", shown(n))
		return
	}
	into.Duration = parsed
}

// scalar decodes text, a number, or true or false.
func (d *decoder) scalar(n *yaml.Node, into reflect.Value, field string) {
	wants, tags := wanted(into.Kind())
	isScalar := n.Kind == yaml.ScalarNode
	switch {
	case isScalar && slices.Contains(tags, n.ShortTag()):
		if n.Decode(into.Addr().Interface()) != nil {
			d.add(n.Line, field, "must be %s that is not as large as %s", wants, n.Value)
		}
	case isScalar && into.Kind() == reflect.String:
		d.add(n.Line, field, "must be text, so %s needs quotes", n.Value)
	default:
		d.add(n.Line, field, "must be %s, not %s", wants, shown(n))
	}
}

// wanted is what a variable holds, in words and as YAML tags it.
func wanted(k reflect.Kind) (words string, tags []string) {
	switch k {
	case reflect.Bool:
		return "true or false", []string{"!!bool"}
	case reflect.Int32:
		return "a whole number", []string{"!!int"}
	case reflect.Float32:
		return "a number", []string{"!!int", "!!float"}
	default:
		return "text", []string{"!!str"}
	}
}

// shown is a value as an error tells it.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	default:
		if n.ShortTag() == "!!str" {
			return fmt.Sprintf("%q", n.Value)
		}
		return n.Value
	}
}
