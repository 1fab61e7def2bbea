// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// errSpurious is why a fault refuses a write.
var errSpurious = errors.New("so says the history")

// commit carries out a call.
func (w *World) commit(c *call) answer {
	target := w.server.get(c.kind, c.name)
	o, err := w.write(c)
	if !c.isWrite() {
		return answer{object: o, err: err}
	}
	if err != nil {
		w.say("%s: %v", c, err)
		return answer{err: err}
	}
	w.stats.Writes++
	fmt.Fprintf(w.trace, "%s %s\n", time.Now(), c)
	w.say("%s", describe(c))
	w.check()
	if c.verb == verbDelete {
		c.object = target
	}
	return answer{object: o}
}

func (w *World) write(c *call) (object, error) {
	switch c.verb {
	case verbGet:
		if o := w.server.get(c.kind, c.name); o != nil {
			return o, nil
		}
		return nil, apierrors.NewNotFound(resource(c.kind), c.name)
	case verbCreate:
		if w.refusing && c.kind == plan.KindPod {
			return nil, apierrors.NewForbidden(resource(c.kind), c.name, errSpurious)
		}
		return w.server.create(c.kind, c.object)
	case verbDelete:
		return nil, w.server.remove(c.kind, c.name, c.options)
	default:
		return w.server.patch(c.kind, c.name, c.how, c.body)
	}
}

// describe is a write in words.
func describe(c *call) string {
	if c.verb != verbStatus {
		return c.String()
	}
	s := c.body.Status
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d pods, %d ready, %d available, %d current (%s), %d updated (%s)", c, s.Replicas, s.ReadyReplicas,
		s.AvailableReplicas, s.CurrentReplicas, s.CurrentRevision, s.UpdatedReplicas, s.UpdateRevision)
	for _, condition := range s.Conditions {
		fmt.Fprintf(&b, "; %s %s since %s: %s", condition.Type, condition.Status,
			condition.LastTransitionTime.UTC().Format(time.TimeOnly), condition.Message)
	}
	return b.String()
}
