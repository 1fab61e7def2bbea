// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"bytes"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change tells what has to be written so that the update revision exists as it should.
type Change int

const (
	// Keep means that the newest revision is the update revision already.
	Keep Change = iota
	// Bump means that an older revision is wanted again and needs the highest number: a roll back.
	Bump
	// Create means that no revision holds the template yet.
	Create
)

// Question is what Resolve needs to know.
type Question struct {
	Set *appsv1.StatefulSet
	// Revisions are those that the set owns or may adopt, oldest first.
	Revisions []*appsv1.ControllerRevision
	// Defaulter fills in what the API server fills in today; nil for none. It is how a revision that was recorded before
	// a new field had a default is still known to be the same.
	Defaulter func(*appsv1.StatefulSet)
	// Bytewise turns the comparison through the Defaulter off.
	Bytewise bool
	// Found is what was found before; zero for nothing.
	Found Found
}

// Found is the update revision that was found for one generation of a set, whose template does not change within it. To find
// it takes longer than all else in a sync that has nothing to do.
type Found struct {
	set        types.UID
	generation int64
	name       string
	exact      bool
}

// Answer names the two revisions of a set.
type Answer struct {
	// Current is the revision that the set's status calls current, or else Update.
	Current *appsv1.ControllerRevision
	// Update is the revision of the template that the set has now. With Change Create it does not exist yet.
	Update *appsv1.ControllerRevision
	Change Change
	// Number is the revision number that Bump has to write.
	Number int64
	// Exact means that Update exists and holds the very template that the set has.
	Exact bool
	// Found is to be given along with the next question about the set.
	Found Found
}

// Resolve finds the current and the update revision of a set.
func Resolve(q Question) (Answer, error) {
	a, known := q.known()
	if !known {
		var err error
		if a, err = q.search(); err != nil {
			return Answer{}, err
		}
	}
	a.Current = a.Update
	for _, r := range q.Revisions {
		if r.Name == q.Set.Status.CurrentRevision {
			a.Current = r
		}
	}
	return a, nil
}

// known gives the update revision that was found before, as long as it is the newest.
func (q Question) known() (Answer, bool) {
	n := len(q.Revisions)
	f := q.Found
	if n == 0 || f.name == "" || f.set != q.Set.UID || f.generation != q.Set.Generation || f.name != q.Revisions[n-1].Name {
		return Answer{}, false
	}
	newest := q.Revisions[n-1]
	return Answer{Update: newest, Change: Keep, Number: newest.Revision + 1, Exact: f.exact, Found: f}, true
}

// search compares the set's template with its revisions.
func (q Question) search() (Answer, error) {
	next := int64(1)
	if n := len(q.Revisions); n > 0 {
		next = q.Revisions[n-1].Revision + 1
	}
	proposed, err := New(q.Set, next, collisions(q.Set))
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Update: proposed, Change: Create, Number: next}
	if equal, newest := find(q.Revisions, proposed); equal != nil {
		a.Update, a.Change, a.Exact = equal, Bump, true
		if newest {
			a.Change = Keep
		}
	} else if same := q.newestIfSame(proposed); same != nil {
		a.Update, a.Change = same, Keep
	}
	if a.Change == Keep {
		a.Found = Found{set: q.Set.UID, generation: q.Set.Generation, name: a.Update.Name, exact: a.Exact}
	}
	return a, nil
}

// find gives the newest of the revisions that equals wanted, and tells if there is none newer.
func find(revisions []*appsv1.ControllerRevision, wanted *appsv1.ControllerRevision) (*appsv1.ControllerRevision, bool) {
	for i, r := range slices.Backward(revisions) {
		if IsEqual(r, wanted) {
			return r, i == len(revisions)-1
		}
	}
	return nil, false
}

// newestIfSame is the newest revision if going back to it would, after defaulting, give what is wanted; else nil.
func (q Question) newestIfSame(wanted *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	if q.Bytewise || len(q.Revisions) == 0 {
		return nil
	}
	newest := q.Revisions[len(q.Revisions)-1]
	template, err := Template(q.Set, newest)
	if err != nil {
		// Data that nobody can read equals nothing.
		return nil
	}
	restored := q.Set.DeepCopy()
	restored.Spec.Template = *template
	if q.Defaulter != nil {
		q.Defaulter(restored)
	}
	data, err := Data(&restored.Spec.Template)
	if err != nil || !bytes.Equal(data, wanted.Data.Raw) {
		return nil
	}
	return newest
}

func collisions(set *appsv1.StatefulSet) int32 {
	if set.Status.CollisionCount == nil {
		return 0
	}
	return *set.Status.CollisionCount
}

// Trim gives the revisions that are history beyond the limit, oldest first. A revision with a name in live is never among
// them. A negative limit keeps all.
func Trim(revisions []*appsv1.ControllerRevision, live map[string]bool, limit int32) []*appsv1.ControllerRevision {
	if limit < 0 {
		return nil
	}
	var past []*appsv1.ControllerRevision
	for _, r := range revisions {
		if !live[r.Name] {
			past = append(past, r)
		}
	}
	return past[:max(0, len(past)-int(limit))]
}
