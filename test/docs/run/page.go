// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// page is a document, as far as it shows commands.
type page struct {
	// path is where it is, from the root of the sources.
	path  string
	lines []string
	// where says on what its commands run: simulate, real or none.
	where string
	// parts are its files and commands, in their order.
	parts []part
}

// part is a file that is written, or a command.
type part struct {
	file, content string

	command string
	// notRun is why the command is shown only.
	notRun string
	// from and to are the lines that it is said to print, as indices of the page's lines.
	from, to int
	// indent is what these lines begin with, in a list for example.
	indent string
}

// What is said to us in a page, without being seen.
var (
	whereComment  = regexp.MustCompile(`^\s*<!-- run: (.+) -->$`)
	notRunComment = regexp.MustCompile(`^\s*<!-- not run: (.+) -->$`)
	fence         = regexp.MustCompile("^(\\s*)```(.*)$")
	unmarked      = regexp.MustCompile(`^(ordinal|kubectl|helm|sudo|curl|bin/ordinal) `)
	fileName      = regexp.MustCompile(`^# ([\w.-]+\.ya?ml)$`)
)

// parse reads a page. One that shows commands and does not say on what they run is an error.
func parse(path, text string) (page, error) {
	p := page{path: path, lines: strings.Split(text, "\n")}
	notRun := ""
	for i := 0; i < len(p.lines); i++ {
		line := p.lines[i]
		if found := whereComment.FindStringSubmatch(line); found != nil {
			p.where = found[1]
		}
		if found := notRunComment.FindStringSubmatch(line); found != nil {
			notRun = found[1]
		}
		open := fence.FindStringSubmatch(line)
		if open == nil {
			continue
		}
		end := p.endOfBlock(i+1, open[1])
		if err := p.block(i+1, end, open[1], notRun); err != nil {
			return p, err
		}
		i, notRun = end, ""
	}
	err := p.checkWhere()
	return p, err
}

func (p *page) checkWhere() error {
	switch p.where {
	case "simulate", "real", "none":
		return nil
	case "":
		if p.commands() == 0 {
			return nil
		}
		return fmt.Errorf("%s shows commands, and no comment says on what they run: <!-- run: simulate -->, real or none", p.path)
	}
	return fmt.Errorf("%s wants its commands run on %q, which is none of simulate, real and none", p.path, p.where)
}

// commands counts those that are to be run.
func (p *page) commands() int {
	n := 0
	for _, x := range p.parts {
		if x.command != "" && x.notRun == "" {
			n++
		}
	}
	return n
}

// endOfBlock is the line that ends a block.
func (p *page) endOfBlock(from int, indent string) int {
	for i := from; i < len(p.lines); i++ {
		if strings.TrimRight(p.lines[i], " ") == indent+"```" {
			return i
		}
	}
	return len(p.lines)
}

// block takes the parts of a block.
func (p *page) block(from, end int, indent, notRun string) error {
	line := func(i int) string { return strings.TrimPrefix(p.lines[i], indent) }
	if from < end {
		if name := fileName.FindStringSubmatch(line(from)); name != nil {
			var content strings.Builder
			for i := from; i < end; i++ {
				content.WriteString(line(i) + "\n")
			}
			p.parts = append(p.parts, part{file: name[1], content: content.String()})
			return nil
		}
	}
	for i := from; i < end; i++ {
		command, ok := strings.CutPrefix(line(i), "$ ")
		if !ok {
			if unmarked.MatchString(line(i)) {
				return fmt.Errorf("%s:%d: a command is shown without $ before it, so that nobody runs it", p.path, i+1)
			}
			continue
		}
		for strings.HasSuffix(command, `\`) && i+1 < end {
			i++
			command += "\n" + line(i)
		}
		shown := part{command: command, notRun: notRun, from: i + 1, to: i + 1, indent: indent}
		for shown.to < end && !strings.HasPrefix(line(shown.to), "$ ") {
			shown.to++
		}
		p.parts = append(p.parts, shown)
		i = shown.to - 1
	}
	return nil
}

// shown are the lines that a command is said to print.
func (p *page) shown(x part) []string {
	var lines []string
	for _, line := range p.lines[x.from:x.to] {
		lines = append(lines, strings.TrimPrefix(line, x.indent))
	}
	return lines
}

// replace puts what a command printed in the place of what it was said to print.
func (p *page) replace(i int, printed []string) {
	x := &p.parts[i]
	var lines []string
	for _, line := range printed {
		lines = append(lines, strings.TrimRight(x.indent+line, " "))
	}
	grown := len(lines) - (x.to - x.from)
	p.lines = append(p.lines[:x.from:x.from], append(lines, p.lines[x.to:]...)...)
	x.to += grown
	for j := i + 1; j < len(p.parts); j++ {
		p.parts[j].from += grown
		p.parts[j].to += grown
	}
}
