// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
)

// What differs from one run to the next, and the word that stands for it.
var wildcards = []struct {
	pattern *regexp.Regexp
	word    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`), "ADDRESS"},
	{regexp.MustCompile(`\b\d+ times?\b`), "TIMES"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(MB|MiB)\b`), "SIZE"},
	{regexp.MustCompile(`\bpid \d+\b`), "PID"},
	{regexp.MustCompile(`\brunning +\d+\b`), "running PID"},
	// How far it is when somebody looks.
	{regexp.MustCompile(`^(rolling out \S+): \d.*`), "$1"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|s|m|h|d))+\b`), "DURATION"},
	{regexp.MustCompile(`\s+`), " "},
}

// hash matches those in the names of revisions, and some words; they have a digit.
var hash = regexp.MustCompile(`\b[bcdfghjklmnpqrstvwxz2456789]{8,10}\b`)

// anything is what stands for any text.
const anything = "…"

func normal(line string) string {
	for _, w := range wildcards {
		line = w.pattern.ReplaceAllString(line, w.word)
	}
	line = hash.ReplaceAllStringFunc(line, func(word string) string {
		if !strings.ContainsAny(word, "2456789") {
			return word
		}
		return "HASH"
	})
	return strings.TrimSpace(line)
}

// missing is the first line that is shown and was not printed after those before it; empty if all were.
func missing(shown, printed []string) string {
	at := 0
	for _, line := range shown {
		if want := strings.TrimSpace(line); want == "" || want == anything {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(normal(line)), anything, ".*") + "$")
		for at < len(printed) && !pattern.MatchString(normal(printed[at])) {
			at++
		}
		if at == len(printed) {
			return line
		}
		at++
	}
	return ""
}

// verdict judges what a command printed. One that is shown without anything has only to succeed; else what is shown counts, as
// some commands tell by their exit code what they have found.
func verdict(shown, printed []string, code int) error {
	isSilent := strings.TrimSpace(strings.Join(shown, "")) == ""
	if isSilent && code != 0 {
		return fmt.Errorf("it ends with %d, and prints:\n%s", code, strings.Join(printed, "\n"))
	}
	if line := missing(shown, printed); line != "" {
		return fmt.Errorf("it is said to print\n  %s\nand prints (exit code %d):\n%s", line, code, strings.Join(printed, "\n"))
	}
	return nil
}
