// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"fmt"
	"io"
	"strings"

	"github.com/mitchellh/go-wordwrap"
)

// maxFields is how many fields are told of an object.
const maxFields = 10

// Write tells the report in words.
func (r Report) Write(out io.Writer) error {
	var b strings.Builder
	for i := range r.Sets {
		if err := r.Sets[i].write(&b); err != nil {
			return err
		}
	}
	for i := range r.Others {
		o := &r.Others[i]
		o.headline(&b)
		o.details(&b)
	}
	for _, text := range r.Errors {
		line(&b, "error: "+text)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (s *Set) write(b *strings.Builder) error {
	s.headline(b)
	if len(s.Fixed) > 0 {
		s.explain(b)
	} else {
		s.details(b)
	}
	if s.Preview == nil {
		return nil
	}
	return s.Preview.Write(b)
}

// explain tells the way that works when a field cannot be changed.
func (s *Set) explain(b *strings.Builder) {
	line(b, "  "+strings.Join(s.Fixed, ", ")+" cannot be changed. What works is to delete the set without its pods, and to make it anew:")
	for _, command := range s.Way {
		b.WriteString("      " + command + "\n")
	}
	line(b, "  Then this happens:")
}

func (o *Object) headline(b *strings.Builder) {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	text := fmt.Sprintf("%s %s: %s", o.Kind, name, o.Outcome)
	if o.Unchecked {
		text += " (unchecked, as its namespace is not there yet)"
	}
	line(b, text)
}

func (o *Object) details(b *strings.Builder) {
	if o.Refusal != "" {
		line(b, "  The server says: "+o.Refusal)
	}
	for i, f := range o.Fields {
		if i == maxFields {
			line(b, fmt.Sprintf("  and %d more fields", len(o.Fields)-i))
			break
		}
		line(b, "  "+f.String())
	}
}

// String tells the field in words, with values that are short.
func (f Field) String() string {
	from, fromShort := scalar(f.From)
	to, toShort := scalar(f.To)
	switch {
	case f.From == nil && toShort:
		return fmt.Sprintf("%s: %s is added", f.Path, to)
	case f.From == nil:
		return f.Path + " is added"
	case f.To == nil:
		return f.Path + " is removed"
	case fromShort && toShort:
		return fmt.Sprintf("%s: %s becomes %s", f.Path, from, to)
	default:
		return f.Path + " is changed"
	}
}

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q", v), len(v) <= 80
	case bool, int64, float64:
		return fmt.Sprint(v), true
	default:
		return "", false
	}
}

// line writes a text as one line, or as several if it is too long, the later ones further in.
func line(b *strings.Builder, text string) {
	rest := strings.TrimLeft(text, " ")
	indent := text[:len(text)-len(rest)]
	wrapped := wordwrap.WrapString(rest, uint(76-len(indent)))
	b.WriteString(indent + strings.ReplaceAll(wrapped, "\n", "\n"+indent+"    ") + "\n")
}
