// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/ordinal-dev/ordinal/internal/doctor"
)

func TestPrintResults(t *testing.T) {
	var out bytes.Buffer
	err := printResults(&out, []doctor.Result{
		{Name: "root", State: doctor.OK, Detail: "yes"},
		{Name: "disk", State: doctor.Warn, Detail: "3.0 GiB free", Remedy: "free some"},
		{Name: "runc", State: doctor.Fail, Detail: "not found on the path", Remedy: "apt-get install runc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `
ok    root  yes
warn  disk  3.0 GiB free
              mend it with: free some
FAIL  runc  not found on the path
              mend it with: apt-get install runc
`
	if got := out.String(); got != want[1:] {
		t.Errorf("got\n%s\nwant\n%s", got, want[1:])
	}
}

func TestDoctorFailsWhereAClusterCannotRun(t *testing.T) {
	command := newDoctorCommand(doctorDeps{
		dataDir: func() string { return t.TempDir() },
		binDir:  func() (string, error) { return t.TempDir(), nil }, // nothing was built there
		running: func(context.Context) bool { return true },
	})
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs([]string{})

	err := command.ExecuteContext(t.Context())

	if err == nil || !strings.Contains(err.Error(), "this host cannot run a cluster yet") {
		t.Errorf("error %v, want one that says that no cluster can run", err)
	}
	if !strings.Contains(out.String(), "make build") {
		t.Errorf("output does not tell how to mend it:\n%s", out.String())
	}
}
