// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/image/store"
)

// stdinArgument stands for standard input in a list of files.
const stdinArgument = "-"

func newImageCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "image",
		Short: "Import images from files, and list those that the cluster has",
		Args:  cobra.NoArgs,
	}
	command.AddCommand(newImageImportCommand(layout.ContainerdSocket), newImageListCommand(layout.ContainerdSocket))
	return command
}

func newImageImportCommand(socket string) *cobra.Command {
	name := ""
	command := &cobra.Command{
		Use:   "import FILE...",
		Short: "Import images from archives, so that pods can use them without a registry",
		Long: `Import images from archives: docker archives ("docker save") and OCI layouts in a tar file, plain or compressed by
gzip; - is standard input. Every archive is checked before the first is imported.

Pods use an imported image under its name if their imagePullPolicy is IfNotPresent, the default for tags other than
"latest". The cluster never deletes it to make room.`,
		Example: `  docker save example/app:1 | ordinal image import -
  ordinal image import app.tar --name example/app:1`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return importImages(cmd.Context(), socket, imageImport{files: args, name: name, in: cmd.InOrStdin(), out: cmd.OutOrStdout()})
		},
	}
	command.Flags().StringVar(&name, "name", "", "name and tag for an image to which its archive gives none")
	return command
}

type imageImport struct {
	files []string
	name  string
	in    io.Reader
	out   io.Writer
}

func importImages(ctx context.Context, socket string, i imageImport) error {
	archives := make([]store.Archive, 0, len(i.files))
	for _, file := range i.files {
		archives = append(archives, store.Archive{Path: file})
	}
	if at := slices.Index(i.files, stdinArgument); at >= 0 {
		if slices.Contains(i.files[at+1:], stdinArgument) {
			return errors.New("standard input can be imported once only")
		}
		file, err := spool(i.in)
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		defer func() { _ = os.Remove(file) }()
		archives[at] = store.Archive{Path: file, Label: "standard input"}
	}
	var told error
	err := store.Import(ctx, socket, store.ImportOptions{Archives: archives, Name: i.name, Report: func(img store.Image) {
		_, err := fmt.Fprintf(i.out, "imported %s (%s)\n", img.Reference(), humanSize(img.Size))
		told = cmp.Or(told, err)
	}})
	return cmp.Or(err, told)
}

// spool keeps a stream in a temporary file, because an archive is read twice: once to check it.
func spool(in io.Reader) (string, error) {
	f, err := os.CreateTemp("", "ordinal-image-*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, in)
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

func newImageListCommand(socket string) *cobra.Command {
	output := ""
	command := &cobra.Command{
		Use:   "list",
		Short: "List the images that the cluster has, imported or pulled",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listImages(cmd.Context(), socket, cmd.OutOrStdout(), output)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json for programs; a table by default")
	return command
}

func listImages(ctx context.Context, socket string, out io.Writer, output string) error {
	if output != "" && output != "json" {
		return fmt.Errorf("--output %q is not known; json is", output)
	}
	list, err := store.List(ctx, socket)
	if err != nil {
		return err
	}
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	}
	return printImages(out, list)
}

func printImages(out io.Writer, list []store.Image) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "NAME\tTAG/DIGEST\tSIZE")
	for _, img := range list {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", img.Name, cmp.Or(img.Tag, img.Digest.String()), humanSize(img.Size))
	}
	return table.Flush()
}

func humanSize(n int64) string { return units.HumanSizeWithPrecision(float64(n), 3) }
