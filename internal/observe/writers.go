// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// ForeignWrite is the last write of a set's status by another controller than ours, by what the API server keeps of it; nil
// if there is none. Conditions alone may come from anybody, and so may what a person writes with kubectl.
func ForeignWrite(fields []metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	var last *metav1.ManagedFieldsEntry
	for i := range fields {
		f := &fields[i]
		if f.Subresource != "status" || f.Time == nil || f.Manager == telemetry.Manager || strings.HasPrefix(f.Manager, "kubectl") {
			continue
		}
		if (last == nil || last.Time.Before(f.Time)) && countsPods(f) {
			last = f
		}
	}
	return last
}

// countsPods tells if more of a status than its conditions was written. Of an entry that was kept it is known.
func countsPods(f *metav1.ManagedFieldsEntry) bool {
	if f.FieldsV1 == nil {
		return true
	}
	var owned struct {
		Status map[string]json.RawMessage `json:"f:status"`
	}
	if json.Unmarshal(f.FieldsV1.GetRawBytes(), &owned) != nil {
		return false
	}
	delete(owned.Status, "f:conditions")
	delete(owned.Status, ".")
	return len(owned.Status) > 0
}

// keepForeignWrite leaves of managed fields who wrote the status last, if it was another controller, and when.
func keepForeignWrite(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	last := ForeignWrite(fields)
	if last == nil {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{Manager: last.Manager, Subresource: last.Subresource, Time: last.Time}}
}

// OnForeignWrite calls tell when another controller, whose name it is given, writes the status of a set. A write from before the
// set was first seen is not told of: who made it may have stopped since. So clocks do not matter, nor who was at work before.
func (i *Informers) OnForeignWrite(tell func(set *appsv1.StatefulSet, writer string)) error {
	h := cache.ResourceEventHandlerFuncs{UpdateFunc: func(from, to any) {
		before, wasSet := from.(*appsv1.StatefulSet)
		after, isSet := to.(*appsv1.StatefulSet)
		// Sets that are not ours are another's to write.
		if !wasSet || !isSet || before.UID != after.UID || !i.scope.selects(before) || !i.scope.selects(after) {
			return
		}
		if w := ForeignWrite(after.ManagedFields); w != nil && isNewer(w, ForeignWrite(before.ManagedFields)) {
			tell(after, w.Manager)
		}
	}}
	for _, s := range i.spaces() {
		if _, err := s.sets.AddEventHandler(h); err != nil {
			return fmt.Errorf("watch for other controllers: %w", err)
		}
	}
	return nil
}

func isNewer(write, before *metav1.ManagedFieldsEntry) bool {
	return before == nil || before.Time.Before(write.Time)
}
