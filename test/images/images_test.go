// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ordinal-dev/ordinal/internal/image"
)

func TestDependencies(t *testing.T) {
	const listing = `nginx
  PreDepends: init-system-helpers
 |Depends: nginx-core
 |Depends: nginx-full
  Depends: nginx-light
  Depends: libc6
    libc6:i386
  Depends: <debconf-2.0>
  Recommends: cake
`
	got := dependencies(listing)
	if want := []string{"init-system-helpers", "nginx-core", "libc6", "<debconf-2.0>"}; !slices.Equal(got, want) {
		t.Errorf("dependencies = %q, want %q", got, want)
	}
	got = slices.DeleteFunc(got, func(name string) bool { return !followed.MatchString(name) })
	if want := []string{"nginx-core", "libc6"}; !slices.Equal(got, want) {
		t.Errorf("followed = %q, want %q", got, want)
	}
}

func TestParsePackage(t *testing.T) {
	got, err := parsePackage("'https://mirror.test/n/nginx_1%3a1.2-3_amd64.deb' nginx_1%3a1.2-3_amd64.deb 99 SHA256:0a\n")
	if want := (debianPackage{name: "nginx", file: "nginx_1%3a1.2-3_amd64.deb", sha256: "0a"}); err != nil || got != want {
		t.Errorf("parsePackage = %+v, %v, want %+v", got, err, want)
	}
	for _, line := range []string{"", "'uri' a.deb 9 MD5Sum:0a", "'uri' ../a.deb 9 SHA256:0a", "E: no such package"} {
		if got, err := parsePackage(line); err == nil {
			t.Errorf("parsePackage(%q) = %+v, want an error", line, got)
		}
	}
}

func TestTreeMergesUsr(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "./bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./bin/tool", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 3},
		{Name: "./lib64/ld.so", Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: "/lib/ld.so"},
		{Name: "./usr/share/same", Typeflag: tar.TypeLink, Mode: 0o755, Linkname: "./bin/tool"},
		{Name: "./etc/../../x", Typeflag: tar.TypeReg, Mode: 0o644},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("#!x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := tree{}
	if err := got.add(&b); err != nil {
		t.Fatal(err)
	}
	for path, check := range map[string]func(image.File) bool{
		"usr/bin/tool":    func(f image.File) bool { return string(f.Data) == "#!x" && f.Mode == fs.ModeSetuid|0o755 },
		"usr/lib64/ld.so": func(f image.File) bool { return f.Link == "/lib/ld.so" && f.Mode.Type() == fs.ModeSymlink },
		"usr/share/same":  func(f image.File) bool { return string(f.Data) == "#!x" && f.Mode == 0o755 && f.Link == "" },
		"x":               func(f image.File) bool { return f.Mode == 0o644 },
	} {
		if f, ok := got[path]; !ok || !check(f) {
			t.Errorf("%s = %+v", path, f)
		}
	}
	if len(got) != 4 {
		t.Errorf("the tree has %d files, want 4", len(got))
	}
}

