// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs checks what is written about the code against the code.
package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// packageDocs gives, for each folder with Go files, the package comment.
func packageDocs(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if skipped := []string{"bin", "testdata", "vendor"}; entry.IsDir() && path != root &&
			(strings.HasPrefix(entry.Name(), ".") || slices.Contains(skipped, entry.Name())) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		docs[folder] += file.Doc.Text()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) < 10 {
		t.Fatalf("only %d folders with Go files below %s", len(docs), root)
	}
	return docs
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// pages are the documents, as paths from the root.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := filepath.Rel(root, path)
		all = append(all, page)
		return err
	})
	if err != nil || len(all) < 20 {
		t.Fatalf("documents are %v, %v", all, err)
	}
	return all
}

func TestEveryPackageHasADocSentence(t *testing.T) {
	sentence := regexp.MustCompile(`^(Package|Command) [\w-]+ [^.]*[a-z]`)
	for folder, doc := range packageDocs(t) {
		if !sentence.MatchString(doc) || !strings.Contains(doc, ".") {
			t.Errorf("%s: the package comment is %q, not a sentence that begins with Package or Command and its name", folder, doc)
		}
	}
}

func TestArchitectureNamesEveryFolder(t *testing.T) {
	named := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| \\S.*\\. \\|$").FindAllStringSubmatch(read(t, "docs/architecture.md"), -1) {
		named[row[1]] = true
	}
	docs := packageDocs(t)
	for _, folder := range slices.Sorted(maps.Keys(docs)) {
		if !named[folder] {
			t.Errorf("docs/architecture.md has no row with a sentence for %s", folder)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(named)) {
		if _, exists := docs[folder]; !exists {
			t.Errorf("docs/architecture.md has a row for %s, which has no Go files", folder)
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	for _, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor := page, match[2]
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(page), match[1])
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", page, match[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s#%s, and no heading there has that anchor", page, target, anchor)
			}
		}
	}
}

// Every page below docs/ can be found from the first one.
func TestIndexNamesEveryPage(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range pages(t) {
		name, isBelow := strings.CutPrefix(page, "docs/")
		if isBelow && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}

// anchors are the names by which a page's headings can be linked to, as forges make them.
func anchors(text string) []string {
	var all []string
	inBlock := false
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inBlock = !inBlock
		}
		heading := strings.TrimLeft(line, "#")
		if inBlock || heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		name := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
		all = append(all, name)
	}
	return all
}

func TestAnchors(t *testing.T) {
	text := "# A page\n## `plan`, why & *how*?\n```\n# no heading\n```\n### spec.rollout\n#no-heading\n"
	if got, want := anchors(text), []string{"a-page", "plan-why--how", "specrollout"}; !slices.Equal(got, want) {
		t.Errorf("anchors are %q, want %q", got, want)
	}
}

func TestNamedMakeTargetsExist(t *testing.T) {
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## \S`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[match[1]] = true
	}
	mention := regexp.MustCompile("(?m)(?:`|^\\$? *)make ([a-z0-9-]+)")
	for _, page := range pages(t) {
		for _, match := range mention.FindAllStringSubmatch(read(t, page), -1) {
			if !targets[match[1]] {
				t.Errorf("%s names make %s, which is no documented target of the Makefile", page, match[1])
			}
		}
	}
}
