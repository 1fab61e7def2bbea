// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ordinal-dev/ordinal/internal/image/store"
)

// call runs a command with standard input and gives what it prints.
func call(t *testing.T, command *cobra.Command, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command.SetIn(strings.NewReader(in))
	command.SetOut(&out)
	command.SetErr(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(args)
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// deadEnd is a socket on which something listens that never answers: enough for what goes wrong before the runtime is asked.
func deadEnd(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ordinal") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestImageImportTellsWhatIsWrong(t *testing.T) {
	socket := deadEnd(t)
	t.Setenv("TMPDIR", t.TempDir())
	missing := filepath.Join(t.TempDir(), "missing.tar")
	for name, c := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"nothing":         {args: nil, want: "requires at least 1 arg"},
		"missing":         {args: []string{missing}, want: missing + ": no such file"},
		"no archive":      {in: strings.Repeat("hello ", 200), args: []string{"-"}, want: "standard input: not an image archive"},
		"empty":           {args: []string{"-"}, want: "standard input: the file is empty"},
		"standard twice":  {args: []string{"-", "-"}, want: "once only"},
		"good after evil": {args: []string{missing, "-"}, want: missing},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := call(t, newImageImportCommand(socket), c.in, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error = %v, want one line with %q", err, c.want)
			}
			if out != "" {
				t.Errorf("it printed %q", out)
			}
		})
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

func TestImageCommandsNeedTheRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	for _, command := range []*cobra.Command{newImageImportCommand(socket), newImageListCommand(socket)} {
		args := []string{"a.tar"}
		if command.Name() == "list" {
			args = []string{}
		}
		if _, err := call(t, command, "", args...); err == nil || !strings.Contains(err.Error(), "start it with `ordinal up`") {
			t.Errorf("%s: error = %v, want one that tells what to do", command.Name(), err)
		}
	}
}

func TestImageListRefusesOtherOutput(t *testing.T) {
	if _, err := call(t, newImageListCommand(""), "", "-o", "yaml"); err == nil || !strings.Contains(err.Error(), `"yaml"`) {
		t.Errorf("error = %v, want one about yaml", err)
	}
}

func TestPrintImages(t *testing.T) {
	var out bytes.Buffer
	err := printImages(&out, []store.Image{
		{Name: "docker.io/library/nginx", Tag: "1.16", Digest: "sha256:0a", Size: 6_123_456},
		{Name: "example.test/a", Digest: "sha256:0b", Size: 999},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `
NAME                      TAG/DIGEST   SIZE
docker.io/library/nginx   1.16         6.12MB
example.test/a            sha256:0b    999B
`
	if got := out.String(); got != want[1:] {
		t.Errorf("got\n%s\nwant\n%s", got, want[1:])
	}
}
