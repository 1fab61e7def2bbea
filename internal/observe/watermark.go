// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// Key names a set.
type Key = types.NamespacedName

// Watermark remembers, for each set, the writes that the caches do not show yet. A plan made from caches that lack them
// would do them again.
type Watermark struct {
	informers *Informers
	mu        sync.Mutex
	writes    map[Key]map[target]write
}

// target is one object of a set's namespace.
type target struct {
	kind plan.Kind
	name string
}

// write is the last write to a target.
type write struct {
	uid types.UID
	// version is the resource version that the write gave; empty for a deletion.
	version string
	// gone means that the object is known to be there no more. Otherwise one that was deleted may still be on its way out.
	gone bool
}

// NewWatermark makes a watermark for these caches.
func NewWatermark(i *Informers) *Watermark {
	return &Watermark{informers: i, writes: map[Key]map[target]write{}}
}

// Wrote remembers that an object was created or changed for a set.
func (w *Watermark) Wrote(k Key, kind plan.Kind, o metav1.Object) {
	w.remember(k, target{kind, o.GetName()}, write{uid: o.GetUID(), version: o.GetResourceVersion()})
}

// Deleted remembers that an object was deleted for a set, or asked to go.
func (w *Watermark) Deleted(k Key, r plan.Ref) {
	w.remember(k, target{r.Kind, r.Name}, write{uid: r.UID})
}

// Gone remembers that an object was found to be gone.
func (w *Watermark) Gone(k Key, r plan.Ref) {
	w.remember(k, target{r.Kind, r.Name}, write{uid: r.UID, gone: true})
}

func (w *Watermark) remember(k Key, t target, wr write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writes[k] == nil {
		w.writes[k] = map[target]write{}
	}
	w.writes[k][t] = wr
}

// IsReached tells if the caches show all writes for a set.
func (w *Watermark) IsReached(k Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t, wr := range w.writes[k] {
		if !w.shows(k.Namespace, t, wr) {
			return false
		}
		delete(w.writes[k], t)
	}
	delete(w.writes, k)
	return true
}

func (w *Watermark) shows(namespace string, t target, wr write) bool {
	informer := w.informers.in(namespace).of(t.kind)
	store := informer.GetStore()
	cached := lookup(store, namespace, t.name)
	if wr.version == "" {
		return cached == nil || cached.GetUID() != wr.uid || (cached.GetDeletionTimestamp() != nil && !wr.gone)
	}
	if cached != nil && cached.GetUID() == wr.uid {
		return isAtLeast(cached.GetResourceVersion(), wr.version)
	}
	// The object is not there: it has not come yet, or it has gone again.
	reached := store.LastStoreSyncResourceVersion()
	if reached == "" {
		// client-go's gate AtomicFIFO is off, so the store cannot tell. What was received is shown soon.
		reached = informer.LastSyncResourceVersion()
	}
	return isAtLeast(reached, wr.version)
}

func lookup(store cache.Store, namespace, name string) metav1.Object {
	obj, exists, err := store.GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return accessor
}

// isAtLeast tells if resource version a is not older than b. A version that is no number cannot be compared, and is held to
// be older.
func isAtLeast(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order >= 0
}
