// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/why"
)

// newWhyCommand makes `ordinal why`: what a set waits for, in words.
func newWhyCommand(shared *globals) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "why sts/NAME",
		Short: "Tell what a StatefulSet does and what it waits for, with the evidence and a remedy",
		Long: `Tell what a StatefulSet does and what it waits for: on which object, by which rule, since when, what can be seen of
it, and what you can do. Nothing is changed. It works in any cluster, also where kube-controller-manager decides.

The exit code is 0 if all is as it was asked to be or goes on by itself, and 1 if something is wrong or if nothing could be
told.`,
		Example: "  " + shared.program() + " why sts/web\n  " + shared.program() + " why sts/web -n shop -o json",
		Args:    cobra.RangeArgs(1, 2),
	}
	connect := addConnection(cmd, shared)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := setName(args)
		if err != nil {
			return err
		}
		if err := isJSONOrEmpty(output); err != nil {
			return err
		}
		s, err := connect()
		if err != nil {
			return err
		}
		return s.why(cmd, name, output)
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for programs; text by default")
	return cmd
}

// defaultOptions are those of a controller without flags. The API server lets the strategy Recreate pass only where it is allowed.
func defaultOptions() plan.Options {
	return plan.Options{Defaulter: appsdefaults.SetObjectDefaults_StatefulSet, Recreate: true}
}

func (s *session) why(cmd *cobra.Command, name, output string) error {
	ctx := cmd.Context()
	facts, err := why.Read(ctx, why.Question{
		Client:   s.client,
		Policies: s.policies,
		Key:      observe.Key{Namespace: s.namespace, Name: name},
		Options:  defaultOptions(),
		Now:      time.Now(),
		Tools:    s.tools,
	})
	if err != nil {
		return s.explain(ctx, name, err)
	}
	report := why.Of(facts)
	out := cmd.OutOrStdout()
	if output == "json" {
		err = printJSON(out, report)
	} else {
		err = report.Print(out, printers.AllowsColorOutput(out))
	}
	if err == nil && report.State == why.Stuck {
		return errSilent
	}
	return err
}

func isJSONOrEmpty(output string) error {
	if output != "" && output != "json" {
		return fmt.Errorf("--output %q is not known; json is", output)
	}
	return nil
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
