// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newPolicy(name string, changes ...func(*v1alpha1.StatefulSetPolicy)) *v1alpha1.StatefulSetPolicy {
	p := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func reserve(values ...intstr.IntOrString) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) {
		p.Spec.Scaling = &v1alpha1.ScalingPolicy{ReservedOrdinals: values}
	}
}

func annotate(key, value string) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) { p.Annotations = map[string]string{key: value} }
}

func failed(p *v1alpha1.StatefulSetPolicy) {
	p.Status.FailedRevision, p.Status.FailedTime = "web-2", new(metav1.NewTime(noon))
}

func TestRules(t *testing.T) {
	batch := &v1alpha1.PauseAfter{Ordinals: new(int32(2))}
	full := newPolicy("full", reserve(intstr.FromInt32(3), intstr.FromString("5-7")), func(p *v1alpha1.StatefulSetPolicy) {
		p.Spec.Scaling.ScaleDown = &v1alpha1.ScaleDown{DrainSeconds: 30, ReasonAnnotation: true}
		p.Spec.Rollout = &v1alpha1.RolloutPolicy{
			ProgressDeadlineSeconds: new(int32(60)),
			OnDeadline:              v1alpha1.RollBack,
			Paused:                  true,
			PauseAfter:              batch,
			Order:                   v1alpha1.LeaderLast,
			LeaderSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"role": "leader"}},
			Disruption:              v1alpha1.Evict,
		}
		p.Annotations = map[string]string{
			v1alpha1.RetryAtAnnotation: "2026-01-01T11:00:00Z", v1alpha1.ResumeAtAnnotation: "2026-01-01T13:00:00+01:00",
		}
	}, failed)
	got := Of([]*v1alpha1.StatefulSetPolicy{full})
	if got.Leader == nil || !got.Leader.Matches(labels.Set{"role": "leader"}) || got.Leader.Matches(labels.Set{"role": "other"}) {
		t.Errorf("leaders are %v", got.Leader)
	}
	got.Leader = nil
	if !got.ResumedAt.Equal(noon) {
		t.Errorf("resumed at %v", got.ResumedAt)
	}
	got.ResumedAt = time.Time{}
	want := Rules{
		Policy:    full,
		Reserved:  []ordinal.Interval{{First: 3, Last: 3}, {First: 5, Last: 7}},
		Deadline:  time.Minute,
		RollBack:  true,
		Paused:    true,
		Batch:     batch,
		Evict:     true,
		Drain:     30 * time.Second,
		Tell:      true,
		Failed:    "web-2",
		RetriedAt: noon.Add(-time.Hour),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("rules are\n%+v, want\n%+v", got, want)
	}
	if rules := Of(nil); !reflect.DeepEqual(rules, Rules{}) {
		t.Errorf("without a policy, rules are %+v", rules)
	}
	empty := newPolicy("empty")
	if rules := Of([]*v1alpha1.StatefulSetPolicy{empty}); !reflect.DeepEqual(rules, Rules{Policy: empty}) {
		t.Errorf("of an empty policy, rules are %+v", rules)
	}
}

// A selector without the order that obeys it is nothing.
func TestLeaderNeedsItsOrder(t *testing.T) {
	p := newPolicy("a", func(p *v1alpha1.StatefulSetPolicy) {
		p.Spec.Rollout = &v1alpha1.RolloutPolicy{LeaderSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	})
	if rules := Of([]*v1alpha1.StatefulSetPolicy{p}); rules.Leader != nil || rules.Conflict {
		t.Errorf("rules are %+v", rules)
	}
}

func TestConflict(t *testing.T) {
	one, two := newPolicy("one", reserve(intstr.FromInt32(1)), failed), newPolicy("two", reserve(intstr.FromInt32(4)))
	got := Of([]*v1alpha1.StatefulSetPolicy{one, two})
	want := Rules{Conflict: true, Reserved: []ordinal.Interval{{First: 1, Last: 1}, {First: 4, Last: 4}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("of two policies, rules are %+v, want %+v", got, want)
	}
}

// Of a policy that cannot be read, what is known stays: what is reserved, and what has failed.
func TestUnreadable(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.StatefulSetPolicy)
		want   string
	}{
		"retry":  {annotate(v1alpha1.RetryAtAnnotation, "now"), `annotation ordinal.dev/retry-at: "now" is no time`},
		"resume": {annotate(v1alpha1.ResumeAtAnnotation, "12:00"), `annotation ordinal.dev/resume-at: "12:00" is no time`},
		"reserved": {
			func(p *v1alpha1.StatefulSetPolicy) {
				p.Spec.Scaling.ReservedOrdinals = append(p.Spec.Scaling.ReservedOrdinals, intstr.FromString("7-5"))
			},
			`spec.scaling.reservedOrdinals: "7-5" is neither a number nor a range`,
		},
		"selector": {
			func(p *v1alpha1.StatefulSetPolicy) {
				p.Spec.Rollout = &v1alpha1.RolloutPolicy{Order: v1alpha1.LeaderLast, LeaderSelector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}},
				}}
			},
			"spec.rollout.leaderSelector: ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy("a", reserve(intstr.FromInt32(1)), failed, test.change)
			if err := Check(p); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("the check says %v, want %s", err, test.want)
			}
			got := Of([]*v1alpha1.StatefulSetPolicy{p})
			want := Rules{Policy: p, Conflict: true, Reserved: []ordinal.Interval{{First: 1, Last: 1}}, Failed: "web-2"}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("rules are %+v, want %+v", got, want)
			}
		})
	}
	if err := Check(newPolicy("a", annotate(v1alpha1.RetryAtAnnotation, ""))); err != nil {
		t.Errorf("of an empty annotation, the check says %v", err)
	}
}

// What failed is tried again when somebody asked for it after it failed.
func TestRetry(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.StatefulSetPolicy)
		want   string
	}{
		"never asked for":          {func(*v1alpha1.StatefulSetPolicy) {}, "web-2"},
		"asked for before":         {annotate(v1alpha1.RetryAtAnnotation, "2026-01-01T11:59:59Z"), "web-2"},
		"asked for then":           {annotate(v1alpha1.RetryAtAnnotation, "2026-01-01T12:00:00Z"), ""},
		"asked for since":          {annotate(v1alpha1.RetryAtAnnotation, "2026-01-01T12:00:01Z"), ""},
		"failed nobody knows when": {func(p *v1alpha1.StatefulSetPolicy) { p.Status.FailedTime = nil }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy("a", failed, test.change)
			if got := Of([]*v1alpha1.StatefulSetPolicy{p}).Failed; got != test.want {
				t.Errorf("failed is %q, want %q", got, test.want)
			}
		})
	}
}

func TestBatchSize(t *testing.T) {
	tests := []struct {
		batch    v1alpha1.PauseAfter
		replicas int
		want     int
	}{
		{v1alpha1.PauseAfter{Ordinals: new(int32(2))}, 10, 2},
		{v1alpha1.PauseAfter{Ordinals: new(int32(0))}, 10, 1},
		{v1alpha1.PauseAfter{Percent: new(int32(50))}, 10, 5},
		{v1alpha1.PauseAfter{Percent: new(int32(34))}, 10, 4},
		{v1alpha1.PauseAfter{Percent: new(int32(1))}, 10, 1},
		{v1alpha1.PauseAfter{Percent: new(int32(100))}, 7, 7},
		{v1alpha1.PauseAfter{Percent: new(int32(100))}, 0, 1},
		{v1alpha1.PauseAfter{}, 4, 4},
		{v1alpha1.PauseAfter{}, 0, 1},
	}
	for _, test := range tests {
		if got := BatchSize(&test.batch, test.replicas); got != test.want {
			t.Errorf("a batch of %+v has %d of %d pods, want %d", test.batch, got, test.replicas, test.want)
		}
	}
}

func TestSorted(t *testing.T) {
	aged := func(name string, age time.Duration) *v1alpha1.StatefulSetPolicy {
		return newPolicy(name, func(p *v1alpha1.StatefulSetPolicy) { p.CreationTimestamp = metav1.NewTime(noon.Add(-age)) })
	}
	given := []*v1alpha1.StatefulSetPolicy{aged("c", 0), aged("b", time.Hour), aged("a", 0)}
	before := slices.Clone(given)
	var names []string
	for _, p := range Sorted(given) {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{"b", "a", "c"}) {
		t.Errorf("the order is %v", names)
	}
	if !slices.Equal(given, before) {
		t.Error("what was given is changed")
	}
}

// The next batch begins when somebody asked for it after the last was done.
func TestResume(t *testing.T) {
	tests := map[string]struct {
		asked, done time.Time
		want        bool
	}{
		"never asked for":                   {time.Time{}, noon, false},
		"asked for before":                  {noon.Add(-time.Second), noon, false},
		"asked for then":                    {noon, noon, true},
		"asked for since":                   {noon.Add(time.Second), noon, true},
		"never, and done nobody knows when": {time.Time{}, time.Time{}, false},
		"asked for, done nobody knows when": {noon, time.Time{}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (Rules{ResumedAt: test.asked}).IsResumed(test.done); got != test.want {
				t.Errorf("it is resumed: %t", got)
			}
		})
	}
}
