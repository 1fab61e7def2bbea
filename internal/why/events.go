// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// refusalLife is how long a refusal counts that was not told again. Controllers try again after up to a quarter of an hour.
const refusalLife = 20 * time.Minute

// newest is the newest event about an object with one of the reasons, or with any if none is given; nil if there is none.
func (f *Facts) newest(kind, name string, reasons ...string) *corev1.Event {
	var found *corev1.Event
	for i := range f.Events {
		e := &f.Events[i]
		if e.InvolvedObject.Kind != kind || e.InvolvedObject.Name != name {
			continue
		}
		if len(reasons) > 0 && !slices.Contains(reasons, e.Reason) {
			continue
		}
		if found == nil || timeOf(e).After(timeOf(found)) {
			found = e
		}
	}
	return found
}

// ofPod is the newest event of this pod, and not of an earlier one of its name.
func (f *Facts) ofPod(pod *corev1.Pod, reasons ...string) *corev1.Event {
	e := f.newest("Pod", pod.Name, reasons...)
	if e == nil || (e.InvolvedObject.UID != "" && e.InvolvedObject.UID != pod.UID) {
		return nil
	}
	return e
}

// timeOf is when an event happened last.
func timeOf(e *corev1.Event) time.Time {
	last := e.LastTimestamp.Time
	for _, t := range []time.Time{e.FirstTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time} {
		if last.IsZero() {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// times tells how often an event happened, and when it did last.
func (f *Facts) times(e *corev1.Event) string {
	n := max(1, e.Count)
	if e.Series != nil {
		n = max(n, e.Series.Count)
	}
	ago := f.ago(timeOf(e))
	if n == 1 {
		return ago + " ago"
	}
	return fmt.Sprintf("%d times, last %s ago", n, ago)
}

func (f *Facts) ago(t time.Time) string {
	return duration.HumanDuration(max(0, f.Snapshot.Now.Sub(t)))
}

// refusal is the newest event by which the creation of a pod or of its claim was refused; nil if it was not.
func (f *Facts) refusal(name string) *corev1.Event {
	var found *corev1.Event
	for i := range f.Events {
		e := &f.Events[i]
		if e.InvolvedObject.Kind != "StatefulSet" || e.Reason != "FailedCreate" || !names(e.Message, name) {
			continue
		}
		if f.Snapshot.Now.Sub(timeOf(e)) < refusalLife && (found == nil || timeOf(e).After(timeOf(found))) {
			found = e
		}
	}
	return found
}

// names tells if a message names an object as one of its words.
func names(message, name string) bool {
	return slices.ContainsFunc(strings.Fields(message), func(word string) bool { return strings.Trim(word, `"':,;`) == name })
}

// cause is what a message says after the words of the controller.
func cause(message string) string {
	if _, after, found := strings.Cut(message, "failed error: "); found {
		return after
	}
	return message
}
