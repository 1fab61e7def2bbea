// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ordinal-dev/ordinal/internal/cli"
	"github.com/ordinal-dev/ordinal/internal/controller/command"
)

func ordinalPage() string {
	root := cli.New()
	p := newPage("ordinal", "internal/cli")
	p.command(root)
	var rows [][]string
	for _, c := range below(root) {
		rows = append(rows, []string{"[`" + c.CommandPath() + "`](#" + strings.ReplaceAll(c.CommandPath(), " ", "-") + ")", c.Short})
	}
	p.table([]string{"command", ""}, rows)
	for _, c := range below(root) {
		p.paragraphs("## " + c.CommandPath())
		p.command(c)
	}
	return p.String()
}

func controllerPage() string {
	p := newPage("ordinal-controller", "internal/controller/command")
	p.command(command.New())
	return p.String()
}

// below are all commands below one, each before its own.
func below(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, child := range c.Commands() {
		if child.IsAvailableCommand() {
			all = append(append(all, child), below(child)...)
		}
	}
	return all
}

// command describes a command and its flags, without those below it.
func (p *page) command(c *cobra.Command) {
	c.InitDefaultVersionFlag()
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	p.paragraphs(text)
	if c.Runnable() && c.HasParent() || !c.HasSubCommands() {
		p.block(c.UseLine())
	}
	if c.Example != "" {
		p.paragraphs("For example:")
		p.block(strings.ReplaceAll("\n"+c.Example, "\n  ", "\n"))
	}
	p.flags("", c.LocalNonPersistentFlags())
	title := ""
	if c.HasSubCommands() {
		title = "For this and all commands below it:"
	}
	p.flags(title, c.PersistentFlags())
}

// flags adds a table of flags.
func (p *page) flags(title string, flags *pflag.FlagSet) {
	var rows [][]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		argument, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if argument != "" {
			name += " " + argument
		}
		rows = append(rows, []string{code(name), code(shownDefault(f)), usage})
	})
	if len(rows) > 0 {
		p.paragraphs(title)
	}
	p.table([]string{"flag", "default", ""}, rows)
}

// shownDefault is the default of a flag; empty if it is nothing.
func shownDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "[]", "0s":
		return ""
	}
	return f.DefValue
}
