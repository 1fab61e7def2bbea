// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"

	"github.com/ordinal-dev/ordinal/internal/rollout"
	"github.com/ordinal-dev/ordinal/internal/why"
)

// newRolloutCommand makes `ordinal rollout`: watch and steer the rollout of a set's template.
func newRolloutCommand(shared *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Watch a StatefulSet's rollout, pause and resume it, try it again, go back",
		Long: `Watch and steer the rollout of a StatefulSet's template. Pausing, resuming and trying again go through the set's
StatefulSetPolicy; the others work in any cluster.`,
		SuggestionsMinimumDistance: 2,
		Args:                       unknownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	connect := addConnection(cmd, shared)
	cmd.AddCommand(
		newRolloutStatusCommand(connect),
		newRolloutPauseCommand(connect),
		newRolloutResumeCommand(connect),
		newRolloutRetryCommand(connect),
		newRolloutUndoCommand(connect),
		newRolloutHistoryCommand(connect),
	)
	return cmd
}

// onSet makes the body of a command that is about one set.
func onSet(connect connector, run func(context.Context, session, string, io.Writer) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		name, err := setName(args)
		if err != nil {
			return err
		}
		s, err := connect()
		if err != nil {
			return err
		}
		return s.explain(cmd.Context(), name, run(cmd.Context(), s, name, cmd.OutOrStdout()))
	}
}

// onPolicy makes the body of a command that changes the policy of a set that there is, and tells what it did.
func onPolicy(connect connector, change func(context.Context, session, string) (string, error)) func(*cobra.Command, []string) error {
	return onSet(connect, func(ctx context.Context, s session, name string, out io.Writer) error {
		set, err := s.set(ctx, name)
		if err != nil {
			return err
		}
		text, err := change(ctx, s, name)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
		if s.actor(ctx, set) == why.Incumbent {
			_, err = fmt.Fprintln(out, "But kube-controller-manager works on this set, and knows no policies.")
		}
		return err
	})
}

