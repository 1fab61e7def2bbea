// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mkimage makes an image archive of one static program. The build uses it for the images that a cluster needs before it can
// reach any registry.
//
//	mkimage -ref NAME:TAG -o ARCHIVE [-arch ARCH] [-user UID:GID] [-env NAME=VALUE]... PROGRAM
//
// The program is put at the image's root, under its own name, and is the image's entrypoint.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ordinal-dev/ordinal/internal/image"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var spec image.Spec
	flags := flag.NewFlagSet("mkimage", flag.ContinueOnError)
	ref := flags.String("ref", "", "name and tag of the image")
	out := flags.String("o", "", "archive to write")
	flags.StringVar(&spec.Architecture, "arch", runtime.GOARCH, "processor that the program is for")
	flags.StringVar(&spec.User, "user", "", "user and group that the program runs as, UID:GID")
	flags.Func("env", "a variable of the program's environment, NAME=VALUE; may be repeated", func(v string) error {
		spec.Env = append(spec.Env, v)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *ref == "" || *out == "" || flags.NArg() != 1 {
		return errors.New("give -ref, -o and one program")
	}
	program := flags.Arg(0)
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	spec.Entrypoint = []string{"/" + filepath.Base(program)}
	spec.Files = []image.File{{Path: filepath.Base(program), Mode: 0o755, Data: data}}
	img, err := image.Build(spec)
	if err != nil {
		return err
	}
	return image.WriteArchive(*out, *ref, img)
}
