// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// librariesOf finds the loader of a program and, to the last, the libraries that it loads.
func (t tree) librariesOf(program image.File) ([]image.File, error) {
	named := t.libraries()
	found := tree{}
	for todo := []image.File{program}; len(todo) > 0; todo = todo[1:] {
		needed, err := loads(todo[0])
		if err != nil {
			return nil, err
		}
		for _, name := range needed {
			file := cmp.Or(named[name], merged(name))
			if _, known := found[file]; known {
				continue
			}
			chain, err := t.follow(file)
			if err != nil {
				return nil, fmt.Errorf("%s needs %s: %w", todo[0].Path, name, err)
			}
			for _, f := range chain {
				found[f.Path] = f
			}
			todo = append(todo, chain[len(chain)-1])
		}
	}
	files := make([]image.File, 0, len(found))
	for _, f := range found {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b image.File) int { return cmp.Compare(a.Path, b.Path) })
	return files, nil
}

// libraries maps the names of libraries to their files; of several, to the one in the uppermost directory.
func (t tree) libraries() map[string]string {
	named := map[string]string{}
	for file := range t {
		name := path.Base(file)
		if !strings.HasPrefix(file, "usr/lib/") || !strings.Contains(name, ".so") {
			continue
		}
		if other, ok := named[name]; !ok || strings.Count(file, "/") < strings.Count(other, "/") {
			named[name] = file
		}
	}
	return named
}

// follow gives a file with all links on the way to it; it comes last.
func (t tree) follow(file string) ([]image.File, error) {
	const most = 8 // links, which is far more than there are
	var chain []image.File
	for range most {
		f, ok := t[file]
		if !ok {
			return nil, fmt.Errorf("/%s is in none of the packages", file)
		}
		chain = append(chain, f)
		if f.Link == "" {
			return chain, nil
		}
		if path.IsAbs(f.Link) {
			file = merged(f.Link)
		} else {
			file = merged(path.Join(path.Dir(file), f.Link))
		}
	}
	return nil, fmt.Errorf("/%s is a link that leads nowhere", file)
}

// loads names the loader (a path) and the libraries (names) that a program or a library asks for.
func loads(f image.File) ([]string, error) {
	program, err := elf.NewFile(bytes.NewReader(f.Data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	needed, err := program.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("read what %s loads: %w", f.Path, err)
	}
	for _, part := range program.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		loader := make([]byte, part.Filesz)
		if _, err := part.ReadAt(loader, 0); err != nil {
			return nil, fmt.Errorf("read the loader of %s: %w", f.Path, err)
		}
		needed = append(needed, string(bytes.TrimRight(loader, "\x00")))
	}
	return needed, nil
}
