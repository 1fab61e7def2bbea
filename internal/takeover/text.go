// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"fmt"
	"io"
	"strings"

	"github.com/mitchellh/go-wordwrap"
)

const (
	// width is how wide a line is at most.
	width = 80
	// maxTold is how many lines are told of one set.
	maxTold = 6
)

// Write tells the report in words.
func (r *Report) Write(out io.Writer) error {
	var b strings.Builder
	r.BuiltIn.write(&b, "Built-in controller")
	r.Ordinal.write(&b, "Ordinal")
	r.Sets.write(&b)
	if len(r.Missing) > 0 {
		b.WriteString("Not looked at, for want of the right to\n")
		for _, m := range r.Missing {
			line(&b, "  - ", m.String())
		}
	}
	line(&b, "", fmt.Sprintf("Verdict: %s. %s.", r.Verdict, upper(r.Text)))
	_, err := io.WriteString(out, b.String())
	return err
}

func (c *Controller) write(b *strings.Builder, name string) {
	fmt.Fprintf(b, "%s: %s\n", name, c.State)
	for _, text := range c.Evidence {
		line(b, "  - ", text)
	}
}

func (s *Sets) write(b *strings.Builder) {
	if s.Total == 0 {
		b.WriteString("Sets: none seen\n")
		return
	}
	fmt.Fprintf(b, "Sets: %s in %s, of which %d would stay as they are\n", count(s.Total, "set"), count(s.Namespaces, "namespace"), s.Same)
	for _, part := range []struct {
		title string
		sets  []Set
	}{
		{"Ordinal would change", s.Changes},
		{"What is under way would go on with", s.UnderWay},
		{"Ordinal treats otherwise, when it comes to that", s.Notes},
	} {
		if len(part.sets) > 0 {
			fmt.Fprintf(b, "%s:\n", part.title)
		}
		for _, set := range part.sets {
			set.write(b)
		}
	}
}

func (s Set) write(b *strings.Builder) {
	fmt.Fprintf(b, "  %s/%s\n", s.Namespace, s.Name)
	for _, text := range s.Told[:min(len(s.Told), maxTold)] {
		line(b, "    - ", text)
	}
	if more := len(s.Told) - maxTold; more > 0 {
		fmt.Fprintf(b, "    - and %d more\n", more)
	}
}

// line writes a text, with a mark before its first line and as much space before the others.
func line(b *strings.Builder, mark, text string) {
	wrapped := wordwrap.WrapString(text, width-uint(len(mark)))
	b.WriteString(mark + strings.ReplaceAll(wrapped, "\n", "\n"+strings.Repeat(" ", len(mark))) + "\n")
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func upper(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
