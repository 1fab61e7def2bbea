// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubectl/pkg/util/term"
)

// Widths of the text, and how much of long lists it tells.
const (
	width    = 80
	maxWaits = 10
	maxNext  = 10
)

// Print writes the report as text. Colours are for terminals.
func (r Report) Print(w io.Writer, colours bool) error {
	p := &printer{colours: colours}
	p.headline(r)
	if len(r.Waits) > 0 {
		p.section("Waits for")
		for i, wait := range r.Waits {
			if i == maxWaits {
				p.line("  ", "", fmt.Sprintf("and %d more", len(r.Waits)-i))
				break
			}
			p.wait(wait, r)
		}
	}
	if len(r.Next) > 0 {
		p.section("Does next")
		p.list(r.Next)
	}
	if len(r.Notes) > 0 {
		p.out.WriteString("\n")
		for _, note := range r.Notes {
			p.line("", "", note)
		}
	}
	_, err := p.out.WriteTo(w)
	return err
}

type printer struct {
	out     bytes.Buffer
	colours bool
}

func (p *printer) headline(r Report) {
	colour := map[State]string{Up: "\x1b[32m", Stuck: "\x1b[31m"}[r.State]
	if !p.colours || colour == "" {
		p.line("", "", r.Headline)
		return
	}
	p.out.WriteString(colour)
	p.line("", "", r.Headline)
	p.out.Truncate(p.out.Len() - 1)
	p.out.WriteString("\x1b[0m\n")
}

func (p *printer) section(title string) {
	p.out.WriteString("\n" + title + "\n")
}

func (p *printer) list(items []string) {
	for i, item := range items {
		if i == maxNext {
			p.line("  ", "", fmt.Sprintf("and %d more", len(items)-i))
			return
		}
		p.line("  ", "  ", item)
	}
}

func (p *printer) wait(w Wait, r Report) {
	p.line("  ", "  ", w.Object+": "+w.Message+times(w, r))
	for _, line := range w.Evidence {
		p.line("    - ", "  ", line)
	}
	for _, line := range w.Log {
		p.raw("      | " + line)
	}
	if len(w.For) > 0 {
		p.line("    ", "", "Held up: "+shortList(w.For))
	}
	if w.Rule != "" {
		p.line("    ", "", w.Rule)
	}
	if w.Command != "" {
		p.line("    ", "", strings.ToUpper(w.Remedy[:1])+w.Remedy[1:]+":")
		p.out.WriteString("      " + w.Command + "\n")
	}
}

// times tells since when and how long a wait is.
func times(w Wait, r Report) string {
	var parts []string
	if w.Since != nil {
		parts = append(parts, "for "+duration.HumanDuration(max(0, r.At.Sub(w.Since.Time))))
	}
	if w.Until != nil {
		parts = append(parts, duration.HumanDuration(max(0, w.Until.Sub(r.At.Time)))+" more")
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func shortList(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// line writes text wrapped; lines after the first are as far in as the first, and by hang more.
func (p *printer) line(indent, hang, text string) {
	next := strings.Repeat(" ", len(indent)) + hang
	var wrapped strings.Builder
	// A buffer takes all that is written.
	_, _ = term.NewWordWrapWriter(&wrapped, uint(width-len(next))).Write([]byte(plain(text)))
	first := true
	for line := range strings.SplitSeq(strings.TrimRight(wrapped.String(), "\n"), "\n") {
		if !first {
			indent = next
		}
		first = false
		p.out.WriteString(strings.TrimRight(indent+line, " ") + "\n")
	}
}

// raw writes a line of somebody else: cut, not wrapped.
func (p *printer) raw(line string) {
	p.out.WriteString(cut(plain(line), width) + "\n")
}
