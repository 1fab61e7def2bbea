// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// source is the root of the sources, whose comments are read.
type source string

// constant is a constant of the code that has a text as its value.
type constant struct {
	name, value string
	// doc is what its comment says of it, as a sentence without its name.
	doc string
}

// constants are those of a file whose names begin so, in their order.
func (s source) constants(file, prefix string) ([]constant, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(string(s), file), nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var all []constant
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		value, errValue := strconv.Unquote(literal.Value)
		if errValue != nil {
			err = errValue
		}
		all = append(all, constant{spec.Names[0].Name, value, sentence(spec.Names[0].Name, spec.Doc.Text())})
		return true
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s has no constants %s…", file, prefix)
	}
	return all, err
}

// sentence is a comment without the words by which it tells what it is about.
func sentence(name, comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	text = strings.TrimPrefix(text, name+" ")
	for _, word := range []string{"means that ", "is why ", "is ", "are "} {
		text = strings.TrimPrefix(text, word)
	}
	runes := []rune(text)
	if len(runes) > 0 {
		runes[0] = unicode.ToUpper(runes[0])
	}
	return string(runes)
}
