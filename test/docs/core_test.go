// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ordinal-dev/ordinal/"

// coreFolders are those of the first group of docs/architecture.md, in its order.
func coreFolders(t *testing.T) []string {
	t.Helper()
	_, list, _ := strings.Cut(read(t, "docs/architecture.md"), "| folder |")
	group, _, found := strings.Cut(list, "| | |")
	var folders []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(group, -1) {
		folders = append(folders, row[1])
	}
	if !found || !slices.Contains(folders, "internal/plan") {
		t.Fatalf("the folders of the core are %v", folders)
	}
	return folders
}

// importsOf gives what the Go files of a folder import, without those of tests.
func importsOf(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var imports []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imports = append(imports, path)
		}
	}
	if len(imports) == 0 {
		t.Fatalf("%s imports nothing", folder)
	}
	return imports
}

// The linter keeps the core free of what could make it impure; this keeps its order.
func TestCoreImportsOnlyWhatIsAbove(t *testing.T) {
	folders := coreFolders(t)
	for at, folder := range folders {
		for _, path := range importsOf(t, folder) {
			first, _, _ := strings.Cut(path, "/")
			isStandard := !strings.Contains(first, ".")
			isData := strings.HasPrefix(path, "k8s.io/api/") || strings.HasPrefix(path, "k8s.io/apimachinery/")
			own, isOurs := strings.CutPrefix(path, module)
			isAbove := isOurs && slices.Contains(folders[:at], own)
			if !isStandard && !isData && !isAbove {
				t.Errorf("%s imports %s", folder, path)
			}
		}
	}
}
