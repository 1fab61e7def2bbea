// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events writes events on objects, and loses none while the process lives. client-go's own recorder drops what comes
// faster than it can write.
package events

import (
	"cmp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
)

const (
	// most is how many notes about one object for one reason wait as they are. Those that come while so many wait are combined
	// into one, so that a thousand pods are not a thousand writes, and what waits is bounded.
	most = 100
	// crowd is how many notes wait at least when all of those that are alike are combined. client-go drops what comes then.
	crowd = 1000
	// few is how many of them stay as they are when the log is stopped: there may be no time to write each.
	few = 10
	// remembered is how many of the events that were written can still be counted up.
	remembered = 2048
	// combined is how the message of an event begins that stands for several; client-go has the same words.
	combined = "(combined from similar events): "
)

// Log takes events from any number of goroutines without ever making them wait, and writes them one by one, in the order in
// which they came. The same event again while the first one waits, or after it was written, counts up the first.
type Log struct {
	client typedcorev1.EventsGetter
	source string
	// written holds what is known of events in the API by what they say.
	written *lru.Cache
	// lastName is the moment that the name of the last event was made of.
	lastName int64

	mu      sync.Mutex
	waiting map[said]*note
	queue   []*note
	// topics counts what waits by topic.
	topics map[said]int
	// added has a token when something was added.
	added chan struct{}
}

// said is what an event says about what. The version of the object is left out of it.
type said struct {
	about                 corev1.ObjectReference
	kind, reason, message string
}

// note is an event that waits to be written.
type note struct {
	said
	// name is that of the event to create, once it was tried, so that what was written although no answer came is not written
	// again.
	name string
	// text is the message to write.
	text        string
	version     string
	first, last time.Time
	count       int32
	// broken is how often the API server has answered that it failed over this event.
	broken int
}

// New makes a log whose events come from the named source. Run writes them.
func New(client typedcorev1.EventsGetter, source string) *Log {
	return &Log{
		client:  client,
		source:  source,
		written: lru.New(remembered),
		waiting: map[said]*note{},
		topics:  map[said]int{},
		added:   make(chan struct{}, 1),
	}
}

// Event takes note of an event about an object of one of Kubernetes' own kinds. The event's kind is what its type field says:
// Normal or Warning.
func (l *Log) Event(object runtime.Object, kind, reason, message string) {
	about, err := reference.GetReference(scheme.Scheme, object)
	if err != nil {
		klog.ErrorS(err, "Event has no object", "reason", reason, "message", message)
		return
	}
	now := time.Now()
	n := &note{text: message, version: about.ResourceVersion, first: now, last: now, count: 1}
	about.ResourceVersion = ""
	n.said = said{about: *about, kind: kind, reason: reason, message: message}
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := most
	if len(l.queue) >= crowd {
		limit = 1
	}
	l.add(n, limit)
	select {
	case l.added <- struct{}{}:
	default:
	}
}

// add puts a note at the end of the queue, or counts up the one that says the same. If as many as limit wait already that are
// like it, it becomes one with those that are too many, unless its event may be there already.
func (l *Log) add(n *note, limit int) {
	topic := n.topic()
	if n.name == "" && l.waiting[n.said] == nil && l.topics[topic] >= limit {
		n.message, n.text = combined, combined+strings.TrimPrefix(n.text, combined)
	}
	if w := l.waiting[n.said]; w != nil {
		w.merge(n)
		return
	}
	l.waiting[n.said] = n
	l.topics[topic]++
	l.queue = append(l.queue, n)
}

// merge counts another note into one, under the name under which either was tried to be created.
func (n *note) merge(o *note) {
	n.name = cmp.Or(n.name, o.name)
	n.broken = max(n.broken, o.broken)
	if o.first.Before(n.first) {
		n.first = o.first
	}
	if !o.last.Before(n.last) {
		n.last, n.text, n.version = o.last, o.text, o.version
	}
	n.count += o.count
}

// combine makes one of the notes that tell of one object for one reason, but for the first few.
func (l *Log) combine() {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.queue
	l.queue, l.waiting, l.topics = nil, map[said]*note{}, map[said]int{}
	for _, n := range queue {
		l.add(n, few)
	}
}

// topic is what notes have in common that may be combined.
func (n *note) topic() said {
	t := n.said
	t.message = ""
	return t
}

// take gives the oldest note, which then waits no more; nil if there is none.
func (l *Log) take() *note {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	n := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	delete(l.waiting, n.said)
	l.topics[n.topic()]--
	if len(l.queue) == 0 {
		// What a burst has taken is given back.
		l.queue, l.waiting, l.topics = nil, map[said]*note{}, map[said]int{}
	}
	return n
}

// left is how many notes wait.
func (l *Log) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}
