// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

const (
	// firstQuiet is for how long no other controller may have written a status until this one works again, which is longer than
	// kube-controller-manager takes to restart, or to hand over to another of its kind.
	firstQuiet = 2 * time.Minute
	// maxQuiet is how long that becomes at most: each time the other was not gone after all, it is doubled. A controller at rest
	// writes nothing, so its silence is no proof.
	maxQuiet = 32 * time.Minute
	// peace is for how long this one has to have worked alone until the time is short again.
	peace = time.Hour
)

// rivals tell whether another controller works on the same sets, by what it writes. Two of them do harm where they disagree, and
// never come to an end of it; so ours leaves all sets to the other, as that one does not know of ours.
type rivals struct {
	mu sync.Mutex
	// last is when the other wrote last, quiet how long it has to be silent from then on; zero if there was no other.
	last  time.Time
	quiet time.Duration
	// told are the sets with an event about it; nil while this controller works.
	told map[observe.Key]bool
}

// sighting is what is new about a write of another controller.
type sighting struct {
	// first means that this controller has to stop for it, and newSet that the set has no event about it yet.
	first, newSet bool
	quiet         time.Duration
}

// saw takes note that another controller wrote the status of a set.
func (r *rivals) saw(key observe.Key, now time.Time) sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := sighting{first: r.told == nil}
	if s.first {
		r.told = map[observe.Key]bool{}
		if r.quiet = min(2*r.quiet, maxQuiet); r.quiet == 0 || now.Sub(r.last) > r.quiet+peace {
			r.quiet = firstQuiet
		}
	}
	s.newSet, s.quiet = !r.told[key], r.quiet
	r.last, r.told[key] = now, true
	return s
}

// rest is for how long this controller still has to do nothing. With over, it is the moment from which it works again.
func (r *rivals) rest(now time.Time) (left time.Duration, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		return 0, false
	}
	if left := r.last.Add(r.quiet).Sub(now); left > 0 {
		return left, false
	}
	r.told = nil
	return 0, true
}

// watchRivals stops the work on all sets when another controller works on one.
func (c *Controller) watchRivals(ctx context.Context) error {
	return c.informers.OnForeignWrite(func(set *appsv1.StatefulSet, writer string) {
		s := c.rivals.saw(observe.Key{Namespace: set.Namespace, Name: set.Name}, time.Now())
		if s.first {
			c.metrics.Yields(true)
			klog.FromContext(ctx).Error(nil, "Another controller works on the same sets. Nothing is done until it has been silent for a while",
				telemetry.KeySet, klog.KObj(set), "writer", writer, "silence", s.quiet)
		}
		if s.newSet {
			c.applier.Recorder.Event(set, corev1.EventTypeWarning, telemetry.EventOtherController, fmt.Sprintf(
				"%s writes the status of this set too; Ordinal leaves all sets to it until it has written none for %s", writer, s.quiet))
		}
	})
}

// restOf is for how long a set is left alone from now on.
func (c *Controller) restOf(ctx context.Context, key observe.Key) time.Duration {
	left, over := c.rivals.rest(time.Now())
	if over {
		c.metrics.Yields(false)
		klog.FromContext(ctx).Info("No other controller has written anything for a while. Sets are worked on again")
	}
	return max(left, time.Until(c.memories.restOf(key)))
}
