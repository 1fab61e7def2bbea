// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testNames are the tests that there are, as folder.TestName with the last part of the folder's path.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (entry.Name() == "bin" || strings.HasPrefix(entry.Name(), ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names[filepath.Base(filepath.Dir(path))+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A test that a document names as proof is there.
func TestNamedTestsExist(t *testing.T) {
	names := testNames(t)
	mention := regexp.MustCompile("`(\\w+\\.Test[A-Z]\\w*)")
	found := 0
	for _, page := range pages(t) {
		for _, match := range mention.FindAllStringSubmatch(read(t, page), -1) {
			found++
			if !names[match[1]] {
				t.Errorf("%s names %s, which is no test", page, match[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d tests are named in documents", found)
	}
}

// Each promise of docs/reliability.md names what would fail without it.
func TestEveryPromiseNamesATest(t *testing.T) {
	promises := 0
	for line := range strings.Lines(read(t, "docs/reliability.md")) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise") || strings.HasPrefix(line, "| what breaks") {
			continue
		}
		promises++
		if !strings.Contains(line, ".Test") {
			t.Errorf("no test is named for: %s", line)
		}
	}
	if promises < 20 {
		t.Errorf("docs/reliability.md has only %d promises", promises)
	}
}
