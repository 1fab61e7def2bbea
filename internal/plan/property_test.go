// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
	"github.com/ordinal-dev/ordinal/internal/sim"
	"github.com/ordinal-dev/ordinal/internal/status"
)

// drawn is a random snapshot with its plan.
type drawn struct {
	plan.Snapshot
	plan plan.Plan
	span ordinal.Range
	// policy is the one that is obeyed; nil for none. In a conflict, it cannot be told which that is.
	policy   *v1alpha1.StatefulSetPolicy
	conflict bool
}

// property checks that something holds for the plans of all worlds.
func property(t *testing.T, holds func(*rapid.T, drawn)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		s := sim.Draw(chooser(t), sim.Limits{})
		s.Options.IgnoreMaxUnavailable = rapid.Bool().Draw(t, "ignore maxUnavailable")
		s.Options.Strict = rapid.Bool().Draw(t, "strict")
		drawPolicies(t, &s)
		holds(t, newDrawn(s))
	})
}

func newDrawn(s plan.Snapshot) drawn {
	d := drawn{Snapshot: s, plan: plan.Make(s)}
	if len(s.Policies) > 1 || slices.ContainsFunc(s.Policies, isUnreadable) {
		d.conflict = true
	}
	var reserved []ordinal.Interval
	if len(s.Policies) == 1 && !d.conflict {
		d.policy = s.Policies[0]
		reserved = reservedBy(d.policy)
	}
	d.span = ordinal.RangeOf(s.Set, reserved...)
	return d
}

func chooser(t *rapid.T) sim.Chooser {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
}

// members are the set's own pods by ordinal, by a definition that is independent of the planner's.
func (d drawn) members() map[int]*corev1.Pod {
	selector, err := metav1.LabelSelectorAsSelector(d.Set.Spec.Selector)
	if err != nil {
		return nil
	}
	members := map[int]*corev1.Pod{}
	for _, p := range d.Pods {
		n, named := ordinal.Of(d.Set.Name, p.Name)
		owner := metav1.GetControllerOf(p)
		ours := owner != nil && owner.UID == d.Set.UID
		adoptable := owner == nil && p.DeletionTimestamp == nil && d.Set.DeletionTimestamp == nil
		if named && selector.Matches(labels.Set(p.Labels)) && (ours || adoptable) {
			members[n] = p
		}
	}
	return members
}

func (d drawn) isServing(p *corev1.Pod) bool {
	return p != nil && podstate.IsServing(p, d.Set.Spec.MinReadySeconds, d.Now)
}

func (d drawn) isOrdered() bool {
	return d.Set.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement
}

func (d drawn) partition() int {
	if r := d.Set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return d.span.Start + int(*r.Partition)
	}
	return d.span.Start
}

// of gives the actions of one type.
func of[A plan.Action](p plan.Plan) []A {
	var found []A
	for _, a := range p.Actions() {
		if a, ok := a.(A); ok {
			found = append(found, a)
		}
	}
	return found
}

func TestOrderOfInputsDoesNotMatter(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		shuffled := d.Snapshot
		shuffled.Pods = rapid.Permutation(d.Pods).Draw(t, "pods")
		shuffled.Claims = rapid.Permutation(d.Claims).Draw(t, "claims")
		shuffled.Revisions = rapid.Permutation(d.Revisions).Draw(t, "revisions")
		shuffled.Policies = rapid.Permutation(d.Policies).Draw(t, "policies")
		again := plan.Make(shuffled)
		if !reflect.DeepEqual(again, d.plan) {
			t.Fatalf("from the same world in another order comes\n%sinstead of\n%s", again.String(d.Now), d.plan.String(d.Now))
		}
	})
}

// What the plan before found spares work and changes nothing.
func TestWhatWasFoundChangesNothing(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		d.Found = d.plan.Found
		if again := plan.Make(d.Snapshot); !reflect.DeepEqual(again, d.plan) {
			t.Fatalf("with what was found comes\n%sinstead of\n%s", again.String(d.Now), d.plan.String(d.Now))
		}
	})
}

func TestSnapshotsAreOnlyRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sim.Draw(chooser(t), sim.Limits{})
		drawPolicies(t, &s)
		before := deepCopy(s)
		p := plan.Make(s)
		status.Settle(s, p, nil)
		status.Policies(s, p, nil)
		if !reflect.DeepEqual(before, deepCopy(s)) {
			t.Fatal("the snapshot was changed")
		}
	})
}

