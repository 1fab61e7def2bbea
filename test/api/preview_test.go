// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/preview"
	"github.com/ordinal-dev/ordinal/internal/preview/dryrun"
)

// foreseen is an edit of a set whose preview is compared with what then happens.
type foreseen struct {
	// start is the set before the edit; nil if there is none. Its pods are as they should be, unless prepare does something.
	start   *appsv1.StatefulSet
	prepare func(*space)
	// Of these, those that are set make the edit: the options change the set, or create it as newSet with them; change is
	// given on the command line; the policy, in JSON, is written beside it; the set is deleted; or made anew over its pods.
	options  []option
	create   bool
	change   dryrun.Change
	policy   string
	deletion bool
	anew     bool
	// stops are the reasons for which it has to stop.
	stops []plan.Reason
	// anyOrder means that what happens in one kind of objects may happen in any order, as in a Parallel set.
	anyOrder bool
}

func with(options ...option) []option { return options }

func retention(scaled, deleted appsv1.PersistentVolumeClaimRetentionPolicyType) option {
	return func(s *appsv1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: scaled, WhenDeleted: deleted,
		}
	}
}

const (
	retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	drop   = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	second = "ordinal.dev/model:2"
)

func start(n int32) option {
	return func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: n} }
}

func onDelete(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}

func history(n int32) option {
	return func(s *appsv1.StatefulSet) { s.Spec.RevisionHistoryLimit = new(n) }
}

