// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mkimage makes an image archive of one static program. The build uses it for the images that a cluster needs before it can
// reach any registry, and for the controller's own.
//
//	mkimage -ref NAME:TAG -o ARCHIVE [-arch ARCH] [-user UID:GID] [-env NAME=VALUE]... [-label NAME=VALUE]... [-created SECONDS] PROGRAM
//	mkimage … ARCH=PROGRAM…
//
// The program is put at the image's root, under its own name, and is the image's entrypoint. With programs for several processors, the
// archive is an OCI layout of one image for all of them; else it is a docker archive.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ordinal-dev/ordinal/internal/image"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	spec := image.Spec{Labels: map[string]string{}}
	flags := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	ref := flags.String("ref", "", "name and tag of the image")
	out := flags.String("o", "", "archive to write")
	flags.StringVar(&spec.Architecture, "arch", runtime.GOARCH, "processor that the program is for")
	flags.StringVar(&spec.User, "user", "", "user and group that the program runs as, UID:GID")
	flags.Func("env", "a variable of the program's environment, NAME=VALUE; may be repeated", func(v string) error {
		spec.Env = append(spec.Env, v)
		return nil
	})
	flags.Func("label", "a label of the image, NAME=VALUE; may be repeated", func(v string) error {
		name, value, found := strings.Cut(v, "=")
		if !found {
			return errors.New("it is not NAME=VALUE")
		}
		spec.Labels[name] = value
		return nil
	})
	flags.Func("created", "when the image was made, in seconds since 1970 (default 0)", func(v string) error {
		seconds, err := strconv.ParseInt(v, 10, 64)
		spec.Created = time.Unix(seconds, 0)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	isLayout := strings.Contains(flags.Arg(0), "=")
	if *ref == "" || *out == "" || flags.NArg() == 0 || !isLayout && flags.NArg() > 1 {
		return errors.New("give -ref, -o and one program, or ARCH=PROGRAM for each of them")
	}
	if isLayout {
		return writeLayout(*out, *ref, spec, flags.Args())
	}
	return writeArchive(*out, *ref, spec, flags.Arg(0))
}

// writeArchive makes the image of one program.
func writeArchive(file, ref string, spec image.Spec, program string) error {
	if err := add(&spec, program); err != nil {
		return err
	}
	img, err := image.Build(spec)
	if err != nil {
		return err
	}
	return image.WriteArchive(file, ref, img)
}

// writeLayout makes one image of the same program for several processors, each given as ARCH=PROGRAM.
func writeLayout(file, ref string, spec image.Spec, programs []string) error {
	specs := make([]image.Spec, 0, len(programs))
	for _, p := range programs {
		arch, program, found := strings.Cut(p, "=")
		if !found {
			return fmt.Errorf("%s is not ARCH=PROGRAM", p)
		}
		one := spec
		one.Architecture = arch
		if err := add(&one, program); err != nil {
			return err
		}
		specs = append(specs, one)
	}
	index, err := image.BuildIndex(specs...)
	if err != nil {
		return err
	}
	return image.WriteLayout(file, ref, index)
}

// add makes a program the content of an image and what it runs.
func add(spec *image.Spec, program string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	name := filepath.Base(program)
	spec.Entrypoint = []string{"/" + name}
	spec.Files = []image.File{{Path: name, Mode: 0o755, Data: data}}
	return nil
}