// The host's own shell and libraries are as good as a package's.
func hostShell(t *testing.T) (tree, image.File) {
	t.Helper()
	host := tree{}
	for todo := []string{"/bin/sh"}; len(todo) > 0; todo = todo[1:] {
		target, err := filepath.EvalSymlinks(todo[0])
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(target)
		if err != nil {
			t.Fatal(err)
		}
		f := image.File{Path: merged(target), Mode: 0o755, Data: data}
		host[f.Path] = f
		if link := merged(todo[0]); link != f.Path {
			host[link] = image.File{Path: link, Mode: fs.ModeSymlink | 0o777, Link: "/" + f.Path}
		}
		needed, err := loads(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range needed {
			found := []string{name}
			if !filepath.IsAbs(name) {
				if found, err = filepath.Glob("/usr/lib/*/" + name); err != nil || len(found) == 0 {
					t.Fatalf("the host's %s: %q, %v", name, found, err)
				}
			}
			if _, known := host[merged(found[0])]; !known {
				todo = append(todo, found[0])
			}
		}
	}
	shell, err := host.follow("usr/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	return host, shell[len(shell)-1]
}

func TestLibrariesOf(t *testing.T) {
	host, shell := hostShell(t)
	host["usr/lib/x/unused.so"] = image.File{Path: "usr/lib/x/unused.so"}
	files, err := host.librariesOf(shell)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range files {
		names[f.Path] = true
		if f.Path == shell.Path || f.Path == "usr/lib/x/unused.so" {
			t.Errorf("%s is none of the libraries", f.Path)
		}
	}
	needed, err := loads(shell)
	if err != nil || len(needed) < 2 {
		t.Fatalf("the shell loads %q, %v, want a loader and a library", needed, err)
	}
	for _, name := range needed {
		if file := cmp.Or(host.libraries()[name], merged(name)); !names[file] {
			t.Errorf("%s is not among the libraries", file)
		}
	}
	// A library that is missing is found out when the image is built, not when its container starts.
	for _, f := range files {
		delete(host, f.Path)
		if _, err := host.librariesOf(shell); err == nil || !strings.Contains(err.Error(), filepath.Base(f.Path)) {
			t.Errorf("librariesOf without %s: %v, want that it is missing", f.Path, err)
		}
		host[f.Path] = f
	}
}

func TestFollow(t *testing.T) {
	files := tree{
		"usr/lib/a.so":       {Path: "usr/lib/a.so", Link: "a.so.1"},
		"usr/lib/a.so.1":     {Path: "usr/lib/a.so.1", Link: "/lib/x/a.so.1.2"},
		"usr/lib/x/a.so.1.2": {Path: "usr/lib/x/a.so.1.2", Data: []byte("library")},
		"usr/lib/loop":       {Path: "usr/lib/loop", Link: "loop"},
	}
	chain, err := files.follow("usr/lib/a.so")
	if err != nil || len(chain) != 3 || string(chain[2].Data) != "library" {
		t.Errorf("follow = %+v, %v, want two links and the library", chain, err)
	}
	for _, name := range []string{"usr/lib/loop", "usr/lib/missing"} {
		if _, err := files.follow(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("follow(%s): %v, want an error that names it", name, err)
		}
	}
}

func TestNginxNeedsItsPackages(t *testing.T) {
	if _, err := nginxFiles(tree{"usr/sbin/nginx": {Path: "usr/sbin/nginx"}}); err == nil || !strings.Contains(err.Error(), "mime.types") {
		t.Errorf("nginxFiles = %v, want what is missing", err)
	}
}

func TestRedisNeedsItsPackages(t *testing.T) {
	packages := tree{"usr/bin/redis-server": {Path: "usr/bin/redis-server", Mode: fs.ModeSymlink, Link: "redis-check-rdb"}}
	if _, err := redisFiles(packages); err == nil || !strings.Contains(err.Error(), "redis-check-rdb") {
		t.Errorf("redisFiles = %v, want what is missing", err)
	}
}

func TestUpToDate(t *testing.T) {
	dir := t.TempDir()
	inputs := []string{"recipe 1", "a.deb 2"}
	check := func(want bool, inputs ...string) {
		t.Helper()
		if got := upToDate(dir, inputs); got != want {
			t.Errorf("upToDate(%q) = %t, want %t", inputs, got, want)
		}
	}
	check(false, inputs...)
	if err := os.WriteFile(inputsFile(dir), []byte(strings.Join(inputs, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(false, inputs...)
	for _, a := range archives() {
		if err := os.WriteFile(filepath.Join(dir, a.file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check(true, inputs...)
	check(true, inputs[:1]...)
	check(false, "recipe 1", "a.deb 3")
	check(false, append(inputs, "b.deb 1")...)
}
