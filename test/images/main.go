// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images builds the images of the end-to-end tests from packages of the distribution (Debian or Ubuntu), without a container
// engine and without a registry:
//
//	go run ./test/images -out DIR
//
// It writes busybox.tar (busybox:1.28.3), nginx.tar (nginx:1.16), nginx-1.17.tar (nginx:1.17, the same but for a label) and redis.tar
// (redis:7.0). The tags are those that the tests' manifests ask for; the programs are of the versions that the distribution has. When
// nothing that goes into the archives has changed, it leaves them as they are.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ordinal-dev/ordinal/internal/image"
)

// nslookupPackage is the program that takes the place of busybox's applet.
const nslookupPackage = "github.com/ordinal-dev/ordinal/test/images/nslookup"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	dir := flags.String("out", "", "directory for the archives; what is downloaded is kept in it too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return errors.New("give -out DIR, and nothing else")
	}
	return update(ctx, out, *dir)
}

// update builds the archives in a directory anew if they are out of date.
func update(ctx context.Context, out io.Writer, dir string) error {
	cache := filepath.Join(dir, "packages")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	nslookup, err := buildNslookup(ctx, cache)
	if err != nil {
		return err
	}
	own, err := ownInputs(nslookup)
	if err != nil {
		return err
	}
	// Not busybox-static: its shell runs its own applets whatever lies in PATH, so our nslookup would not be found.
	found, err := resolve(ctx, cache, "busybox", "nginx", "redis-server")
	if err != nil && upToDate(dir, own) {
		fmt.Fprintf(out, "test images: kept as they are (%v)\n", err)
		return nil
	}
	if err != nil {
		return err
	}
	inputs := slices.Concat(own, packageInputs(found))
	if upToDate(dir, inputs) {
		return nil
	}
	fmt.Fprintf(out, "building the test images from %d packages\n", len(found))
	if err := build(ctx, dir, found, nslookup); err != nil {
		return err
	}
	return os.WriteFile(inputsFile(dir), []byte(strings.Join(inputs, "\n")+"\n"), 0o644)
}

// build writes the archives.
func build(ctx context.Context, dir string, packages []debianPackage, nslookup []byte) error {
	// What is there is out of date, and stays so if this fails halfway.
	if err := os.Remove(inputsFile(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	files, err := unpack(ctx, packages)
	if err != nil {
		return err
	}
	shell, err := busyboxFiles(ctx, files, nslookup)
	if err != nil {
		return err
	}
	for _, a := range archives() {
		if err := a.write(dir, slices.Concat(baseFiles(), shell), files); err != nil {
			return fmt.Errorf("build %s: %w", a.ref, err)
		}
	}
	return nil
}

// write writes one archive, of these files and those of its server.
func (a archive) write(dir string, files []image.File, packages tree) error {
	spec := a.spec
	spec.Files = files
	if a.server != nil {
		server, err := a.server(packages)
		if err != nil {
			return err
		}
		spec.Files = union(files, server)
	}
	img, err := image.Build(spec)
	if err != nil {
		return err
	}
	return image.WriteArchive(filepath.Join(dir, a.file), a.ref, img)
}

// union is both lists' files; both come from the same packages, and what is in both is the same.
func union(a, b []image.File) []image.File {
	byPath := func(x, y image.File) int { return cmp.Compare(x.Path, y.Path) }
	all := slices.SortedFunc(slices.Values(slices.Concat(a, b)), byPath)
	return slices.CompactFunc(all, func(x, y image.File) bool { return x.Path == y.Path })
}

// buildNslookup compiles our nslookup, and gives the program.
func buildNslookup(ctx context.Context, cache string) ([]byte, error) {
	file := filepath.Join(cache, "nslookup")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file, nslookupPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build nslookup: %w\n%s", err, said)
	}
	return os.ReadFile(file)
}

// ownInputs name what goes into the archives besides packages: this program and nslookup.
func ownInputs(nslookup []byte) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("recipe %x", sha256.Sum256(program)), fmt.Sprintf("nslookup %x", sha256.Sum256(nslookup))}, nil
}

func packageInputs(packages []debianPackage) []string {
	inputs := make([]string, 0, len(packages))
	for _, p := range packages {
		inputs = append(inputs, p.file+" "+p.sha256)
	}
	return inputs
}

// inputsFile records what the archives beside it were made of.
func inputsFile(dir string) string { return filepath.Join(dir, "inputs") }

// upToDate tells whether all archives are there and were made of these inputs, and perhaps more.
func upToDate(dir string, inputs []string) bool {
	recorded, err := os.ReadFile(inputsFile(dir))
	if err != nil {
		return false
	}
	lines := strings.Split(string(recorded), "\n")
	if slices.ContainsFunc(inputs, func(input string) bool { return !slices.Contains(lines, input) }) {
		return false
	}
	return !slices.ContainsFunc(archives(), func(a archive) bool {
		_, err := os.Stat(filepath.Join(dir, a.file))
		return err != nil
	})
}
