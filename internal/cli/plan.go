// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/internal/preview/dryrun"
)

// planOptions are the flags of `ordinal plan`.
type planOptions struct {
	dryrun.Request

	output              string
	replicas, partition int32
}

func newPlanCommand(shared *globals) *cobra.Command {
	o := &planOptions{}
	connection := newConnectionFlags(shared)
	cmd := &cobra.Command{
		Use:   "plan (-f FILE... | sts/NAME...)",
		Short: "Tell what an edit of StatefulSets would do, pod by pod and claim by claim",
		Long: `Tell what applying files, or changing a StatefulSet, would do: which revisions, pods and claims are created, replaced,
kept and deleted, in which order, where it would wait and for what, and what cannot be done. The API server
is asked by dry runs only; nothing is changed.

The exit code is 0 if nothing would change, 2 if something would, and 1 if something is refused.`,
		Example: `  ordinal plan -f web.yaml
  ordinal plan sts/web --image main=registry.example/web:2 --partition 2
  ordinal plan sts/web --delete`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.complete(cmd, args)
			if err := o.validate(); err != nil {
				return err
			}
			session, err := connection.connect()
			if err != nil {
				return err
			}
			o.Cluster, o.Kubectl = connection.ConfigFlags, session.tools.Kubectl
			report, err := dryrun.Run(cmd.Context(), o.Request)
			if err != nil {
				return err
			}
			if err := o.print(cmd.OutOrStdout(), report); err != nil {
				return err
			}
			return verdict(report)
		},
	}
	f := cmd.Flags()
	connection.AddFlags(f)
	f.StringSliceVarP(&o.Files.Filenames, "filename", "f", nil, "files, directories or URLs that would be applied; - for standard input")
	f.BoolVarP(&o.Files.Recursive, "recursive", "R", false, "with -f, look into directories of directories too")
	f.StringArrayVar(&o.Change.Images, "image", nil, "`container=image` that a set would get, or an image alone if it has one container")
	f.StringArrayVar(&o.Change.Env, "env", nil, "`name=value` that the containers of a set would get in their environment")
	f.Int32Var(&o.replicas, "replicas", 0, "how many pods a set would have")
	f.Int32Var(&o.partition, "partition", 0, "the partition that a set's rolling update would have")
	f.BoolVar(&o.Change.Delete, "delete", false, "the set would be deleted")
	f.StringVarP(&o.output, "output", "o", "", "json or yaml for programs; words by default")
	f.BoolVar(&o.Options.Strict, "strict-upstream", false, "the controller is started with --strict-upstream")
	f.BoolVar(&o.Options.Recreate, "recreate-strategy", false, "the controller is started with --recreate-strategy")
	return cmd
}

func (o *planOptions) complete(cmd *cobra.Command, args []string) {
	o.Sets, o.Warnings = args, cmd.ErrOrStderr()
	o.Options.Defaulter = appsdefaults.SetObjectDefaults_StatefulSet
	if cmd.Flags().Changed("replicas") {
		o.Change.Replicas = &o.replicas
	}
	if cmd.Flags().Changed("partition") {
		o.Change.Partition = &o.partition
	}
}

func (o *planOptions) validate() error {
	files, sets := len(o.Files.Filenames) > 0, len(o.Sets) > 0
	switch {
	case files && sets:
		return errors.New("either files (-f) or sets are given, not both")
	case !files && !sets:
		return errors.New("what is to be looked at? Files (-f FILE), or a set and its change (sts/NAME --image IMAGE)")
	case files && !o.Change.IsEmpty():
		return errors.New("--image, --env, --replicas, --partition and --delete go with sets (sts/NAME), not with files")
	case o.replicas < 0 || o.partition < 0:
		return errors.New("--replicas and --partition must not be negative")
	}
	return o.validateOutput()
}

func (o *planOptions) validateOutput() error {
	if o.output != "" && o.output != "json" && o.output != "yaml" {
		return fmt.Errorf("--output %q is not known; json and yaml are", o.output)
	}
	return nil
}

func (o *planOptions) print(out io.Writer, report dryrun.Report) error {
	if o.output == "" {
		return report.Write(out)
	}
	text, err := yaml.Marshal(report)
	if err == nil && o.output == "json" {
		text, err = json.MarshalIndent(report, "", "  ")
		text = append(text, '\n')
	}
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	_, err = out.Write(text)
	return err
}

// verdict is the end of the command.
func verdict(r dryrun.Report) error {
	switch {
	case r.IsRefused():
		return errSilent
	case r.IsChange():
		return exitError(2)
	default:
		return nil
	}
}

// exitError ends a command with that code, when all has been told already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }
