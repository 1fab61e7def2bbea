// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

const (
	// firstDelay is the delay after a first failure. Each delay doubles with each further one.
	firstDelay = time.Second
	// maxDelay is the longest delay: what was mended elsewhere is noticed within it.
	maxDelay = 30 * time.Second
	// firstEvictDelay is the delay after an eviction was held up for the first time.
	firstEvictDelay = 2 * time.Second
	// restPerPod and maxRest are how long a large set rests after a sync, for each of its pods and in all, while pods that become
	// ready change nothing but its status: that is then written no more often than somebody can read it.
	restPerPod = time.Millisecond
	maxRest    = time.Second
	// large is how many pods a set has at least that rests.
	large = 100
	// calm is how long nothing may fail until failures are forgotten.
	calm = 10 * time.Minute
)

// memories hold what is remembered of each set from sync to sync. All of it may be lost at a restart without harm.
type memories struct {
	// strict means that no pod has a back-off of its own: what fails is tried again with its whole sync, as upstream.
	strict bool

	mu   sync.Mutex
	sets map[observe.Key]*memory
}

// of gives the memory of a set. One set is never synced twice at once, so the memory needs no lock of its own.
func (m *memories) of(k observe.Key) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets == nil {
		m.sets = map[observe.Key]*memory{}
	}
	if m.sets[k] == nil {
		m.sets[k] = newMemory(m.strict)
	}
	return m.sets[k]
}

// restOf is until when a set is left alone; zero if it need not be.
func (m *memories) restOf(k observe.Key) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets[k] == nil {
		return time.Time{}
	}
	return m.sets[k].rest
}

// restAfter is until when a set rests after a sync; zero if it must not.
func restAfter(s plan.Snapshot, p plan.Plan) time.Time {
	condemned := func(pod *corev1.Pod) bool {
		n, _ := ordinal.Of(s.Set.Name, pod.Name)
		return !p.Span.Contains(n)
	}
	isWaitedFor := s.Set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || p.Revisions.Current != p.Revisions.Update
	if len(s.Pods) < large || isWaitedFor || slices.ContainsFunc(p.Members, condemned) {
		return time.Time{}
	}
	return s.Now.Add(min(maxRest, time.Duration(len(s.Pods))*restPerPod))
}

func (m *memories) forget(k observe.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, k)
}

// memory is what is remembered of one set.
type memory struct {
	strict     bool
	generation int64
	creates    backoff
	replaces   backoff
	evictions  backoff
	// unstuck are the pods that were deleted because they were stuck, until they are made again.
	unstuck map[string]bool
	// found is the update revision that the last plan found.
	found revision.Found
	// rest is until when the set is left alone.
	rest time.Time
	// announced are the waits of the last plan, so that each is told once.
	announced map[announcement]bool
}

func newMemory(strict bool) *memory {
	return &memory{
		strict:    strict,
		creates:   newBackoff(firstDelay),
		replaces:  newBackoff(firstDelay),
		evictions: newBackoff(firstEvictDelay),
		unstuck:   map[string]bool{},
	}
}

// tell puts into a snapshot what is remembered.
func (m *memory) tell(s *plan.Snapshot) {
	s.CreateAfter, s.ReplaceAfter, s.EvictAfter = m.creates.until(), m.replaces.until(), m.evictions.until()
	s.Unstuck, s.Found = maps.Clone(m.unstuck), m.found
}

// announcement is what makes a wait worth to be told again.
type announcement struct {
	reason plan.Reason
	on     plan.Ref
	heldUp string
}

// renew forgets failures when the set's spec has changed: what failed may now work.
func (m *memory) renew(generation int64) {
	if m.generation != generation {
		m.generation = generation
		m.creates.clear()
		m.replaces.clear()
		clear(m.unstuck)
	}
}

