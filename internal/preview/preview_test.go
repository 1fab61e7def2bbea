// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package preview_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/preview"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType

// settled is a set of three pods that has come to rest.
func settled(t *testing.T, changes ...func(*appsv1.StatefulSet)) *sim.World {
	t.Helper()
	w := sim.New(sim.NewSet("web", 3, changes...))
	settle(t, w)
	return w
}

func settle(t *testing.T, w *sim.World) {
	t.Helper()
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
}

// edit is what a change of the set as it is in the world would do.
func edit(w *sim.World, change func(*appsv1.StatefulSet)) preview.Edit {
	after := w.Set.DeepCopy()
	change(after)
	s := w.Snapshot()
	return preview.Edit{Live: s, After: after, Policies: s.Policies}
}

func image(name string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = name }
}

func replicas(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(n) }
}

func partition(n int32) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = new(n) }
}

func parallel(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func minReady(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 30 }

func onDelete(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}

func retention(scaled, deleted appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: scaled, WhenDeleted: deleted,
		}
	}
}

func policy(spec v1alpha1.StatefulSetPolicySpec) *v1alpha1.StatefulSetPolicy {
	spec.TargetRef.Name = "web"
	return &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "policy"}, Spec: spec}
}

func withPolicy(e preview.Edit, spec v1alpha1.StatefulSetPolicySpec) preview.Edit {
	e.Policies = []*v1alpha1.StatefulSetPolicy{policy(spec)}
	return e
}

// all are edits by what they are.
func all(t *testing.T) map[string]preview.Edit {
	t.Helper()
	edits := map[string]preview.Edit{}
	empty := sim.New(sim.NewSet("web", 3)).Snapshot()
	fresh := empty.Set
	empty.Set = nil
	edits["create"] = preview.Edit{Live: empty, After: fresh}
	edits["nothing"] = edit(settled(t), func(*appsv1.StatefulSet) {})
	edits["image"] = edit(settled(t), image("two"))
	edits["image at once"] = edit(settled(t, parallel), image("two"))
	edits["image with minReadySeconds"] = edit(settled(t, minReady), image("two"))
	edits["partition"] = edit(settled(t, partition(2)), image("two"))
	edits["OnDelete"] = edit(settled(t, onDelete), image("two"))
	edits["scale down"] = edit(settled(t), replicas(1))
	edits["scale down with its claims"] = edit(settled(t, retention(remove, "Retain")), replicas(1))
	edits["scale up over claims that are there"] = func() preview.Edit {
		w := settled(t)
		w.Edit(replicas(1))
		settle(t, w)
		return edit(w, replicas(3))
	}()
	edits["retention"] = edit(settled(t), retention("Retain", remove))
	edits["delete"] = preview.Edit{Live: settled(t).Snapshot()}
	edits["delete with its claims"] = preview.Edit{Live: settled(t, retention("Retain", remove)).Snapshot()}
	edits["anew"] = func() preview.Edit {
		e := edit(settled(t), parallel)
		e.Anew = true
		return e
	}()
	edits["anew with another image"] = func() preview.Edit {
		e := edit(settled(t), func(s *appsv1.StatefulSet) { parallel(s); image("two")(s) })
		e.Anew = true
		return e
	}()
	edits["a pod that is not ready"] = func() preview.Edit {
		w := settled(t)
		w.Change("web-1", func(p *corev1.Pod) { p.Status.Conditions = nil })
		return edit(w, replicas(4))
	}()
	edits["a pod that is stuck"] = func() preview.Edit {
		w := settled(t)
		w.Fate = func(*corev1.Pod) sim.Fate { return sim.Stuck }
		w.Edit(image("bad"))
		settle(t, w)
		return edit(w, image("good"))
	}()
	edits["back to an old template"] = func() preview.Edit {
		w := settled(t)
		w.Edit(image("two"))
		settle(t, w)
		return edit(w, image("one"))
	}()
	edits["paused"] = withPolicy(edit(settled(t), image("two")),
		v1alpha1.StatefulSetPolicySpec{Rollout: &v1alpha1.RolloutPolicy{Paused: true}})
	edits["in batches"] = withPolicy(edit(settled(t), image("two")), v1alpha1.StatefulSetPolicySpec{
		Rollout: &v1alpha1.RolloutPolicy{PauseAfter: &v1alpha1.PauseAfter{Ordinals: new(int32(1)), Seconds: new(int32(600))}},
	})
	edits["evict"] = withPolicy(edit(settled(t), image("two")),
		v1alpha1.StatefulSetPolicySpec{Rollout: &v1alpha1.RolloutPolicy{Disruption: v1alpha1.Evict}})
	edits["drain"] = withPolicy(edit(settled(t), replicas(2)),
		v1alpha1.StatefulSetPolicySpec{Scaling: &v1alpha1.ScalingPolicy{ScaleDown: &v1alpha1.ScaleDown{DrainSeconds: 60}}})
	return edits
}