// foresights are edits by what they are.
func foresights() map[string]foreseen {
	unready := func(name string, ready int32) func(*space) {
		return func(s *space) {
			s.decide(name, fate{Unready: true})
			s.ready("db", ready)
		}
	}
	return map[string]foreseen{
		"create in order":             {create: true, options: with(withClaims)},
		"create at once":              {create: true, options: with(withClaims, parallel), anyOrder: true},
		"create from ordinal 5":       {create: true, options: with(withClaims, start(5))},
		"create with minReadySeconds": {create: true, options: with(minReady(2))},
		"create none":                 {create: true, options: with(replicas(0))},
		"create with a policy": {
			create: true, options: with(withClaims), policy: `{"scaling":{"reservedOrdinals":[1]}}`,
		},
		"create in the place of a stranger": {
			create: true, prepare: func(s *space) { s.stranger("db-1", "zzz") }, stops: []plan.Reason{plan.WaitNameTaken},
		},
		"create over claims": {
			create: true, options: with(withClaims), prepare: func(s *space) {
				s.create(newSet(withClaims))
				s.settled("db")
				s.remove("db", metav1.DeletePropagationBackground)
				s.untilGone("the set", func(w world) bool { return len(w.sets)+len(w.pods)+len(w.revisions) == 0 })
			},
		},
		"create over orphans": {
			create: true, options: with(withClaims), prepare: func(s *space) {
				s.create(newSet(withClaims))
				s.settled("db")
				s.orphan("db")
			},
		},
		"create another version over orphans": {
			create: true, options: with(image(second)), prepare: func(s *space) {
				s.create(newSet())
				s.settled("db")
				s.orphan("db")
			},
		},

		"nothing":                   {start: newSet(withClaims)},
		"scale up in order":         {start: newSet(withClaims, replicas(1)), options: with(replicas(3))},
		"scale up at once":          {start: newSet(parallel, replicas(1)), options: with(replicas(4)), anyOrder: true},
		"scale down in order":       {start: newSet(withClaims), change: dryrun.Change{Replicas: new(int32(1))}},
		"scale down at once":        {start: newSet(withClaims, parallel), options: with(replicas(1)), anyOrder: true},
		"scale down with claims":    {start: newSet(withClaims, retention(drop, retain)), options: with(replicas(1))},
		"scale to none":             {start: newSet(withClaims), options: with(replicas(0))},
		"scale down and update":     {start: newSet(), options: with(replicas(2), image(second))},
		"scale up and update":       {start: newSet(replicas(2)), options: with(replicas(4), image(second))},
		"start at a higher ordinal": {start: newSet(withClaims), options: with(start(1))},
		"start at a lower ordinal":  {start: newSet(start(2)), options: with(start(0))},
		"scale up over claims": {
			start: newSet(withClaims), options: with(replicas(3)), prepare: func(s *space) {
				s.scale("db", 1)
				s.settled("db")
			},
		},
		"scale up after a claim was lost": {
			start: newSet(withClaims), options: with(replicas(3)), prepare: func(s *space) {
				s.scale("db", 2)
				s.settled("db")
				dropClaim(s, "data-db-2")
				s.untilGone("the claim", func(w world) bool { return w.claims["data-db-2"] == nil })
			},
		},
		"update while a claim goes": {
			start: newSet(withClaims), options: with(image(second)), prepare: func(s *space) {
				dropClaim(s, "data-db-1")
				s.until("the claim goes", func(w world) string {
					return unless(w.claims["data-db-1"].DeletionTimestamp != nil, "it does not")
				})
			},
		},

		"update in order":             {start: newSet(withClaims), change: dryrun.Change{Images: []string{second}}},
		"update at once":              {start: newSet(parallel), options: with(image(second)), anyOrder: true},
		"update by the environment":   {start: newSet(), change: dryrun.Change{Env: []string{"VERSION=2"}}},
		"update with minReadySeconds": {start: newSet(minReady(2)), options: with(image(second))},
		"update two at once in order": {start: newSet(maxUnavailable(2), replicas(4)), options: with(image(second))},
		"update two at once":          {start: newSet(parallel, maxUnavailable(2), replicas(4)), options: with(image(second)), anyOrder: true},
		"update down to a partition": {
			start: newSet(partition(2)), options: with(image(second)), stops: []plan.Reason{plan.WaitPartition},
		},
		"update with another partition": {
			start: newSet(), change: dryrun.Change{Images: []string{"main=" + second}, Partition: new(int32(1))},
			stops: []plan.Reason{plan.WaitPartition},
		},
		"partition moves down": {
			start: newSet(partition(2)), options: with(image(second), partition(0)), prepare: func(s *space) {
				s.setImage("db", second)
				s.until("the partition is updated", func(w world) string {
					return unless(w.sets["db"].Status.UpdatedReplicas == 1 && w.sets["db"].Status.ReadyReplicas == 3, "it is not")
				})
			},
		},
		"update OnDelete": {start: newSet(onDelete), options: with(image(second)), stops: []plan.Reason{plan.WaitOnDelete}},
		"back to an older version": {
			start: newSet(), options: with(image("ordinal.dev/model:1")), prepare: func(s *space) {
				s.setImage("db", second)
				s.settled("db")
			},
		},
		"beyond the history limit": {
			start: newSet(history(0)), options: with(image(second)),
		},
		"out of a broken rollout": {
			start: newSet(), options: with(image(second)), prepare: breakRollout,
		},
		"back out of a broken rollout": {
			start: newSet(), options: with(image("ordinal.dev/model:1")), prepare: breakRollout,
		},
		"scale up over a pod that is not ready": {
			start: newSet(), options: with(replicas(5)), prepare: unready("db-1", 2), stops: []plan.Reason{plan.WaitNotReady},
		},
		"scale down over a pod that is not ready": {
			start: newSet(), options: with(replicas(1)), prepare: unready("db-2", 2),
		},

		"pods that go with claims":    {start: newSet(withClaims), options: with(retention(drop, drop))},
		"delete with claims":          {start: newSet(withClaims, retention(retain, drop)), deletion: true, anyOrder: true},
		"delete without claims":       {start: newSet(withClaims), deletion: true, anyOrder: true},
		"anew as Parallel":            {start: newSet(withClaims), options: with(parallel), anew: true},
		"anew with claims":            {start: newSet(), options: with(withClaims), anew: true},
		"anew with another version":   {start: newSet(), options: with(parallel, image(second)), anew: true, anyOrder: true},
		"pause":                       {start: newSet(), options: with(image(second)), policy: `{"rollout":{"paused":true}}`, stops: []plan.Reason{plan.WaitPaused}},
		"reserve an ordinal":          {start: newSet(withClaims), policy: `{"scaling":{"reservedOrdinals":["1"]}}`},
		"update in batches":           {start: newSet(), options: with(image(second)), policy: `{"rollout":{"pauseAfter":{"ordinals":1,"seconds":1}}}`},
		"update a batch":              {start: newSet(), options: with(image(second)), policy: `{"rollout":{"pauseAfter":{"ordinals":2}}}`, stops: []plan.Reason{plan.WaitBatch}},
		"update by eviction":          {start: newSet(), options: with(image(second)), policy: `{"rollout":{"disruption":"Evict"}}`},
		"scale down with time for it": {start: newSet(), options: with(replicas(2)), policy: `{"scaling":{"scaleDown":{"drainSeconds":2}}}`},
		"update the leader last": {
			start: newSet(), options: with(image(second)), prepare: func(s *space) {
				s.patchPod("db-2", `{"metadata":{"labels":{"role":"leader"}}}`)
				s.until("db-2 leads", func(w world) string { return unless(w.pods["db-2"].Labels["role"] == "leader", "it does not") })
			},
			policy: `{"rollout":{"order":"LeaderLast","leaderSelector":{"matchLabels":{"role":"leader"}}}}`,
		},
	}
}

