// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the other commands tell about a running cluster.
func TestCommands(t *testing.T) {
	c := sharedCluster(t)
	said := func(args ...string) string {
		t.Helper()
		out := c.run(t.Context(), args...)
		if err := out.err(); err != nil {
			t.Fatal(err)
		}
		return out.stdout
	}
	_, server, _ := strings.Cut(said("kubectl", "version"), "Server Version: ")
	server = strings.TrimSpace(server)
	if long, short := said("--version"), said("version"); long != short {
		t.Errorf("--version says %q, version %q", long, short)
	}
	if version := said("version"); server == "" || !strings.Contains(version, server) {
		t.Errorf("version says %q, the API server is %q", version, server)
	}
	images := said("image", "list")
	for _, want := range []string{`/busybox\s+1.28.3`, `/nginx\s+1.16`, `/nginx\s+1.17`, `ordinal.dev/pause\s+1`, `ordinal.dev/visits\s+1`} {
		if !regexp.MustCompile(want).MatchString(images) {
			t.Errorf("image list does not show %s:\n%s", want, images)
		}
	}
	table := said("status")
	for name, part := range c.mustStatus(t) {
		if part.State != running || part.PID == 0 || part.Restarts != 0 || part.MemoryBytes < 1<<20 || !exists(part.Log) {
			t.Errorf("%s is %+v", name, part)
		}
		if !strings.Contains(table, name) {
			t.Errorf("status does not show %s:\n%s", name, table)
		}
	}
	if nodes := said("kubectl", "get", "nodes"); !regexp.MustCompile(`(?m)^ordinal\s+Ready\s`).MatchString(nodes) {
		t.Errorf("the node is not ready:\n%s", nodes)
	}
	if out := c.run(t.Context(), "doctor"); out.code != 0 {
		t.Errorf("doctor finds fault with a host on which the cluster runs: %s", out.stdout+out.stderr)
	}
}

// Bad input is refused in one line.
func TestBadInput(t *testing.T) {
	c := sharedCluster(t)
	broken := filepath.Join(t.TempDir(), "broken.tar")
	if err := os.WriteFile(broken, []byte("this is no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"port out of range":     {[]string{"up", "--api-port", "70000"}, `--api-port`},
		"no such flag":          {[]string{"up", "--no-such-flag"}, `no-such-flag`},
		"bad class name":        {[]string{"up", "--storage-class", "Not A Name"}, `--storage-class`},
		"no such command":       {[]string{"upp"}, `upp`},
		"image file is missing": {[]string{"image", "import", "/no/such/file.tar"}, `/no/such/file.tar`},
		"image file is broken":  {[]string{"image", "import", broken}, regexp.QuoteMeta(broken)},
		"purge without yes":     {[]string{"down", "--purge"}, `--yes`},
	} {
		t.Run(name, func(t *testing.T) { checkRefusal(t, c.run(t.Context(), test.args...), test.says) })
	}
	for name, part := range c.mustStatus(t) {
		if part.State != running {
			t.Errorf("%s is %s", name, part.State)
		}
	}
}
