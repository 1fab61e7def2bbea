// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/rollout"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	before, after = "web-1aaa", "web-2bbb"
)

// subject is a set whose pods are told by one letter each, from ordinal 0 on: u has the update and is available, n has it and is
// not ready, o is old and available, x is old and not ready, t has the update and goes, and - is missing.
func subject(pods string, changes ...func(*rollout.Subject)) rollout.Subject {
	set := sim.NewSet("web", int32(len(pods)))
	set.UID, set.Generation = "set", 2
	set.Status.ObservedGeneration, set.Status.CurrentRevision, set.Status.UpdateRevision = 2, before, after
	s := rollout.Subject{Set: set, Now: now}
	for i, letter := range pods {
		if letter != '-' {
			s.Pods = append(s.Pods, pod(set, i, letter))
		}
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func pod(set *appsv1.StatefulSet, n int, letter rune) *corev1.Pod {
	revision, ready := after, corev1.ConditionTrue
	if letter == 'o' || letter == 'x' {
		revision = before
	}
	if letter == 'n' || letter == 'x' {
		ready = corev1.ConditionFalse
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("web-%d", n), Labels: map[string]string{appsv1.StatefulSetRevisionLabel: revision},
		OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		CreationTimestamp: metav1.Time{Time: now.Add(-10 * time.Second)},
	}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Time{Time: now.Add(-5 * time.Second)}}}
	if letter == 't' {
		p.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Minute)}
	}
	return p
}

