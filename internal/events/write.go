// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/klog/v2"
)

const (
	// callTimeout is how long one write may take, and flushTime how long all may take that wait when the log is stopped.
	callTimeout, flushTime = 5 * time.Second, 10 * time.Second
	// firstPause and lastPause bound the pause after a write that has to be tried again.
	firstPause, lastPause = 100 * time.Millisecond, 30 * time.Second
	// patience is how often an event is tried over which the API server itself fails, as when a webhook is broken.
	patience = 10
)

// past is what is known of an event that was written.
type past struct {
	name  string
	count int32
}

// Run writes events until ctx is done, and then, for a few seconds at most, those that wait. It is called once.
func (l *Log) Run(ctx context.Context) {
	for ctx.Err() == nil {
		l.drain(ctx)
		select {
		case <-ctx.Done():
		case <-l.added:
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	l.combine()
	l.drain(ending)
	if left := l.left(); left > 0 {
		klog.FromContext(ctx).Error(nil, "Stopped before all events were written", "left", left)
	}
}

// drain writes what waits, until nothing does or ctx is done.
func (l *Log) drain(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		n := l.take()
		if n == nil {
			return
		}
		err := l.write(ctx, n)
		if err == nil || !l.again(ctx, n, err) {
			pause = firstPause
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// again lets a note wait once more, behind the others, if it may be written another time. Otherwise it is given up.
func (l *Log) again(ctx context.Context, n *note, err error) bool {
	log := klog.FromContext(ctx).WithValues("object", klog.KRef(n.about.Namespace, n.about.Name), "reason", n.reason, "message", n.text)
	switch status, ok := errors.AsType[*apierrors.StatusError](err); {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		log.V(2).Info("Event is too late for its namespace")
		return false
	case ok && isRefusal(int(status.ErrStatus.Code)):
		log.Error(err, "Event was refused")
		return false
	case ok && status.ErrStatus.Code == http.StatusInternalServerError:
		n.broken++
	}
	if n.broken >= patience {
		log.Error(err, "Event is given up", "tries", n.broken)
		return false
	}
	log.V(2).Info("Event has to wait", "err", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(n, most)
	return true
}

// isRefusal tells if an answer is about the event, and would be the same another time.
func isRefusal(code int) bool {
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// write creates the event of a note, or counts up the one that says the same. It is not cut short when ctx is done: its end
// would be unknown.
func (l *Log) write(ctx context.Context, n *note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if known, ok := l.written.Get(n.said); ok {
		p := known.(past)
		err := l.countUp(ctx, n, p)
		if !apierrors.IsNotFound(err) {
			return err
		}
		// Events live for an hour. This one is told anew.
		l.written.Remove(n.said)
	}
	return l.create(ctx, n)
}

func (l *Log) countUp(ctx context.Context, n *note, p past) error {
	p.count += n.count
	body, err := json.Marshal(map[string]any{"count": p.count, "lastTimestamp": metav1.NewTime(n.last), "message": n.text})
	if err != nil {
		return fmt.Errorf("encode patch of event %s: %w", p.name, err)
	}
	_, err = l.client.Events(n.namespace()).Patch(ctx, p.name, types.MergePatchType, body, metav1.PatchOptions{})
	if err == nil {
		l.written.Add(n.said, p)
	}
	return err
}

func (l *Log) create(ctx context.Context, n *note) error {
	again := n.name != ""
	if !again {
		n.name = l.nameFor(n.about.Name)
	}
	about := n.about
	about.ResourceVersion = n.version
	_, err := l.client.Events(n.namespace()).Create(ctx, &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: n.name, Namespace: n.namespace()},
		InvolvedObject:      about,
		Reason:              n.reason,
		Message:             n.text,
		Type:                n.kind,
		Count:               n.count,
		FirstTimestamp:      metav1.NewTime(n.first),
		LastTimestamp:       metav1.NewTime(n.last),
		Source:              corev1.EventSource{Component: l.source},
		ReportingController: l.source,
	}, metav1.CreateOptions{})
	if again && apierrors.IsAlreadyExists(err) {
		// It was written although no answer came. Since then it may have been counted up.
		return l.countUp(ctx, n, past{name: n.name})
	}
	if err != nil {
		return err
	}
	l.written.Add(n.said, past{name: n.name, count: n.count})
	return nil
}

// nameFor gives a name that no other event has.
func (l *Log) nameFor(object string) string {
	l.lastName = max(time.Now().UnixNano(), l.lastName+1)
	return util.GenerateEventName(object, l.lastName)
}

// namespace is where the event of a note is: that of its object, as far as that has one.
func (n *note) namespace() string { return cmp.Or(n.about.Namespace, metav1.NamespaceDefault) }
