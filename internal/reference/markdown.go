// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// page is a page that is being written.
type page struct{ strings.Builder }

// newPage begins a page with its title. Of is what it is made from.
func newPage(title, of string) *page {
	p := &page{}
	fmt.Fprintf(p, "<!-- Made by make generate from %s. Do not edit. -->\n# %s\n", of, title)
	return p
}

// paragraphs adds texts with an empty line before each.
func (p *page) paragraphs(texts ...string) {
	for _, text := range texts {
		if text != "" {
			p.WriteString("\n" + strings.TrimSpace(text) + "\n")
		}
	}
}

// block adds lines as they are.
func (p *page) block(lines string) {
	p.WriteString("\n```\n" + strings.Trim(lines, "\n") + "\n```\n")
}

// table adds a table, if it has rows. What an empty column title is for shows in its cells.
func (p *page) table(titles []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.WriteString("\n" + row(titles) + strings.Repeat("|---", len(titles)) + "|\n")
	for _, cells := range rows {
		p.WriteString(row(cells))
	}
}

func row(cells []string) string {
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`)
	}
	return "| " + strings.Join(escaped, " | ") + " |\n"
}

// code is a text as code; nothing stays nothing.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