// learn takes note of what failed and what did not.
func (m *memory) learn(outcomes []plan.Outcome, now time.Time) {
	if m.strict {
		return
	}
	m.learnOfAll(outcomes, now)
	for _, o := range outcomes {
		failed := o.Result == plan.ResultFailed
		switch a := o.Action.(type) {
		case plan.CreatePod:
			m.creates.note(a.Pod.Name, failed, now)
			if o.Result == plan.ResultDone {
				m.evictions.note(a.Pod.Name, false, now)
				delete(m.unstuck, a.Pod.Name)
			}
		case plan.CreateClaim:
			if failed {
				m.creates.note(a.Pod, true, now)
			}
		case plan.DeletePod:
			m.learnOfRemoval(a, o.Result, now)
		default:
			// The others are tried again with the whole sync.
		}
	}
}

func (m *memory) learnOfRemoval(a plan.DeletePod, result plan.Result, now time.Time) {
	if a.Evict {
		m.evictions.note(a.Pod.Name, result == plan.ResultBlocked, now)
	}
	if result == plan.ResultFailed || result == plan.ResultBlocked {
		return
	}
	switch a.Reason {
	case plan.ReasonFailed, plan.ReasonSucceeded:
		m.replaces.note(a.Pod.Name, true, now)
	case plan.ReasonStuck:
		m.unstuck[a.Pod.Name] = true
	default:
		// The others are not replaced again by themselves.
	}
}

// learnOfAll holds up all creations when none of those that were tried succeeded, as when a quota is used up. Each claim
// that is created wakes the set, so it would otherwise go at once through all its pods.
func (m *memory) learnOfAll(outcomes []plan.Outcome, now time.Time) {
	refused := false
	for _, o := range outcomes {
		if _, ok := o.Action.(plan.CreatePod); ok && o.Result == plan.ResultDone {
			m.creates.note(plan.AnyPod, false, now)
			return
		}
		refused = refused || (isCreation(o.Action) && o.Result == plan.ResultFailed)
	}
	if refused {
		m.creates.note(plan.AnyPod, true, now)
	}
}

// news are the waits that were not there in the plan before.
func (m *memory) news(waits []plan.Wait) []plan.Wait {
	seen := make(map[announcement]bool, len(waits))
	var fresh []plan.Wait
	for _, w := range waits {
		a := announcement{reason: w.Reason, on: w.On, heldUp: w.For}
		a.on.ResourceVersion = ""
		if !m.announced[a] && !seen[a] {
			fresh = append(fresh, w)
		}
		seen[a] = true
	}
	for a := range m.announced {
		// An eviction that is asked for again is not waited for in that plan, and still is held up if that is in vain.
		if a.reason == plan.WaitDisruption && m.evictions.counts(a.on.Name) {
			seen[a] = true
		}
	}
	m.announced = seen
	return fresh
}

// backoff counts failures by name.
type backoff struct {
	// first is the delay after a first failure.
	first  time.Duration
	byName map[string]failures
}

type failures struct {
	count int
	last  time.Time
}

func newBackoff(first time.Duration) backoff {
	return backoff{first: first, byName: map[string]failures{}}
}

func (b backoff) clear() { clear(b.byName) }

// counts tells if what was tried last under a name failed.
func (b backoff) counts(name string) bool { return b.byName[name].count > 0 }

// note takes note of a failure, or of a success, which ends the row of failures.
func (b backoff) note(name string, failed bool, now time.Time) {
	if !failed {
		delete(b.byName, name)
		return
	}
	f := b.byName[name]
	if now.Sub(f.last) > calm {
		f.count = 0
	}
	b.byName[name] = failures{count: f.count + 1, last: now}
}

// until gives, by name, the moments before which nothing is tried again.
func (b backoff) until() map[string]time.Time {
	moments := make(map[string]time.Time, len(b.byName))
	for name, f := range b.byName {
		delay := min(maxDelay, b.first<<min(f.count-1, 10))
		if name == plan.AnyPod {
			// The others have their turn before the pod that was refused has it again: it may be the only one.
			delay /= 2
		}
		moments[name] = f.last.Add(delay)
	}
	return moments
}