func partition(n int32) func(*rollout.Subject) {
	return func(s *rollout.Subject) { s.Set.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
}

func onDelete(s *rollout.Subject) {
	s.Set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}

func policies(all ...*v1alpha1.StatefulSetPolicy) func(*rollout.Subject) {
	return func(s *rollout.Subject) { s.Policies = all }
}

func policy(name string, rules v1alpha1.RolloutPolicy, changes ...func(*v1alpha1.StatefulSetPolicy)) *v1alpha1.StatefulSetPolicy {
	p := &v1alpha1.StatefulSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	p.Spec.TargetRef.Name = "web"
	p.Spec.Rollout = &rules
	for _, change := range changes {
		change(p)
	}
	return p
}

// between lets a policy's status tell that a batch ended a minute ago.
func between(p *v1alpha1.StatefulSetPolicy) {
	p.Status.Rollout = &v1alpha1.RolloutStatus{
		Revision: after, Phase: v1alpha1.RolloutPaused, LastProgressTime: metav1.Time{Time: now.Add(-time.Minute)},
	}
}

func annotated(key string, ago time.Duration) func(*v1alpha1.StatefulSetPolicy) {
	return func(p *v1alpha1.StatefulSetPolicy) { p.Annotations[key] = now.Add(-ago).Format(time.RFC3339Nano) }
}

// condition lets the set's status tell something about its rollout since a second ago.
func condition(status corev1.ConditionStatus, reason string) func(*rollout.Subject) {
	return func(s *rollout.Subject) {
		s.Set.Status.Conditions = []appsv1.StatefulSetCondition{{
			Type: appsv1.StatefulSetProgressing, Status: status, Reason: reason, Message: "so it is",
			LastTransitionTime: metav1.Time{Time: now.Add(-time.Second)},
		}}
	}
}

var batch = v1alpha1.PauseAfter{Ordinals: new(int32(1))}

func TestJudge(t *testing.T) {
	timed := batch
	timed.Seconds = new(int32(60))
	careful := policies(policy("careful", v1alpha1.RolloutPolicy{ProgressDeadlineSeconds: new(int32(60))}))
	for name, tt := range map[string]struct {
		subject      rollout.Subject
		text         string
		over, failed bool
		command      string
	}{
		"done":        {subject("uuu"), "web is rolled out: 3 pods are at web-2bbb and available", true, false, ""},
		"done with 1": {subject("u"), "web is rolled out: 1 pod is at web-2bbb and available", true, false, ""},
		"none":        {subject(""), "web is rolled out: it is scaled to 0", true, false, ""},
		"on its way":  {subject("oon"), "rolling out web-2bbb: 1 of 3 pods updated, 0 available", false, false, ""},
		"missing":     {subject("ou-"), "rolling out web-2bbb: 1 of 3 pods updated, 1 available", false, false, ""},
		"going":       {subject("out"), "rolling out web-2bbb: 1 of 3 pods updated, 1 available", false, false, ""},
		"in trouble": {subject("oon", func(s *rollout.Subject) {
			s.Pods[2].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "bad", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"},
			}}}
		}), "rolling out web-2bbb: 1 of 3 pods updated, 0 available; pod web-2: container main cannot get its image bad", false, false, ""},
		"of somebody else": {
			subject("uuu", func(s *rollout.Subject) { s.Pods[1].OwnerReferences[0].UID = "other" }),
			"rolling out web-2bbb: 2 of 3 pods updated, 2 available", false, false, "",
		},
		"partition done": {
			subject("oxu", partition(2)),
			"web is rolled out: 1 pod is at web-2bbb and available; pods web-0 and web-1 have an earlier template because of the partition 2",
			true, false, "",
		},
		"partition not done": {subject("oon", partition(2)), "rolling out web-2bbb: 1 of 1 pod updated, 0 available", false, false, ""},
		"partition and start": {subject("-uu", partition(1), func(s *rollout.Subject) {
			s.Set.Spec.Ordinals, s.Set.Spec.Replicas = &appsv1.StatefulSetOrdinals{Start: 1}, new(int32(2))
		}), "web is rolled out: 1 pod is at web-2bbb and available", true, false, ""},
		"reserved": {
			subject("u-u", policies(&v1alpha1.StatefulSetPolicy{Spec: v1alpha1.StatefulSetPolicySpec{
				Scaling: &v1alpha1.ScalingPolicy{ReservedOrdinals: []intstr.IntOrString{intstr.FromInt32(1)}},
			}}), func(s *rollout.Subject) { s.Set.Spec.Replicas = new(int32(2)) }),
			"web is rolled out: 2 pods are at web-2bbb and available", true, false, "",
		},
		"not seen": {
			subject("ooo", func(s *rollout.Subject) { s.Set.Generation = 3 }),
			"waiting for the controller to see web as it is now", false, false, "",
		},
		"being deleted": {
			subject("uuu", func(s *rollout.Subject) { s.Set.DeletionTimestamp = &metav1.Time{Time: now} }),
			"web is being deleted", true, true, "",
		},

		"deadline passed": {
			subject("oon", careful, condition(corev1.ConditionFalse, "ProgressDeadlineExceeded")),
			"the rollout of web made no progress for too long: so it is", true, true, "rollout retry sts/web",
		},
		"rolled back": {
			subject("ooo", careful, condition(corev1.ConditionFalse, "RolledBack")),
			"the rollout of web failed and was rolled back: so it is", true, true, "rollout retry sts/web",
		},
		"rolling back": {
			subject("oon", careful, condition(corev1.ConditionTrue, "RollingBack")),
			"the rollout of web failed and is being rolled back: so it is", false, false, "",
		},
		"complete by its condition": {
			subject("oou", condition(corev1.ConditionFalse, "Complete")),
			"rolling out web-2bbb: 1 of 3 pods updated, 1 available", false, false, "",
		},
		"retried since": {
			subject("oon", condition(corev1.ConditionFalse, "ProgressDeadlineExceeded"),
				policies(policy("careful", v1alpha1.RolloutPolicy{}, annotated(v1alpha1.RetryAtAnnotation, 0)))),
			"rolling out web-2bbb: 1 of 3 pods updated, 0 available", false, false, "",
		},
		"retried before": {
			subject("oon", condition(corev1.ConditionFalse, "ProgressDeadlineExceeded"),
				policies(policy("careful", v1alpha1.RolloutPolicy{}, annotated(v1alpha1.RetryAtAnnotation, time.Minute)))),
			"the rollout of web made no progress for too long: so it is", true, true, "rollout retry sts/web",
		},

		"on delete": {
			subject("xuo", onDelete),
			"web has the update strategy OnDelete, and pods web-0 and web-2 have an earlier template until somebody deletes them",
			true, true, "delete pod web-0 web-2",
		},
		"on delete, one left": {
			subject("uuo", onDelete),
			"web has the update strategy OnDelete, and pod web-2 has an earlier template until somebody deletes it",
			true, true, "delete pod web-2",
		},
		"on delete, on its way": {subject("un-", onDelete), "rolling out web-2bbb: 2 of 3 pods updated, 1 available", false, false, ""},
		"on delete, done":       {subject("uu", onDelete), "web is rolled out: 2 pods are at web-2bbb and available", true, false, ""},

		"paused": {
			subject("oou", policies(policy("careful", v1alpha1.RolloutPolicy{Paused: true}))),
			"the rollout of web is paused by its policy careful", true, true, "rollout resume sts/web",
		},
		"paused when all are taken": {
			subject("nuu", policies(policy("careful", v1alpha1.RolloutPolicy{Paused: true}))),
			"rolling out web-2bbb: 3 of 3 pods updated, 2 available", false, false, "",
		},
		"paused when done": {
			subject("uuu", policies(policy("careful", v1alpha1.RolloutPolicy{Paused: true}))),
			"web is rolled out: 3 pods are at web-2bbb and available", true, false, "",
		},
		"between batches": {
			subject("oou", policies(policy("careful", v1alpha1.RolloutPolicy{PauseAfter: &batch}, between))),
			"the rollout of web is paused after a batch by its policy careful", true, true, "rollout resume sts/web",
		},
		"between timed batches": {
			subject("oou", policies(policy("careful", v1alpha1.RolloutPolicy{PauseAfter: &timed}, between))),
			"rolling out web-2bbb: 1 of 3 pods updated, 1 available; paused between batches for a while", false, false, "",
		},
		"in a batch": {
			subject("oou", policies(policy("careful", v1alpha1.RolloutPolicy{PauseAfter: &batch}))),
			"rolling out web-2bbb: 1 of 3 pods updated, 1 available", false, false, "",
		},
		"resumed since": {subject("oou", policies(policy("careful", v1alpha1.RolloutPolicy{PauseAfter: &batch}, between,
			annotated(v1alpha1.ResumeAtAnnotation, time.Second)))), "rolling out web-2bbb: 1 of 3 pods updated, 1 available", false, false, ""},
		"resumed before": {
			subject("oou", policies(policy("careful", v1alpha1.RolloutPolicy{PauseAfter: &batch}, between,
				annotated(v1alpha1.ResumeAtAnnotation, time.Hour)))),
			"the rollout of web is paused after a batch by its policy careful", true, true, "rollout resume sts/web",
		},
		"two policies": {
			subject("oou", policies(policy("b", v1alpha1.RolloutPolicy{}), policy("a", v1alpha1.RolloutPolicy{}))),
			"web has several policies, so that none is obeyed: a and b", true, true, "",
		},
		"unreadable policy": {subject("oou", policies(policy("a", v1alpha1.RolloutPolicy{}, func(p *v1alpha1.StatefulSetPolicy) {
			p.Annotations[v1alpha1.RetryAtAnnotation] = "soon"
		}))), `the policy a of web cannot be read: annotation ordinal.dev/retry-at: "soon" is no time such as 2006-01-02T15:04:05Z`, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := tt.subject.Judge()
			if v.Text != tt.text || v.Over != tt.over || v.Failed != tt.failed || v.Command != tt.command {
				t.Errorf("got  %q, over %t, failed %t, %q\nwant %q, over %t, failed %t, %q",
					v.Text, v.Over, v.Failed, v.Command, tt.text, tt.over, tt.failed, tt.command)
			}
			if want := strings.HasPrefix(tt.command, "delete"); v.Kubectl != want {
				t.Errorf("the command is one of kubectl: %t, want %t", v.Kubectl, want)
			}
		})
	}
}