func deepCopy(s plan.Snapshot) []any {
	all := []any{*s.Set.DeepCopy()}
	for _, p := range s.Pods {
		all = append(all, *p.DeepCopy())
	}
	for _, c := range s.Claims {
		all = append(all, *c.DeepCopy())
	}
	for _, r := range s.Revisions {
		all = append(all, *r.DeepCopy())
	}
	for _, p := range s.Policies {
		all = append(all, *p.DeepCopy())
	}
	return all
}

func TestNothingIsWrittenTwice(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		seen := map[string]bool{}
		for _, a := range d.plan.Actions() {
			key := fmt.Sprintf("%T %s", a, a.Target())
			if seen[key] {
				t.Fatalf("%s comes twice in\n%s", key, d.plan.String(d.Now))
			}
			seen[key] = true
		}
	})
}

func TestOnlyMissingThingsAreCreated(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		for _, a := range of[plan.CreatePod](d.plan) {
			if slices.ContainsFunc(d.Pods, func(p *corev1.Pod) bool { return p.Name == a.Pod.Name }) {
				t.Fatalf("%s exists, and is created", a.Pod.Name)
			}
			if n, ok := ordinal.Of(d.Set.Name, a.Pod.Name); !ok || !d.span.Contains(n) {
				t.Fatalf("%s is beyond the range %v, and is created", a.Pod.Name, d.span)
			}
		}
		for _, a := range of[plan.CreateClaim](d.plan) {
			if slices.ContainsFunc(d.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == a.Claim.Name }) {
				t.Fatalf("%s exists, and is created", a.Claim.Name)
			}
		}
	})
}

func TestNothingOfOthersIsTouched(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		ours := map[types.UID]bool{}
		for _, o := range d.Pods {
			ours[o.UID] = mayWrite(o, d.Set.UID)
		}
		for _, o := range d.Revisions {
			ours[o.UID] = mayWrite(o, d.Set.UID)
		}
		for _, o := range d.Claims {
			ours[o.UID] = true
		}
		for _, a := range d.plan.Actions() {
			if uid := a.Target().UID; uid != "" && !ours[uid] {
				t.Fatalf("%s", a)
			}
		}
	})
}

func mayWrite(o metav1.Object, set types.UID) bool {
	owner := metav1.GetControllerOf(o)
	return owner == nil || owner.UID == set
}

// Claims are only ever created and owned; deleting is left to the garbage collector. Owners of others stay.
func TestClaimsAreNeverDeleted(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		for _, a := range d.plan.Actions() {
			if a.Target().Kind != plan.KindClaim {
				continue
			}
			switch a := a.(type) {
			case plan.CreateClaim:
			case plan.OwnClaim:
				i := slices.IndexFunc(d.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.UID == a.Claim.UID })
				for _, ref := range d.Claims[i].OwnerReferences {
					isKept := slices.ContainsFunc(a.Owners, func(r metav1.OwnerReference) bool { return r.UID == ref.UID })
					if ref.Kind == "ConfigMap" && !isKept {
						t.Fatalf("%s takes it from %s", a, ref.Name)
					}
				}
			default:
				t.Fatalf("%s", a)
			}
		}
	})
}

// In order, a pod is created only when all before it serve, and only one at a time.
func TestPredecessorsComeFirst(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		if !d.isOrdered() {
			return
		}
		creates := of[plan.CreatePod](d.plan)
		if len(creates) > 1 {
			t.Fatalf("%d pods are created at once", len(creates))
		}
		members := d.members()
		for _, a := range creates {
			n, _ := ordinal.Of(d.Set.Name, a.Pod.Name)
			for before := range d.span.All() {
				// One that is reserved by a policy that is not obeyed need not be there.
				isSpared := d.conflict && members[before] == nil && d.isReservedByAny(before)
				if before < n && !isSpared && !d.isServing(members[before]) {
					t.Fatalf("%s is created while %d does not serve", a.Pod.Name, before)
				}
			}
		}
	})
}

