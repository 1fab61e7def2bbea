// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// The texts of kube-controller-manager, as tools know them.
func TestForOutcome(t *testing.T) {
	pod := plan.Ref{Kind: plan.KindPod, Name: "web-0"}
	claim := plan.Ref{Kind: plan.KindClaim, Name: "data-web-0"}
	revision := plan.Ref{Kind: plan.KindRevision, Name: "web-r"}
	named := metav1.ObjectMeta{Name: "web-0"}
	create := plan.CreatePod{Pod: &corev1.Pod{ObjectMeta: named}}
	createClaim := plan.CreateClaim{Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-web-0"}}, Pod: "web-0"}
	tests := []struct {
		action plan.Action
		result plan.Result
		want   string
	}{
		{create, plan.ResultDone, "Normal SuccessfulCreate Create Pod web-0 in StatefulSet web successful"},
		{create, plan.ResultFailed, "Warning FailedCreate Create Pod web-0 in StatefulSet web failed error: no"},
		{create, plan.ResultConflict, ""},
		{createClaim, plan.ResultDone, "Normal SuccessfulCreate Create Claim data-web-0 Pod web-0 in StatefulSet web success"},
		{createClaim, plan.ResultFailed, "Warning FailedCreate Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: no"},
		{plan.LabelPod{Pod: pod}, plan.ResultDone, "Normal SuccessfulUpdate Update Pod web-0 in StatefulSet web successful"},
		{plan.LabelPod{Pod: pod}, plan.ResultFailed, "Warning FailedUpdate Update Pod web-0 in StatefulSet web failed error: no"},
		{plan.DeletePod{Pod: pod}, plan.ResultDone, "Normal SuccessfulDelete Delete Pod web-0 in StatefulSet web successful"},
		{plan.DeletePod{Pod: pod}, plan.ResultGone, "Normal SuccessfulDelete Delete Pod web-0 in StatefulSet web successful"},
		{plan.DeletePod{Pod: pod}, plan.ResultFailed, "Warning FailedDelete Delete Pod web-0 in StatefulSet web failed error: no"},
		{plan.OwnClaim{Claim: claim, Pod: "web-0"}, plan.ResultDone, ""},
		{
			plan.OwnClaim{Claim: claim, Pod: "web-0"},
			plan.ResultFailed,
			"Warning FailedUpdate Update Claim data-web-0 for Pod web-0 in StatefulSet web failed error: no",
		},
		{plan.AdoptPod{Pod: pod}, plan.ResultDone, ""},
		{plan.AdoptPod{Pod: pod}, plan.ResultFailed, "Warning FailedAdopt Adopt Pod web-0 in StatefulSet web failed error: no"},
		{plan.ReleasePod{Pod: pod}, plan.ResultFailed, "Warning FailedRelease Release Pod web-0 in StatefulSet web failed error: no"},
		{plan.CreateRevision{Revision: &appsv1.ControllerRevision{}}, plan.ResultDone, ""},
		{plan.CreateRevision{Revision: &appsv1.ControllerRevision{}}, plan.ResultCollision, ""},
		{
			plan.BumpRevision{Revision: revision},
			plan.ResultFailed,
			"Warning FailedUpdate Update ControllerRevision web-r in StatefulSet web failed error: no",
		},
		{
			plan.DeleteRevision{Revision: revision},
			plan.ResultFailed,
			"Warning FailedDelete Delete ControllerRevision web-r in StatefulSet web failed error: no",
		},
		{
			plan.AdoptRevision{Revision: revision},
			plan.ResultFailed,
			"Warning FailedAdopt Adopt ControllerRevision web-r in StatefulSet web failed error: no",
		},
	}
	for _, test := range tests {
		e, ok := ForOutcome("web", plan.Outcome{Action: test.action, Result: test.result, Err: errors.New("no")})
		if got := strings.TrimSpace(e.Type + " " + e.Reason + " " + e.Message); got != test.want || ok != (test.want != "") {
			t.Errorf("%T %s: event is %q, want %q", test.action, test.result, got, test.want)
		}
	}
}

func TestForWait(t *testing.T) {
	tests := map[plan.Reason]string{
		plan.WaitClaimTerminating: "FailedCreate",
		plan.WaitClaimStale:       "FailedCreate",
		plan.WaitNameTaken:        "FailedCreate",
		plan.WaitBadRevision:      "FailedCreate",
		plan.WaitClaimConflict:    "ConflictingController",
		plan.WaitRecreateDisabled: "UnknownStrategy",
		plan.WaitBadSelector:      "InvalidSpec",
		plan.WaitBadTemplate:      "InvalidSpec",
		plan.WaitStarting:         "",
		plan.WaitBudget:           "",
	}
	for reason, want := range tests {
		e, ok := ForWait("default", "web", plan.Wait{Reason: reason, On: plan.Ref{Name: "data-web-0"}, For: "web-0"})
		if ok != (want != "") || e.Reason != want {
			t.Errorf("%s is told as %+v, want %q", reason, e, want)
		}
		if want == "FailedCreate" && !strings.HasPrefix(e.Message, "Create Pod web-0 in StatefulSet web failed error: ") {
			t.Errorf("%s is told as %q", reason, e.Message)
		}
	}
}

func TestMetricsGoWithTheirSet(t *testing.T) {
	m := New()
	m.Observed(Key{"default", "web"}, Pods{Wanted: 3}, 1)
	m.Observed(Key{"default", "db"}, Pods{Wanted: 1}, 1)
	m.Synced(SyncDone, time.Second)
	m.Acted("CreatePod", "NoPod", "Done")
	m.Forget(Key{"default", "web"})
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	want := map[string]int{
		"ordinal_statefulset_pods":            6,
		"ordinal_statefulset_max_unavailable": 1,
		"ordinal_actions_total":               1,
		"ordinal_sync_duration_seconds":       3,
	}
	for name, n := range want {
		if series[name] != n {
			t.Errorf("%s has %d series, want %d", name, series[name], n)
		}
	}
}

// The queue counts into these metrics.
func TestQueueMetrics(t *testing.T) {
	m := New()
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "statefulset", MetricsProvider: m.Queue})
	defer queue.ShutDown()
	queue.Add("a")
	queue.Add("b")
	key, _ := queue.Get()
	queue.Done(key)
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		value := f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		switch f.GetName() {
		case "workqueue_adds_total":
			if value != 2 {
				t.Errorf("%v adds are counted", value)
			}
		case "workqueue_depth":
			if value != 1 {
				t.Errorf("the depth is %v", value)
			}
		}
	}
}