func breakRollout(s *space) {
	s.setImage("db", brokenImage)
	s.until("the rollout is stuck", func(w world) string {
		pod := w.pods["db-2"]
		return unless(pod != nil && pod.Spec.Containers[0].Image == brokenImage && pod.Spec.NodeName != "" &&
			w.sets["db"].Status.ReadyReplicas == 2, "it is not")
	})
}

func dropClaim(s *space, name string) {
	s.t.Helper()
	claims := env.client.CoreV1().PersistentVolumeClaims(s.name)
	if err := claims.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// What ordinal plan tells is what then happens: the same, in the same order, to the same end.
func TestPlanIsWhatHappens(t *testing.T) {
	t.Parallel()
	cases := foresights()
	if len(cases) < 30 {
		t.Fatalf("there are %d cases", len(cases))
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			if c.start != nil {
				s.create(c.start)
				s.settled("db")
			}
			if c.prepare != nil {
				c.prepare(s)
			}
			s.still()
			told := s.foresee(c)
			from := s.now()
			s.quiet(200*time.Millisecond, "looking ahead changes something", anything)
			s.act(c)
			s.rest(told.End, c.deletion)
			compare(t, told.Happenings, s.happened(from), c)
			var stops []plan.Reason
			for _, stop := range told.Stops {
				stops = append(stops, stop.Reason)
			}
			for _, want := range c.stops {
				if !slices.Contains(stops, want) {
					t.Errorf("it stops for %v, not for %s", stops, want)
				}
			}
			if len(c.stops) == 0 && len(stops) > 0 {
				t.Errorf("it stops for %v", stops)
			}
			if t.Failed() {
				var b strings.Builder
				_ = told.Write(&b)
				t.Logf("the preview is\n%s", b.String())
			}
		})
	}
}

// still waits until nothing has happened for a while.
func (s *space) still() {
	s.t.Helper()
	last, since := s.now(), time.Now()
	poll(s.t, "nothing happens any more", func(context.Context) string {
		if n := s.now(); n != last {
			last, since = n, time.Now()
		}
		return unless(time.Since(since) > 500*time.Millisecond, "something does")
	})
}

// edited is the set as the edit wants it, as a file has it.
func (s *space) edited(c foreseen) *appsv1.StatefulSet {
	s.t.Helper()
	set := newSet()
	if !c.create {
		live := s.look().sets["db"].DeepCopy()
		set = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: live.Name}, Spec: live.Spec}
	}
	for _, o := range c.options {
		o(set)
	}
	return set
}

// foresee asks for the preview of an edit.
func (s *space) foresee(c foreseen) preview.Preview {
	s.t.Helper()
	r := dryrun.Request{Change: c.change}
	r.Change.Delete = c.deletion
	if r.Change.IsEmpty() {
		r.Files.Filenames = []string{s.file(c)}
	} else {
		r.Sets = []string{"sts/db"}
	}
	report := s.plan(r)
	if len(report.Errors) > 0 || len(report.Sets) != 1 || report.Sets[0].Preview == nil || report.IsRefused() != c.anew {
		s.t.Fatalf("the report is %+v", report)
	}
	return *report.Sets[0].Preview
}

// file writes the manifests of an edit.
func (s *space) file(c foreseen) string {
	s.t.Helper()
	set := s.edited(c)
	set.APIVersion, set.Kind = "apps/v1", "StatefulSet"
	text, err := json.Marshal(set)
	if err != nil {
		s.t.Fatal(err)
	}
	if c.policy != "" {
		policy, err := newPolicy(s.t, "db", targeted(c.policy)).MarshalJSON()
		if err != nil {
			s.t.Fatal(err)
		}
		text = bytes.Join([][]byte{text, policy}, []byte("\n---\n"))
	}
	name := filepath.Join(s.t.TempDir(), "set.yaml")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return name
}

