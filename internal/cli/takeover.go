// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/takeover"
)

// takeoverOptions are the flags of `ordinal takeover check`.
type takeoverOptions struct {
	output           string
	noCanary         bool
	wait             time.Duration
	strict, recreate bool
}

// newTakeoverCommand makes `ordinal takeover`: what is of use when Ordinal takes the place of the built-in controller.
func newTakeoverCommand(shared *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "takeover",
		Short: "Take a cluster over from the built-in StatefulSet controller",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTakeoverCheckCommand(shared))
	return cmd
}

func newTakeoverCheckCommand(shared *globals) *cobra.Command {
	o := &takeoverOptions{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Tell whether the built-in StatefulSet controller is off, and what Ordinal would change",
		Long: `Tell whether the StatefulSet controller of kube-controller-manager is off, and what would change for which
set if Ordinal worked in its place.

Whether it is off cannot be asked. It is concluded from what was written by whom, from how kube-controller-manager is
started, where its pods can be seen, and from who reacts to a canary: a set in a namespace of its own whose pod can never be
made, so that nothing runs. Both are removed at the end, also on Ctrl-C; what a check that was killed has left is removed by a
later one. With --no-canary nothing is written.

The exit code is 0 if the built-in controller is off and nothing would change, 2 if it is off and something would, and 1 if it is
on or if that could not be found out.`,
		Example: "  " + shared.program() + " takeover check\n  " + shared.program() + " takeover check --no-canary -n shop",
		Args:    cobra.NoArgs,
	}
	connect := addConnection(cmd, shared)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		s, err := connect()
		if err != nil {
			return err
		}
		return s.takeoverCheck(cmd, o)
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "json for programs; text by default")
	f.BoolVar(&o.noCanary, "no-canary", false, "write nothing; conclude from what is there")
	f.DurationVar(&o.wait, "wait", 10*time.Second, "for how long somebody may react to the canary")
	f.BoolVar(&o.strict, "strict-upstream", false, "the controller will be started with --strict-upstream")
	f.BoolVar(&o.recreate, "recreate-strategy", false, "the controller will be started with --recreate-strategy")
	return cmd
}

func (o *takeoverOptions) validate() error {
	if o.wait < time.Second {
		return errors.New("--wait must be at least 1s")
	}
	return isJSONOrEmpty(o.output)
}

func (s *session) takeoverCheck(cmd *cobra.Command, o *takeoverOptions) error {
	options := plan.Options{Defaulter: defaultOptions().Defaulter, Strict: o.strict, Recreate: o.recreate}
	q := takeover.Question{
		Client: s.client, Policies: s.policies, Options: options, NoCanary: o.noCanary, Wait: o.wait, Now: time.Now,
	}
	if cmd.Flags().Changed("namespace") {
		q.Namespace = s.namespace
	}
	report, err := takeover.Check(cmd.Context(), q)
	switch {
	case errors.Is(err, context.Canceled) && !errors.Is(err, takeover.ErrCanaryLeft):
		return errors.New("interrupted; no canary was left")
	case err != nil:
		return s.explain(cmd.Context(), "", err)
	}
	if o.output == "json" {
		err = printJSON(cmd.OutOrStdout(), report)
	} else {
		err = report.Write(cmd.OutOrStdout())
	}
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return takeoverVerdict(report.Verdict)
}

// takeoverVerdict is the end of the command.
func takeoverVerdict(v takeover.Verdict) error {
	switch v {
	case takeover.Ready:
		return nil
	case takeover.Changes:
		return exitError(2)
	case takeover.Undecided, takeover.NotYet, takeover.Both:
	}
	return errSilent
}