func newRolloutPauseCommand(connect connector) *cobra.Command {
	return &cobra.Command{
		Use:   "pause sts/NAME",
		Short: "Let no pod be replaced because of the template",
		Long: `Let no pod be replaced because of the template: sets spec.rollout.paused of the set's StatefulSetPolicy, which is made if
there is none.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: onPolicy(connect, func(ctx context.Context, s session, name string) (string, error) {
			return rollout.Pause(ctx, s.policies(s.namespace), s.namespace, name)
		}),
	}
}

func newRolloutResumeCommand(connect connector) *cobra.Command {
	return &cobra.Command{
		Use:   "resume sts/NAME",
		Short: "End a pause, or begin the next batch",
		Args:  cobra.RangeArgs(1, 2),
		RunE: onPolicy(connect, func(ctx context.Context, s session, name string) (string, error) {
			return rollout.Resume(ctx, s.policies(s.namespace), name, time.Now())
		}),
	}
}

func newRolloutRetryCommand(connect connector) *cobra.Command {
	return &cobra.Command{
		Use:   "retry sts/NAME",
		Short: "Try a template again whose rollout failed",
		Args:  cobra.RangeArgs(1, 2),
		RunE: onPolicy(connect, func(ctx context.Context, s session, name string) (string, error) {
			return rollout.Retry(ctx, s.policies(s.namespace), name, time.Now())
		}),
	}
}

func newRolloutUndoCommand(connect connector) *cobra.Command {
	revision := int64(0)
	cmd := &cobra.Command{
		Use:   "undo sts/NAME",
		Short: "Go back to the template before, or to that of a revision",
		Long: `Go back to the template before, or to that of a revision, as kubectl does: the template of that ControllerRevision is
written into the StatefulSet. "history" lists the revisions.`,
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.Flags().Int64Var(&revision, "to-revision", revision, "number of the revision; 0 is the one before the newest")
	cmdutil.AddDryRunFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dryRun, err := cmdutil.GetDryRunStrategy(cmd)
		if err != nil {
			return err
		}
		return onSet(connect, func(ctx context.Context, s session, name string, out io.Writer) error {
			return s.undo(ctx, out, name, revision, dryRun)
		})(cmd, args)
	}
	return cmd
}

func (s *session) undo(ctx context.Context, out io.Writer, name string, revision int64, dryRun cmdutil.DryRunStrategy) error {
	set, err := s.set(ctx, name)
	if err != nil {
		return err
	}
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind()
	rollbacker, err := polymorphichelpers.RollbackerFor(kind, s.client)
	if err != nil {
		return err
	}
	text, err := rollbacker.Rollback(set, nil, revision, dryRun)
	if err != nil {
		return fmt.Errorf("undo %s: %w", name, err)
	}
	switch dryRun {
	case cmdutil.DryRunClient:
		_, err = fmt.Fprintf(out, "%s would have this template:\n%s", name, text)
	case cmdutil.DryRunServer:
		_, err = fmt.Fprintf(out, "%s %s (server dry run)\n", name, text)
	case cmdutil.DryRunNone:
		_, err = fmt.Fprintf(out, "%s %s\n", name, text)
	}
	return err
}

func newRolloutHistoryCommand(connect connector) *cobra.Command {
	output, revision := "", int64(0)
	cmd := &cobra.Command{
		Use:   "history sts/NAME",
		Short: "List the templates that a set had, and which pods have them",
		Args:  cobra.RangeArgs(1, 2),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for programs; a table by default")
	cmd.Flags().Int64Var(&revision, "revision", revision, "show the template of the revision with this number")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := isJSONOrEmpty(output); err != nil {
			return err
		}
		if revision < 0 {
			return errors.New("--revision must be at least 1")
		}
		return onSet(connect, func(ctx context.Context, s session, name string, out io.Writer) error {
			if revision > 0 {
				return s.template(ctx, out, name, revision)
			}
			return s.history(ctx, out, name, output)
		})(cmd, args)
	}
	return cmd
}

// template shows the template of a revision as kubectl does.
func (s *session) template(ctx context.Context, out io.Writer, name string, revision int64) error {
	if _, err := s.set(ctx, name); err != nil {
		return err
	}
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind()
	viewer, err := polymorphichelpers.HistoryViewerFor(kind, s.client)
	if err != nil {
		return err
	}
	text, err := viewer.ViewHistory(s.namespace, name, revision)
	if err != nil {
		return fmt.Errorf("show revision %d of %s: %w", revision, name, err)
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

func (s *session) history(ctx context.Context, out io.Writer, name, output string) error {
	set, err := s.set(ctx, name)
	if err != nil {
		return err
	}
	subject, err := s.subject(ctx, set)
	if err != nil {
		return err
	}
	list, err := s.client.AppsV1().ControllerRevisions(s.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector),
	})
	if err != nil {
		return fmt.Errorf("list revisions: %w", err)
	}
	revisions := make([]*appsv1.ControllerRevision, len(list.Items))
	for i := range list.Items {
		revisions[i] = &list.Items[i]
	}
	rows := subject.History(revisions)
	if output == "json" {
		return printJSON(out, rows)
	}
	return rollout.PrintHistory(out, rows)
}

func (s *session) set(ctx context.Context, name string) (*appsv1.StatefulSet, error) {
	return s.client.AppsV1().StatefulSets(s.namespace).Get(ctx, name, metav1.GetOptions{})
}

// actor is the controller that works on a set.
func (s *session) actor(ctx context.Context, set *appsv1.StatefulSet) why.Actor {
	return why.ActorOf(set, why.Lease(ctx, s.client), time.Now())
}

// subject is a set with its pods, and its policies if its controller knows them.
func (s *session) subject(ctx context.Context, set *appsv1.StatefulSet) (rollout.Subject, error) {
	subject := rollout.Subject{Set: set, Now: time.Now()}
	pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector),
	})
	if err != nil {
		return subject, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		subject.Pods = append(subject.Pods, &pods.Items[i])
	}
	if err := s.addPolicies(ctx, &subject); err != nil {
		return subject, err
	}
	return subject, nil
}

// addPolicies adds the set's policies if its controller knows them.
func (s *session) addPolicies(ctx context.Context, subject *rollout.Subject) (err error) {
	if s.actor(ctx, subject.Set) == why.Incumbent {
		return nil
	}
	subject.Policies, err = rollout.PoliciesOf(ctx, s.policies(s.namespace), subject.Set.Name)
	return err
}