func targeted(spec string) string {
	return `{"targetRef":{"name":"db"},` + strings.TrimPrefix(spec, "{")
}

// plan does what ordinal plan does, in the space.
func (s *space) plan(r dryrun.Request) dryrun.Report {
	s.t.Helper()
	kubeconfig, err := kubeconfig()
	if err != nil {
		s.t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	*flags.KubeConfig, *flags.Namespace, *flags.CacheDir = kubeconfig, s.name, s.t.TempDir()
	var warnings bytes.Buffer
	r.Cluster, r.Warnings = flags, &warnings
	r.Options.Defaulter = appsdefaults.SetObjectDefaults_StatefulSet
	report, err := dryrun.Run(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return report
}

// kubeconfig is the file of an administrator.
var kubeconfig = sync.OnceValues(func() (string, error) {
	pair, err := env.CA.Issue(pki.Subject{User: "admin", Groups: []string{"system:masters"}}, time.Now())
	if err != nil {
		return "", err
	}
	file := filepath.Join(env.dir, "admin.kubeconfig")
	return file, pki.WriteKubeconfig(file, env.config.Host, env.CA, pair)
})

// act makes the edit.
func (s *space) act(c foreseen) {
	s.t.Helper()
	set := s.edited(c)
	if c.policy != "" {
		_, err := policies(s.t, s.name).Create(s.t.Context(), newPolicy(s.t, "db", targeted(c.policy)), metav1.CreateOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	switch {
	case c.deletion:
		s.remove("db", metav1.DeletePropagationBackground)
	case c.create:
		s.create(set)
	case c.anew:
		s.orphan("db")
		s.create(set)
	case c.change.Images != nil || c.change.Env != nil || c.change.Replicas != nil:
		s.patch("db", patchOf(s.t, c.change))
	default:
		live := s.look().sets["db"].DeepCopy()
		live.Spec = set.Spec
		live.ResourceVersion = ""
		made, err := env.client.AppsV1().StatefulSets(s.name).Update(s.t.Context(), live, metav1.UpdateOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		s.generations["db"] = made.Generation
	}
}

// patchOf is a change as a patch.
func patchOf(t *testing.T, c dryrun.Change) string {
	t.Helper()
	container := map[string]any{"name": "main"}
	for _, text := range c.Images {
		container["image"] = strings.TrimPrefix(text, "main=")
	}
	for _, text := range c.Env {
		name, value, _ := strings.Cut(text, "=")
		container["env"] = []any{map[string]any{"name": name, "value": value}}
	}
	spec := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
	if c.Replicas != nil {
		spec["replicas"] = *c.Replicas
	}
	if c.Partition != nil {
		spec["updateStrategy"] = map[string]any{"rollingUpdate": map[string]any{"partition": *c.Partition}}
	}
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rest waits until there is what a preview has at its end, and nothing more happens.
func (s *space) rest(end preview.End, isGone bool) {
	s.t.Helper()
	s.until("it has come to its end", func(w world) string { return s.unrest(w, end, isGone) })
	s.quiet(1200*time.Millisecond, "after the end of the preview something happens", func(c change) bool {
		_, isSet := c.object.(*appsv1.StatefulSet)
		return !isSet && s.unrest(s.look(), end, isGone) != ""
	})
}

// unrest tells in what a world differs from the end of a preview.
func (s *space) unrest(w world, end preview.End, isGone bool) string {
	set := w.sets["db"]
	if isGone != (set == nil) {
		return fmt.Sprintf("the set is gone: %t", set == nil)
	}
	if set != nil && min(set.Generation, set.Status.ObservedGeneration) < s.generations["db"] {
		return "the set is not observed"
	}
	pods := []preview.Pod{}
	for name, pod := range w.members("db") {
		if pod.DeletionTimestamp != nil {
			return name + " is going"
		}
		pods = append(pods, preview.Pod{Name: name, Revision: revisionOf(pod), Available: isReady(pod.Status.Conditions)})
	}
	if set == nil && len(w.pods) > 0 {
		return fmt.Sprintf("pods are left: %v", w.uids())
	}
	byName := func(a, b preview.Pod) int { return cmp.Compare(a.Name, b.Name) }
	if got, want := slices.SortedFunc(slices.Values(pods), byName), slices.SortedFunc(slices.Values(end.Pods), byName); !slices.Equal(got, want) {
		return fmt.Sprintf("pods are %v, want %v", got, want)
	}
	if got := slices.Sorted(maps.Keys(w.claims)); !slices.Equal(got, end.Claims) {
		return fmt.Sprintf("claims are %v, want %v", got, end.Claims)
	}
	if got := slices.Sorted(maps.Keys(w.revisions)); !slices.Equal(got, end.Revisions) {
		return fmt.Sprintf("revisions are %v, want %v", got, end.Revisions)
	}
	return ""
}

// happened is what has happened from a change on, in the words of previews, in the order of the API server.
func (s *space) happened(from int) []string {
	number := func(c change) int {
		m, _ := meta.Accessor(c.object)
		n, _ := strconv.Atoi(m.GetResourceVersion())
		return n
	}
	past := s.past(0)
	known := map[types.UID]metav1.Object{}
	for _, c := range past[:from] {
		m, _ := meta.Accessor(c.object)
		known[m.GetUID()] = m
	}
	var all []string
	for _, c := range slices.SortedStableFunc(slices.Values(past[from:]), func(a, b change) int { return number(a) - number(b) }) {
		m, _ := meta.Accessor(c.object)
		for _, verb := range verbsOf(c, known[m.GetUID()]) {
			all = append(all, describe(verb, m))
		}
		known[m.GetUID()] = m
	}
	return all
}

// verbsOf is what a change does, by the words of previews. Before is the object before it.
func verbsOf(c change, before metav1.Object) []preview.Verb {
	after, _ := meta.Accessor(c.object)
	_, isClaim := c.object.(*corev1.PersistentVolumeClaim)
	if _, isSet := c.object.(*appsv1.StatefulSet); isSet {
		return nil
	}
	wasGoing := before != nil && before.GetDeletionTimestamp() != nil
	switch {
	case c.kind == watch.Added:
		return []preview.Verb{preview.Create}
	case isClaim && c.kind == watch.Deleted, !isClaim && !wasGoing && (c.kind == watch.Deleted || after.GetDeletionTimestamp() != nil):
		return []preview.Verb{preview.Delete}
	case c.kind == watch.Deleted || before == nil:
		return nil
	}
	var verbs []preview.Verb
	if !isClaim && metav1.GetControllerOf(before) == nil && metav1.GetControllerOf(after) != nil {
		verbs = append(verbs, preview.Adopt)
	}
	old, isRevision := before.(*appsv1.ControllerRevision)
	if fresh, ok := after.(*appsv1.ControllerRevision); ok && isRevision && old.Revision != fresh.Revision {
		verbs = append(verbs, preview.Reuse)
	}
	return verbs
}

func describe(verb preview.Verb, o metav1.Object) string {
	switch o := o.(type) {
	case *corev1.Pod:
		return fmt.Sprintf("%s pod %s at %s", verb, o.Name, revisionOf(o))
	case *corev1.PersistentVolumeClaim:
		return fmt.Sprintf("%s claim %s", verb, o.Name)
	default:
		return fmt.Sprintf("%s revision %s", verb, o.GetName())
	}
}

// foretold are the happenings of a preview in the same words.
func foretold(happenings []preview.Happening, c foreseen) []string {
	var all []string
	for _, h := range happenings {
		verb := h.Verb
		switch verb {
		case preview.Wait, preview.Keep, preview.Own, preview.Tell, preview.Label:
			continue
		case preview.Evict:
			verb = preview.Delete
		case preview.Create, preview.Delete, preview.Adopt, preview.Release, preview.Reuse:
		}
		text := fmt.Sprintf("%s %s", verb, plan.Ref{Kind: h.Kind, Name: h.Name})
		if h.Kind == plan.KindSet || (c.deletion && h.Kind == plan.KindRevision) {
			continue
		}
		if h.Revision != "" {
			text += " at " + h.Revision
		}
		all = append(all, text)
	}
	return all
}

// compare compares what was told with what happened. The garbage collector works beside the controller, so what it does is in no
// order with the rest.
func compare(t *testing.T, told []preview.Happening, happened []string, c foreseen) {
	t.Helper()
	want := foretold(told, c)
	if c.deletion {
		happened = slices.DeleteFunc(happened, func(s string) bool { return strings.Contains(s, "revision ") })
	}
	isCollected := func(s string) bool { return strings.HasPrefix(s, "delete claim ") }
	split := func(all []string) (ours, collected []string) {
		for _, s := range all {
			if isCollected(s) {
				collected = append(collected, s)
			} else {
				ours = append(ours, s)
			}
		}
		if c.anyOrder {
			slices.Sort(ours)
		}
		slices.Sort(collected)
		return ours, collected
	}
	wantOurs, wantCollected := split(want)
	gotOurs, gotCollected := split(happened)
	if !slices.Equal(gotOurs, wantOurs) || !slices.Equal(gotCollected, wantCollected) {
		t.Errorf("this happened:\n  %s\nthis was told:\n  %s", strings.Join(happened, "\n  "), strings.Join(want, "\n  "))
	}
}

// Looking ahead changes nothing at all in the namespace, whatever is asked for.
func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet(withClaims))
	s.settled("db")
	s.create(newSet(of("dc"), parallel))
	s.settled("dc")
	s.still()
	// Events come late: of three claims and six pods.
	poll(t, "all that was done is told", func(ctx context.Context) string {
		told := s.events(ctx, "SuccessfulCreate")
		return unless(len(told) == 9, fmt.Sprintf("events are %q", told))
	})
	before := s.versions()
	requests := map[string]dryrun.Request{
		"a file":            {},
		"a deletion":        {Sets: []string{"sts/db"}, Change: dryrun.Change{Delete: true}},
		"a change":          {Sets: []string{"sts/db", "sts/dc"}, Change: dryrun.Change{Images: []string{second}, Replicas: new(int32(7))}},
		"a refused change":  {Sets: []string{"sts/db"}, Change: dryrun.Change{Replicas: new(int32(-1))}},
		"a change anew":     {},
		"a policy, and new": {},
	}
	for name, c := range map[string]foreseen{
		"a file":            {options: with(image(second), replicas(5), retention(drop, drop))},
		"a change anew":     {options: with(parallel, image(second))},
		"a policy, and new": {create: true, options: with(of("dd"), withClaims), policy: `{"rollout":{"paused":true}}`},
	} {
		r := requests[name]
		r.Files.Filenames = []string{s.file(c)}
		requests[name] = r
	}
	for name, r := range requests {
		report := s.plan(r)
		isRefused := name == "a refused change" || name == "a change anew"
		if report.IsRefused() != isRefused || (!isRefused && !report.IsChange()) {
			t.Errorf("%s: the report is %+v", name, report)
		}
	}
	s.quiet(time.Second, "something changes", anything)
	if after := s.versions(); !maps.Equal(after, before) {
		t.Errorf("there is\n%v\nbefore there was\n%v", after, before)
	}
}

// versions are the resource versions of all objects of the namespace.
func (s *space) versions() map[string]string {
	s.t.Helper()
	client, err := dynamic.NewForConfig(env.config)
	if err != nil {
		s.t.Fatal(err)
	}
	lists, err := discovery.ServerPreferredNamespacedResources(env.client.Discovery())
	if err != nil {
		s.t.Fatal(err)
	}
	versions := map[string]string{}
	kinds, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists))
	if err != nil {
		s.t.Fatal(err)
	}
	for gvr := range kinds {
		list, err := client.Resource(gvr).Namespace(s.name).List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, o := range list.Items {
			if o.Object["reason"] == "FailedBinding" {
				// It is told again and again that there are no volumes for claims.
				continue
			}
			versions[gvr.Resource+" "+o.GetName()] = o.GetResourceVersion()
		}
	}
	if versions["statefulsets db"] == "" || versions["pods db-0"] == "" || versions["serviceaccounts default"] == "" {
		s.t.Fatalf("seen are only %v", versions)
	}
	return versions
}

func filesOf(names ...string) resource.FilenameOptions {
	return resource.FilenameOptions{Filenames: names}
}

// What the server refuses is told in its words, and the way that works is told for what cannot be changed.
func TestPlanTellsWhatIsRefused(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet(withClaims))
	s.settled("db")
	text := func(c foreseen) (dryrun.Report, string) {
		t.Helper()
		report := s.plan(dryrun.Request{Kubectl: "ordinal kubectl", Files: filesOf(s.file(c))})
		var b strings.Builder
		if err := report.Write(&b); err != nil {
			t.Fatal(err)
		}
		return report, b.String()
	}
	report, said := text(foreseen{options: with(image(second), func(set *appsv1.StatefulSet) {
		set.Spec.ServiceName, set.Spec.PodManagementPolicy = "other", appsv1.ParallelPodManagement
	})})
	if want := []string{"spec.serviceName", "spec.podManagementPolicy"}; !slices.Equal(report.Sets[0].Fixed, want) {
		t.Errorf("fixed are %v, want %v", report.Sets[0].Fixed, want)
	}
	for _, words := range []string{"ordinal kubectl delete sts db -n " + s.name + " --cascade=orphan", "db-0 is adopted"} {
		if !strings.Contains(said, words) {
			t.Errorf("%q is not said:\n%s", words, said)
		}
	}
	report, said = text(foreseen{options: with(image("not an image"), replicas(-1))})
	if !report.IsRefused() || report.Sets[0].Preview != nil || !strings.Contains(said, "spec.replicas") {
		t.Errorf("it is said:\n%s", said)
	}
	report, _ = text(foreseen{options: with(image(second), replicas(2))})
	want := []dryrun.Field{
		{Path: "spec.replicas", From: int64(3), To: int64(2)},
		{Path: "spec.template.spec.containers[main].image", From: "ordinal.dev/model:1", To: second},
	}
	change := s.plan(dryrun.Request{Sets: []string{"sts/db"}, Change: dryrun.Change{Images: []string{second}, Replicas: new(int32(2))}})
	for _, r := range []dryrun.Report{report, change} {
		if got := r.Sets[0].Fields; !reflect.DeepEqual(got, want) {
			t.Errorf("fields are %v, want %v", got, want)
		}
	}
	report = s.plan(dryrun.Request{Files: filesOf(s.file(foreseen{}))})
	if report.IsChange() || report.IsRefused() || report.Sets[0].Outcome != dryrun.Unchanged {
		t.Errorf("of what is applied already, it is said: %+v", report)
	}
}

// A policy alone changes what happens to its set, also if its set is not in the files.
func TestPlanOfAPolicyAlone(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.create(newSet())
	s.settled("db")
	policy, err := newPolicy(t, "reserve", targeted(`{"scaling":{"reservedOrdinals":[0]}}`)).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(file, policy, 0o600); err != nil {
		t.Fatal(err)
	}
	report := s.plan(dryrun.Request{Files: filesOf(file)})
	if len(report.Sets) != 1 || report.Sets[0].Preview == nil || len(report.Others) != 1 {
		t.Fatalf("the report is %+v", report)
	}
	if got := report.Others[0]; got.Outcome != dryrun.Created || got.Kind != v1alpha1.Kind {
		t.Errorf("the policy is %+v", got)
	}
	want := preview.Totals{PodsCreated: 1, PodsDeleted: 1}
	if got := report.Sets[0].Preview.Totals; got != want {
		t.Errorf("totals are %+v, want %+v", got, want)
	}
}

// A file may make a namespace and what is in it.
func TestPlanOfANewNamespace(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	set := newSet()
	set.APIVersion, set.Kind, set.Namespace = "apps/v1", "StatefulSet", s.name+"-new"
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	namespace := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, set.Namespace)
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(namespace+"\n---\n"+string(text)), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	*flags.KubeConfig, *flags.CacheDir = kubeconfig, t.TempDir()
	report, err := dryrun.Run(t.Context(), dryrun.Request{
		Cluster: flags, Files: filesOf(file), Warnings: &bytes.Buffer{},
		Options: plan.Options{Defaulter: appsdefaults.SetObjectDefaults_StatefulSet},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := preview.Totals{PodsCreated: 3, RevisionsCreated: 1}
	if len(report.Sets) != 1 || !report.Sets[0].Unchecked || report.Sets[0].Preview == nil || report.Sets[0].Preview.Totals != want {
		t.Errorf("the report is %+v", report)
	}
	if report.IsRefused() || report.Others[0].Outcome != dryrun.Created {
		t.Errorf("the report is %+v", report)
	}
}
