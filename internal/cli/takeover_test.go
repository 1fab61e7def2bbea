// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ordinal-dev/ordinal/internal/takeover"
)

func TestTakeoverExitCodes(t *testing.T) {
	for verdict, want := range map[takeover.Verdict]error{
		takeover.Ready: nil, takeover.Changes: exitError(2),
		takeover.NotYet: errSilent, takeover.Both: errSilent, takeover.Undecided: errSilent, "anything else": errSilent,
	} {
		if got := takeoverVerdict(verdict); !errors.Is(got, want) {
			t.Errorf("%s ends with %v, want %v", verdict, got, want)
		}
	}
}

func TestTakeoverCheckRefusesBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"check --wait 10ms":  "--wait must be at least 1s",
		"check -o yaml":      `--output "yaml" is not known`,
		"check everything":   "unknown command",
		"chek":               `unknown command "chek"`,
		"check --canary=yes": "unknown flag",
	} {
		cmd := newTakeoverCommand(&globals{})
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s ends with %v, want %q", args, err, want)
		}
	}
}