// In order, pods go one at a time from the top, and only when all that stay serve.
func TestScaleDownIsFromTheTop(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		members := d.members()
		var down []int
		for _, a := range of[plan.DeletePod](d.plan) {
			if a.Reason == plan.ReasonScaledDown {
				n, _ := ordinal.Of(d.Set.Name, a.Pod.Name)
				if d.span.Contains(n) {
					t.Fatalf("%s is within %v, and is scaled down", a.Pod.Name, d.span)
				}
				down = append(down, n)
			}
		}
		if !slices.IsSortedFunc(down, func(a, b int) int { return b - a }) {
			t.Fatalf("pods go in the order %v", down)
		}
		if !d.isOrdered() || len(down) == 0 {
			return
		}
		if len(down) > 1 {
			t.Fatalf("%v go at once", down)
		}
		for n, p := range members {
			if d.span.Contains(n) && !d.isServing(p) {
				t.Fatalf("%d goes while %d does not serve", down[0], n)
			}
			if !d.span.Contains(n) && n > down[0] {
				t.Fatalf("%d goes before %d", down[0], n)
			}
		}
	})
}

// No update takes a serving pod while as many as allowed do not serve, none takes a pod below the partition unless it is
// stuck, and none takes one that is as it should be.
func TestUpdatesKeepTheBudget(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		members := d.members()
		unavailable := 0
		for n := range d.span.All() {
			if !d.isServing(members[n]) {
				unavailable++
			}
		}
		limit := plan.MaxUnavailable(d.Set)
		if d.Options.IgnoreMaxUnavailable {
			limit = max(1, unavailable+1)
		}
		for _, a := range of[plan.DeletePod](d.plan) {
			if !isForTheTemplate(a) {
				continue
			}
			n, _ := ordinal.Of(d.Set.Name, a.Pod.Name)
			isStuck := a.Reason == plan.ReasonStuck
			if (n < d.partition() && !isStuck) || !d.span.Contains(n) {
				t.Fatalf("%d is updated with partition %d", n, d.partition())
			}
			if podstate.Revision(members[n]) == d.wanted(n) {
				t.Fatalf("%d is at %s, as it should be, and is updated", n, d.wanted(n))
			}
			if d.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
				t.Fatalf("%d is updated by a strategy that says OnDelete", n)
			}
			if isStuck && (podstate.IsReady(members[n]) || d.Options.Strict) {
				t.Fatalf("%d is ready, or the controller is to be as Kubernetes, and is replaced because it is stuck", n)
			}
			if d.isServing(members[n]) {
				unavailable++
				if unavailable > limit {
					t.Fatalf("%d pods do not serve, %d may\n%s", unavailable, limit, d.plan.String(d.Now))
				}
			}
		}
	})
}

// A pod is made from the revision that its ordinal and the partition say, and from the current one while the rollout rests.
func TestPodsHaveTheRightRevision(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		for _, a := range of[plan.CreatePod](d.plan) {
			n, _ := ordinal.Of(d.Set.Name, a.Pod.Name)
			want := d.plan.Revisions.Update
			strategy := d.Set.Spec.UpdateStrategy
			leaderLast := d.policy != nil && d.policy.Spec.Rollout.Order == v1alpha1.LeaderLast
			nullBlock := strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate == nil &&
				!leaderLast && d.isOrdered() && d.span.Below(n) < int(d.Set.Status.CurrentReplicas) && !d.Unstuck[a.Pod.Name]
			if n < d.partition() || nullBlock || d.rests() || d.plan.Rollout.Failed {
				want = d.plan.Revisions.Current
			}
			if got := podstate.Revision(a.Pod); got != want {
				t.Fatalf("%s is made from %s, not %s", a.Pod.Name, got, want)
			}
		}
	})
}

// Only pods that nobody owns, that match and that are not going are adopted; only own pods that do not match are released.
func TestAdoptionAndRelease(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		members := d.members()
		byName := map[string]*corev1.Pod{}
		for _, p := range d.Pods {
			byName[p.Name] = p
		}
		for _, a := range of[plan.AdoptPod](d.plan) {
			n, named := ordinal.Of(d.Set.Name, a.Pod.Name)
			if !named || members[n] == nil || metav1.GetControllerOf(members[n]) != nil {
				t.Fatalf("%s", a)
			}
		}
		for _, a := range of[plan.ReleasePod](d.plan) {
			p := byName[a.Pod.Name]
			n, named := ordinal.Of(d.Set.Name, p.Name)
			if owner := metav1.GetControllerOf(p); owner == nil || owner.UID != d.Set.UID || (named && members[n] == p) {
				t.Fatalf("%s", a)
			}
		}
	})
}

