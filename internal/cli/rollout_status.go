// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubectl/pkg/util/term"

	"github.com/ordinal-dev/ordinal/internal/rollout"
)

// Times of watching a rollout.
const (
	// lookAgain is how often a rollout is looked at although nothing has told of a change, as policies are not watched.
	lookAgain = 5 * time.Second
	// settleTime is how long changes are gathered before one look at all of them.
	settleTime = 200 * time.Millisecond
)

type rolloutStatusOptions struct {
	watch   bool
	timeout time.Duration
}

func newRolloutStatusCommand(connect connector) *cobra.Command {
	o := rolloutStatusOptions{watch: true}
	cmd := &cobra.Command{
		Use:   "status sts/NAME",
		Short: "Wait until a rollout is complete, and tell how far it is",
		Long: `Wait until a rollout is complete: all pods that may have the template, as the partition keeps the others, have it and are
available. Meanwhile it tells how far it is, on a terminal in one line.

The exit code is 0 when the rollout is complete. It is 1 when it will not go on by itself: when it failed, when it is
paused without an end, when pods of an OnDelete set wait to be deleted by somebody, and when --timeout has passed. With
--watch=false it does not wait, and a rollout that goes on is no failure.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: onSet(connect, func(ctx context.Context, s session, name string, out io.Writer) error {
			return s.rolloutStatus(ctx, out, name, o)
		}),
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", o.watch, "wait until it is complete")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "how long to wait; 0 is for ever")
	return cmd
}

// errTimeout ends a wait for a rollout.
var errTimeout = errors.New("timed out")

func (s *session) rolloutStatus(ctx context.Context, out io.Writer, name string, o rolloutStatusOptions) error {
	if o.timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
		ctx = limited
	}
	line := &progressLine{out: out, columns: columnsOf(out)}
	defer line.end()
	set, err := s.set(ctx, name)
	if err != nil {
		return err
	}
	if !o.watch {
		subject, err := s.subject(ctx, set)
		if err != nil {
			return err
		}
		_, err = s.tellVerdict(line, subject.Judge())
		return err
	}
	err = s.follow(ctx, set, func(subject rollout.Subject) (time.Time, bool, error) {
		v := subject.Judge()
		over, err := s.tellVerdict(line, v)
		return v.Next, over, err
	})
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		return fmt.Errorf("timed out after %s: %s", o.timeout, line.last)
	case errors.Is(err, context.Canceled):
		// Somebody has interrupted it, and knows that.
		return errSilent
	}
	return err
}

// tellVerdict tells how a rollout fares, and if waiting is over. A rollout that does not go on by itself is an error.
func (s *session) tellVerdict(line *progressLine, v rollout.Verdict) (bool, error) {
	if !v.Failed {
		line.tell(v.Text)
		return v.Over, nil
	}
	switch {
	case v.Command == "":
		return true, errors.New(v.Text)
	case v.Kubectl:
		return true, fmt.Errorf("%s; go on with: %s %s%s", v.Text, s.tools.Kubectl, v.Command, s.tools.Flags)
	}
	return true, fmt.Errorf("%s; go on with: %s %s%s", v.Text, s.tools.Ordinal, v.Command, s.tools.Flags)
}

// look judges a subject. It returns when the next look is due at the latest (zero for no such time), and if it was the last.
type look func(rollout.Subject) (next time.Time, over bool, err error)

// follow looks at a set whenever it or one of its pods changes, until a look was the last.
func (s *session) follow(ctx context.Context, set *appsv1.StatefulSet, judge look) error {
	ctx, stop := context.WithCancel(ctx)
	changed, failed := make(chan struct{}, 1), make(chan error, 1)
	sets := s.informers("metadata.name="+set.Name, "")
	pods := s.informers("", metav1.FormatLabelSelector(set.Spec.Selector))
	defer sets.Shutdown()
	defer pods.Shutdown()
	defer stop()
	f := follower{session: s, key: set.Namespace + "/" + set.Name, judge: judge}
	f.sets, f.pods = sets.Apps().V1().StatefulSets().Informer(), pods.Core().V1().Pods().Informer()
	for _, informer := range []cache.SharedIndexInformer{f.sets, f.pods} {
		if err := announce(informer, changed, failed); err != nil {
			return err
		}
	}
	sets.Start(ctx.Done())
	pods.Start(ctx.Done())
	return f.run(ctx, changed, failed)
}

// informers make the caches of the session's namespace for what the selectors match.
func (s *session) informers(fieldSelector, labelSelector string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithNamespace(s.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector, o.LabelSelector = fieldSelector, labelSelector
		}))
}

// announce tells of changes, and of errors that do not pass.
func announce(informer cache.SharedIndexInformer, changed chan<- struct{}, failed chan<- error) error {
	tell := func(any) { offerTo(changed, struct{}{}) }
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(_, _ any) { offerTo(changed, struct{}{}) },
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		// Others pass: the connection was cut, or the server is busy.
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			offerTo(failed, err)
		}
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return nil
}

// offerTo sends a value if nothing waits to be received.
func offerTo[T any](to chan<- T, value T) {
	select {
	case to <- value:
	default:
	}
}

// follower looks at a set again and again.
type follower struct {
	*session

	key        string
	sets, pods cache.SharedIndexInformer
	judge      look
}

func (f *follower) run(ctx context.Context, changed <-chan struct{}, failed <-chan error) error {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	gathering := true
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-changed:
			if !gathering {
				timer.Reset(settleTime)
			}
			gathering = true
			continue
		case <-timer.C:
		}
		gathering = false
		if !f.sets.HasSynced() || !f.pods.HasSynced() {
			timer.Reset(settleTime)
			continue
		}
		next, over, err := f.lookOnce(ctx)
		if over || err != nil {
			return err
		}
		timer.Reset(untilNext(next))
	}
}

// untilNext is how long it is until the next look at the latest.
func untilNext(next time.Time) time.Duration {
	if next.IsZero() {
		return lookAgain
	}
	return min(lookAgain, max(settleTime, time.Until(next)))
}

func (f *follower) lookOnce(ctx context.Context) (next time.Time, over bool, err error) {
	obj, exists, err := f.sets.GetStore().GetByKey(f.key)
	if err != nil {
		return next, false, fmt.Errorf("get set from cache: %w", err)
	}
	set, ok := obj.(*appsv1.StatefulSet)
	if !exists || !ok {
		return next, false, fmt.Errorf("set %s is gone", f.key)
	}
	subject := rollout.Subject{Set: set, Now: time.Now()}
	for _, obj := range f.pods.GetStore().List() {
		if pod, ok := obj.(*corev1.Pod); ok {
			subject.Pods = append(subject.Pods, pod)
		}
	}
	if err := f.addPolicies(ctx, &subject); err != nil {
		return next, false, err
	}
	return f.judge(subject)
}

// progressLine tells how far something is. On a terminal it is one line that is written anew; elsewhere each change is a line.
type progressLine struct {
	out io.Writer
	// columns is how wide the terminal is; 0 if there is none.
	columns int
	last    string
}

func (p *progressLine) tell(text string) {
	if text == p.last {
		return
	}
	p.last = text
	if p.columns == 0 {
		_, _ = fmt.Fprintln(p.out, text)
		return
	}
	if runes := []rune(text); len(runes) >= p.columns {
		text = string(runes[:p.columns-1])
	}
	_, _ = fmt.Fprint(p.out, "\r\x1b[K"+text)
}

// end leaves the line as it is.
func (p *progressLine) end() {
	if p.columns != 0 && p.last != "" {
		_, _ = fmt.Fprintln(p.out)
	}
}

// columnsOf is how wide a terminal is; 0 for what is none.
func columnsOf(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok || !printers.IsTerminal(out) {
		return 0
	}
	if size := term.GetSize(file.Fd()); size != nil && size.Width > 0 {
		return int(size.Width)
	}
	return 80
}
