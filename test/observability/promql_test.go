// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observability

import (
	"regexp"
	"slices"
	"strings"
)

// token is a part of an expression: a text, a number or duration, a name, or anything else.
var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[0-9][\w.]*|[a-zA-Z_:][\w:]*|\S`)

// words are those of PromQL that no parenthesis follows, and that are neither metric nor label.
var words = []string{"and", "or", "unless", "bool", "offset", "Inf", "NaN", "inf", "nan"}

// groupers are followed by labels in parentheses.
var groupers = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}

// names are what an expression names.
type names struct {
	// selectors are metrics and the labels by which their series are chosen.
	selectors []selector
	// grouped are the labels that series are put together by.
	grouped []string
}

type selector struct {
	metric string
	labels []string
}

// namesIn reads an expression that promtool accepts.
func namesIn(expr string) names {
	var n names
	all := token.FindAllString(expr, -1)
	for i := 0; i < len(all); i++ {
		next := ""
		if i+1 < len(all) {
			next = all[i+1]
		}
		switch {
		case slices.Contains(groupers, all[i]) && next == "(":
			labels, end := until(all, i+2, ")")
			n.grouped, i = append(n.grouped, labels...), end
		case !isName(all[i]) || slices.Contains(words, all[i]) || slices.Contains(groupers, all[i]):
		case next == "(" || next == "by" || next == "without":
			// It is a function.
		case next == "{":
			labels, end := until(all, i+2, "}")
			n.selectors, i = append(n.selectors, selector{all[i], labels}), end
		default:
			n.selectors = append(n.selectors, selector{metric: all[i]})
		}
	}
	return n
}

func isName(t string) bool {
	return strings.ContainsAny(t[:1], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:")
}

// until gives the names up to an end, and where that is.
func until(all []string, from int, end string) (labels []string, at int) {
	for at = from; at < len(all) && all[at] != end; at++ {
		if isName(all[at]) {
			labels = append(labels, all[at])
		}
	}
	return labels, at
}