// History is trimmed however the pods fare, but not before it is known what belongs to the set.
func TestTrimmingDoesNotDependOnPods(t *testing.T) {
	w := sim.New(sim.NewSet("web", 1, func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = new(int32(2)) }))
	w.Refuse = func(a plan.Action) error {
		if a.Target().Kind == plan.KindPod {
			return errors.New("no")
		}
		return nil
	}
	for n := range 20 {
		w.Edit(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = strconv.Itoa(n) })
		w.Sync()
	}
	// Current, update and two of history; what the last sync added is trimmed by the next.
	if n := len(w.Revisions); n > 5 {
		t.Errorf("%d revisions are left", n)
	}
	w.Orphan()
	for n := range w.Revisions {
		w.Revisions[n].Labels["app"] = "web"
	}
	w.Edit(func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = new(int32(0)) })
	before := len(w.Revisions)
	w.Refuse = func(plan.Action) error { return errors.New("no") }
	w.Sync()
	if n := len(w.Revisions); n != before {
		t.Errorf("of %d revisions that could not be adopted %d are left", before, n)
	}
}

func TestWaitsForTimeEnd(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		if !d.plan.Requeue.IsZero() && !d.plan.Requeue.After(d.Now) {
			t.Fatalf("the plan looks again at %v, which is not after %v", d.plan.Requeue, d.Now)
		}
		for _, w := range d.plan.Waits {
			if w.Until.After(d.Now) && (d.plan.Requeue.IsZero() || d.plan.Requeue.After(w.Until)) {
				t.Fatalf("%v waits until %v, and the plan looks again at %v", w, w.Until, d.plan.Requeue)
			}
		}
	})
}

// A plan that does nothing for a set that is not as it should be says what it waits for.
func TestIdlePlansSayWhy(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		if len(d.plan.Steps) > 0 || len(d.plan.Waits) > 0 {
			return
		}
		for n := range d.span.All() {
			if p := d.members()[n]; !d.isServing(p) || podstate.Revision(p) != d.plan.Revisions.Update {
				t.Fatalf("%d is not as it should be, and the plan is silent", n)
			}
		}
		if len(d.members()) != d.span.Count {
			t.Fatalf("there are %d pods, not %d, and the plan is silent", len(d.members()), d.span.Count)
		}
	})
}

func TestSetBeingDeletedChangesNothing(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		if d.Set.DeletionTimestamp != nil && len(d.plan.Steps) > 0 {
			t.Fatalf("the set is being deleted, and the plan is\n%s", d.plan.String(d.Now))
		}
	})
}

func TestLiveRevisionsStay(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		live := map[string]bool{d.plan.Revisions.Current: true, d.plan.Revisions.Update: true}
		for _, p := range d.members() {
			live[podstate.Revision(p)] = true
		}
		for _, a := range of[plan.DeleteRevision](d.plan) {
			if live[a.Revision.Name] {
				t.Fatalf("%s is in use, and is deleted", a.Revision.Name)
			}
		}
	})
}

// Published counters are true, whatever they were before.
func TestCountersAreTrue(t *testing.T) {
	property(t, func(t *rapid.T, d drawn) {
		w := sim.From(d.Snapshot)
		w.Sync()
		after := drawn{Snapshot: w.Snapshot(), span: d.span}
		var want appsv1.StatefulSetStatus
		for _, p := range after.members() {
			want.Replicas++
			want.ReadyReplicas += count(podstate.IsReady(p))
			want.AvailableReplicas += count(podstate.IsAvailable(p, d.Set.Spec.MinReadySeconds, d.Now))
			if p.DeletionTimestamp == nil {
				want.CurrentReplicas += count(podstate.Revision(p) == w.Set.Status.CurrentRevision)
				want.UpdatedReplicas += count(podstate.Revision(p) == w.Set.Status.UpdateRevision)
			}
		}
		got := w.Set.Status
		counters := func(s appsv1.StatefulSetStatus) []int32 {
			return []int32{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas}
		}
		if !slices.Equal(counters(got), counters(want)) {
			t.Fatalf("the status counts %v, not %v\n%s", counters(got), counters(want), d.plan.String(d.Now))
		}
	})
}