// Golden previews can be read; -rewrite writes them anew.
func TestPreviews(t *testing.T) {
	for name, e := range all(t) {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := preview.Of(e).Write(&b); err != nil {
				t.Fatal(err)
			}
			got := b.String()
			for line := range strings.Lines(got) {
				if len(line) > 81 {
					t.Errorf("a line of %d characters: %s", len(line)-1, line)
				}
			}
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the preview is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// What is looked at is not touched: it belongs to caches.
func TestPreviewChangesNothing(t *testing.T) {
	for name, e := range all(t) {
		before := e.Live
		before.Set = e.Live.Set.DeepCopy()
		pods := map[string]*corev1.Pod{}
		for _, p := range e.Live.Pods {
			pods[p.Name] = p.DeepCopy()
		}
		first := preview.Of(e)
		for _, p := range e.Live.Pods {
			if p.ResourceVersion != pods[p.Name].ResourceVersion || p.DeletionTimestamp != nil {
				t.Errorf("%s: pod %s was changed", name, p.Name)
			}
		}
		var a, b strings.Builder
		_, _ = first.Write(&a), preview.Of(e).Write(&b)
		if a.String() != b.String() {
			t.Errorf("%s: the second preview of the same is\n%s\nthe first was\n%s", name, b.String(), a.String())
		}
	}
}

// A world that never comes to rest is told only so far.
func TestPreviewEnds(t *testing.T) {
	e := edit(settled(t), image("two"))
	e.Policies = []*v1alpha1.StatefulSetPolicy{policy(v1alpha1.StatefulSetPolicySpec{Rollout: &v1alpha1.RolloutPolicy{
		PauseAfter: &v1alpha1.PauseAfter{Ordinals: new(int32(1)), Seconds: new(int32(preview.MaxTime.Seconds()) + 1)},
	}})}
	p := preview.Of(e)
	if !slices.ContainsFunc(p.Stops, func(s preview.Stop) bool { return s.Reason == preview.StopMaxTime }) {
		t.Errorf("stops are %v", p.Stops)
	}
	if len(p.End.Pods) != 3 || p.Totals.PodsReplaced != 1 {
		t.Errorf("the end is %v, the totals are %v", p.End, p.Totals)
	}
}

// A slot that loses its pod is told at which revision it comes back.
func TestTotals(t *testing.T) {
	w := settled(t, retention(remove, "Retain"))
	p := preview.Of(edit(w, func(s *appsv1.StatefulSet) { image("two")(s); replicas(2)(s) }))
	want := preview.Totals{PodsReplaced: 2, PodsDeleted: 1, ClaimsDeleted: 1, RevisionsCreated: 1}
	if p.Totals != want {
		t.Errorf("totals are %+v, want %+v", p.Totals, want)
	}
	if p.End.Available != 2 || p.End.Wanted != 2 || !slices.Equal(p.End.Claims, []string{"data-web-0", "data-web-1"}) {
		t.Errorf("the end is %+v", p.End)
	}
	for _, h := range p.Happenings {
		if h.Kind == plan.KindPod && h.Verb == preview.Delete && (h.Next == "") != (h.Name == "web-2") {
			t.Errorf("%s comes back at %q", h.Name, h.Next)
		}
	}
}