// A pod that has to be ready for a while is available without any change of an object.
func TestNextLook(t *testing.T) {
	s := subject("ouu", func(s *rollout.Subject) { s.Set.Spec.MinReadySeconds = 20 })
	s.Pods[1].Status.Conditions[0].LastTransitionTime = metav1.Time{Time: now.Add(-12 * time.Second)}
	if got, want := s.Judge().Next, now.Add(8*time.Second); !got.Equal(want) {
		t.Errorf("the next look is at %s, want %s", got, want)
	}
	if got := subject("oon").Judge().Next; !got.IsZero() {
		t.Errorf("the next look is at %s, want none", got)
	}
}

func TestHistory(t *testing.T) {
	s := subject("ouu-", policies(policy("p", v1alpha1.RolloutPolicy{}, func(p *v1alpha1.StatefulSetPolicy) {
		p.Status.FailedRevision = "web-0bad"
	})))
	owner := *metav1.NewControllerRef(s.Set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	var all []*appsv1.ControllerRevision
	for i, name := range []string{after, before, "web-0bad", "of-others"} {
		r := &appsv1.ControllerRevision{Revision: int64(3 - i), ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{owner},
			CreationTimestamp: metav1.Time{Time: now.Add(-time.Duration(i+1) * time.Hour)},
		}}
		if name == before {
			r.Annotations = map[string]string{"kubernetes.io/change-cause": "because"}
		}
		if name == "of-others" {
			r.OwnerReferences[0].UID = "other"
		}
		all = append(all, r)
	}
	var out bytes.Buffer
	if err := rollout.PrintHistory(&out, s.History(all)); err != nil {
		t.Fatal(err)
	}
	const want = `
REVISION   NAME       AGE    STATE     PODS   CHANGE-CAUSE
1          web-0bad   3h     failed    -      <none>
2          web-1aaa   120m   current   0      because
3          web-2bbb   60m    update    1-2    <none>
`
	if got := out.String(); got != want[1:] {
		t.Errorf("got\n%s\nwant\n%s", got, want[1:])
	}
}

// Which ordinals count is what the controller makes of the policies: of two, none says which are reserved.
func TestMeasureCountsAsThePlanner(t *testing.T) {
	reserving := policy("a", v1alpha1.RolloutPolicy{}, func(p *v1alpha1.StatefulSetPolicy) {
		p.Spec.Scaling = &v1alpha1.ScalingPolicy{ReservedOrdinals: []intstr.IntOrString{intstr.FromInt32(1)}}
	})
	one := subject("uuu", policies(reserving)).Measure(after)
	if one.Wanted != 3 || one.Available != 2 {
		t.Errorf("with ordinal 1 reserved, %d of %d count", one.Available, one.Wanted)
	}
	two := subject("uuu", policies(reserving, policy("b", v1alpha1.RolloutPolicy{}))).Measure(after)
	if two.Wanted != 3 || two.Available != 3 {
		t.Errorf("with two policies, %d of %d count", two.Available, two.Wanted)
	}
	huge := subject("uuu", partition(1), func(s *rollout.Subject) { s.Set.Spec.Replicas = new(int32(math.MaxInt32)) }).Measure(after)
	if huge.Wanted != math.MaxInt32-1 {
		t.Errorf("of a huge set %d count", huge.Wanted)
	}
}