func count(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// healable is a world that can come to rest by itself.
func healable(t *rapid.T) plan.Snapshot {
	s := sim.Draw(chooser(t), sim.Limits{Tame: true})
	s.Set.DeletionTimestamp = nil
	for _, c := range s.Claims {
		c.DeletionTimestamp = nil
	}
	return s
}

// Every world in which nobody meddles comes to rest with all pods as they should be, and then nothing is planned.
func TestWorldsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := healable(t)
		w := sim.From(s)
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
		p := plan.Make(w.Snapshot())
		if len(p.Steps) > 0 {
			t.Fatalf("the world is settled, and the plan is\n%s", p.String(w.Now))
		}
		if got, want := w.Set.Status.AvailableReplicas, *w.Set.Spec.Replicas; got != want || len(w.Pods) != int(want) {
			t.Fatalf("%d of %d pods are available, wanted are %d\n%s", got, len(w.Pods), want, p.String(w.Now))
		}
		for name, p := range w.Pods {
			n, _ := ordinal.Of(w.Set.Name, name)
			rolling := w.Set.Spec.UpdateStrategy
			isKept := rolling.Type == appsv1.OnDeleteStatefulSetStrategyType ||
				(rolling.RollingUpdate != nil && n < ordinal.RangeOf(w.Set).Start+int(*rolling.RollingUpdate.Partition))
			if !isKept && podstate.Revision(p) != w.Set.Status.UpdateRevision {
				t.Fatalf("%s is not updated from %s", name, podstate.Revision(p))
			}
		}
		if w.Set.Status.ObservedGeneration != w.Set.Generation {
			t.Fatalf("generation %d is observed, not %d", w.Set.Status.ObservedGeneration, w.Set.Generation)
		}
	})
}

// A crash after any write loses nothing: the world comes to the same rest.
func TestCrashesAreHarmless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := healable(t)
		calm, shaken := sim.From(s), sim.From(s)
		refusals := 0
		shaken.Refuse = func(plan.Action) error {
			if refusals < 50 && rapid.IntRange(0, 3).Draw(t, "refuse") == 3 {
				refusals++
				return errors.New("crash")
			}
			return nil
		}
		if err := calm.Settle(); err != nil {
			p := plan.Make(calm.Snapshot())
			t.Fatalf("%v: the plan is\n%s", err, p.String(calm.Now))
		}
		if err := shaken.Settle(); err != nil {
			p := plan.Make(shaken.Snapshot())
			t.Fatalf("%v: after %d refusals the plan is\n%s", err, refusals, p.String(shaken.Now))
		}
		if got, want := rest(shaken), rest(calm); got != want {
			t.Fatalf("after crashes the world rests at\n%s\nand without at\n%s", got, want)
		}
	})
}

// rest tells what of a world has to be the same however it came about.
func rest(w *sim.World) string {
	text := fmt.Sprintf("%d available, %s, %s\n", w.Set.Status.AvailableReplicas, w.Set.Status.CurrentRevision, w.Set.Status.UpdateRevision)
	for n := range 12 {
		if p := w.Pods[ordinal.PodName(w.Set.Name, n)]; p != nil {
			text += fmt.Sprintf("%s at %s\n", p.Name, podstate.Revision(p))
		}
	}
	return text
}

func TestBackoff(t *testing.T) {
	w := sim.New(sim.NewSet("web", 2, parallel))
	later := w.Now.Add(3 * time.Second)
	s := w.Snapshot()
	s.CreateAfter = map[string]time.Time{"web-0": later, "web-1": w.Now}
	p := plan.Make(s)
	if creates := of[plan.CreatePod](p); len(creates) != 1 || creates[0].Pod.Name != "web-1" {
		t.Errorf("the plan is\n%s", p.String(w.Now))
	}
	if !p.Requeue.Equal(later) {
		t.Errorf("the plan looks again at %v, not %v", p.Requeue, later)
	}
	w.Sync()
	for name := range w.Pods {
		w.Change(name, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	}
	s = w.Snapshot()
	s.ReplaceAfter = map[string]time.Time{"web-1": later}
	p = plan.Make(s)
	if deletes := of[plan.DeletePod](p); len(deletes) != 1 || deletes[0].Pod.Name != "web-0" {
		t.Errorf("the plan is\n%s", p.String(w.Now))
	}
	if !p.Requeue.Equal(later) {
		t.Errorf("the plan looks again at %v, not %v", p.Requeue, later)
	}
}
