// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/status"
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
		{plan.DeletePod{Pod: pod, Evict: true}, plan.ResultDone, "Normal SuccessfulDelete Delete Pod web-0 in StatefulSet web successful"},
		{plan.DeletePod{Pod: pod, Evict: true}, plan.ResultBlocked, ""},
		{plan.TellPod{Pod: pod, Stop: "Update"}, plan.ResultDone, ""},
		{plan.TellPod{Pod: pod}, plan.ResultFailed, "Warning FailedUpdate Update Pod web-0 in StatefulSet web failed error: no"},
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
		plan.WaitClaimShared:      "FailedCreate",
		plan.WaitBadName:          "FailedCreate",
		plan.WaitPolicyConflict:   "PolicyConflict",
		plan.WaitDeadline:         "RolloutFailed",
		plan.WaitRolledBack:       "RolloutFailed",
		plan.WaitDisruption:       "EvictionBlocked",
		plan.WaitPaused:           "",
		plan.WaitClaimConflict:    "ConflictingController",
		plan.WaitRecreateDisabled: "UnknownStrategy",
		plan.WaitBadSelector:      "InvalidSpec",
		plan.WaitBadTemplate:      "InvalidSpec",
		plan.WaitStarting:         "",
		plan.WaitBudget:           "",
	}
	for reason, want := range tests {
		e, ok := ForWait("default", "web", plan.Wait{Reason: reason, On: plan.Ref{Name: "data-web-0"}, For: "web-0", Detail: "it"})
		if ok != (want != "") || e.Reason != want {
			t.Errorf("%s is told as %+v, want %q", reason, e, want)
		}
		if want == "FailedCreate" && !strings.HasPrefix(e.Message, "Create Pod web-0 in StatefulSet web failed error: ") {
			t.Errorf("%s is told as %q", reason, e.Message)
		}
		wantType := corev1.EventTypeWarning
		if want == "EvictionBlocked" {
			wantType = corev1.EventTypeNormal
		}
		if ok && e.Type != wantType {
			t.Errorf("%s is told as a %s, want a %s", reason, e.Type, wantType)
		}
	}
}

// What a wait says of itself is told.
func TestForWaitTells(t *testing.T) {
	claim := plan.Ref{Kind: plan.KindClaim, Name: "data-a-b-0"}
	for _, test := range []struct {
		wait plan.Wait
		want string
	}{
		{
			plan.Wait{Reason: plan.WaitClaimShared, On: claim, For: "b-0", Detail: "StatefulSet a-b"},
			"Create Pod b-0 in StatefulSet b failed error: pvc data-a-b-0 belongs to StatefulSet a-b, whose claims have the same names",
		},
		{
			plan.Wait{Reason: plan.WaitBadName, For: "b-0", Detail: "it is too long"},
			"Create Pod b-0 in StatefulSet b failed error: it is too long",
		},
		{
			plan.Wait{Reason: plan.WaitPolicyConflict},
			"its policies contradict each other or cannot be read: no pod is replaced or scaled down",
		},
		{
			plan.Wait{Reason: plan.WaitPolicyConflict, For: "b-3"},
			"its policies contradict each other or cannot be read: Pod b-3 is not created",
		},
	} {
		if e, ok := ForWait("default", "b", test.wait); !ok || e.Message != test.want {
			t.Errorf("%s is told as %q, want %q", test.wait.Reason, e.Message, test.want)
		}
	}
}

// What is wrong is told when it begins or becomes another thing, unless it is told anyway.
func TestForDegraded(t *testing.T) {
	degraded := func(is corev1.ConditionStatus, reason, message string) []appsv1.StatefulSetCondition {
		return []appsv1.StatefulSetCondition{
			{Type: status.Available, Status: corev1.ConditionTrue, Reason: "x"},
			{Type: status.Degraded, Status: is, Reason: reason, Message: message},
		}
	}
	well := degraded(corev1.ConditionFalse, status.ReasonAsExpected, "")
	crash := degraded(corev1.ConditionTrue, "CrashLoop", "pod web-0")
	waits := []plan.Wait{{Reason: plan.WaitNameTaken, For: "web-1"}, {Reason: plan.WaitBackoff, For: "web-0"}}
	for what, test := range map[string]struct {
		before, after []appsv1.StatefulSetCondition
		want          string
	}{
		"it begins":            {nil, crash, "Warning CrashLoop pod web-0"},
		"it begins again":      {well, crash, "Warning CrashLoop pod web-0"},
		"it goes on":           {crash, crash, ""},
		"it ends":              {crash, well, ""},
		"another pod":          {crash, degraded(corev1.ConditionTrue, "CrashLoop", "pod web-1"), "Warning CrashLoop pod web-1"},
		"another reason":       {crash, degraded(corev1.ConditionTrue, "Failed", "pod web-0"), "Warning Failed pod web-0"},
		"told by an outcome":   {well, degraded(corev1.ConditionTrue, status.ReasonFailedCreate, "quota"), ""},
		"told by a wait":       {well, degraded(corev1.ConditionTrue, "NameTaken", "pod web-1"), ""},
		"a wait that is quiet": {well, degraded(corev1.ConditionTrue, "Backoff", "pod web-0"), "Warning Backoff pod web-0"},
		"nothing is known":     {nil, nil, ""},
	} {
		set := &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{Conditions: test.before}}
		e, ok := ForDegraded(set, test.after, waits)
		if got := strings.TrimSpace(e.Type + " " + e.Reason + " " + e.Message); got != test.want || ok != (test.want != "") {
			t.Errorf("%s: event is %q, want %q", what, got, test.want)
		}
	}
}

// sample gives every series, such as `ordinal_actions_total{action="CreatePod",…}`, with its value.
func sample(t *testing.T, m *Metrics) map[string]string {
	t.Helper()
	recorder := httptest.NewRecorder()
	Handler(m, &Health{}).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if recorder.Code != http.StatusOK {
		t.Fatalf("/metrics answers %d: %s", recorder.Code, recorder.Body)
	}
	series := map[string]string{}
	for line := range strings.Lines(recorder.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && !strings.HasPrefix(line, "#") {
			series[name+"}"] = value
		}
	}
	return series
}

func TestMetricsOfSets(t *testing.T) {
	m := New()
	m.Observed(Key{"default", "web"}, Set{
		Pods:           Pods{Wanted: 6, Created: 5, Ready: 4, Available: 3, Current: 2, Updated: 1},
		MaxUnavailable: 7,
		Waits:          map[string]int{"Budget": 1, "NotReady": 2},
		Degraded:       "CrashLoop",
		Progress:       Progress{Reason: "Updating", At: time.Unix(1000, 0)},
	})
	m.Observed(Key{"default", "db"}, Set{Waits: map[string]int{"NotReady": 1}})
	// What is no longer waited for is no longer told.
	m.Observed(Key{"default", "db"}, Set{Waits: map[string]int{"Starting": 1}})
	all := sample(t, m)
	for series, want := range map[string]string{
		`ordinal_statefulset_pods{name="web",namespace="default",state="wanted"}`:     "6",
		`ordinal_statefulset_pods{name="web",namespace="default",state="created"}`:    "5",
		`ordinal_statefulset_pods{name="web",namespace="default",state="ready"}`:      "4",
		`ordinal_statefulset_pods{name="web",namespace="default",state="available"}`:  "3",
		`ordinal_statefulset_pods{name="web",namespace="default",state="current"}`:    "2",
		`ordinal_statefulset_pods{name="web",namespace="default",state="updated"}`:    "1",
		`ordinal_statefulset_max_unavailable{name="web",namespace="default"}`:         "7",
		`ordinal_statefulset_waits{name="web",namespace="default",reason="Budget"}`:   "1",
		`ordinal_statefulset_waits{name="web",namespace="default",reason="NotReady"}`: "2",
		`ordinal_statefulset_waits{name="db",namespace="default",reason="Starting"}`:  "1",
		`ordinal_statefulset_waits{name="db",namespace="default",reason="NotReady"}`:  "",
		`ordinal_sync_duration_seconds_count{result="stale"}`:                         "0",
		`ordinal_sync_duration_seconds_count{result="conflict"}`:                      "0",
		`ordinal_statefulset_pods{name="db",namespace="default",state="wanted"}`:      "0",

		`ordinal_statefulset_degraded{name="web",namespace="default",reason="CrashLoop"}`:                  "1",
		`ordinal_statefulset_degraded{name="db",namespace="default",reason=""}`:                            "",
		`ordinal_statefulset_progress_timestamp_seconds{name="web",namespace="default",reason="Updating"}`: "1000",
		`ordinal_statefulset_progress_timestamp_seconds{name="db",namespace="default",reason=""}`:          "",
	} {
		if all[series] != want {
			t.Errorf("%s is %q, want %q", series, all[series], want)
		}
	}
	m.Forget(Key{"default", "web"})
	for series := range sample(t, m) {
		if strings.Contains(series, `name="web"`) {
			t.Errorf("%s outlives its set", series)
		}
	}
}

func TestCounts(t *testing.T) {
	m := New()
	m.Synced(Key{"default", "web"}, SyncDone, 3*time.Millisecond)
	m.Synced(Key{"default", "web"}, SyncStale, 0)
	m.Acted("CreatePod", "NoPod", "Done")
	m.Acted("CreatePod", "NoPod", "Done")
	m.Acted("CreatePod", "NoPod", "Failed")
	all := sample(t, m)
	for series, want := range map[string]string{
		`ordinal_sync_duration_seconds_count{result="done"}`:                       "1",
		`ordinal_sync_duration_seconds_sum{result="done"}`:                         "0.003",
		`ordinal_sync_duration_seconds_bucket{result="done",le="0.002"}`:           "0",
		`ordinal_sync_duration_seconds_bucket{result="done",le="0.008"}`:           "1",
		`ordinal_sync_duration_seconds_count{result="stale"}`:                      "1",
		`ordinal_actions_total{action="CreatePod",reason="NoPod",result="Done"}`:   "2",
		`ordinal_actions_total{action="CreatePod",reason="NoPod",result="Failed"}`: "1",
	} {
		if all[series] != want {
			t.Errorf("%s is %q, want %q", series, all[series], want)
		}
	}
}

// A set has a count of failures from the first one on until a sync is done, or it is gone.
func TestFailuresInARow(t *testing.T) {
	web, db := Key{"default", "web"}, Key{"default", "db"}
	m := New()
	for _, step := range []struct {
		do      func()
		web, db string
	}{
		{func() { m.Synced(web, SyncDone, 0) }, "", ""},
		{func() { m.Synced(web, SyncFailed, 0) }, "1", ""},
		{func() { m.Synced(db, SyncFailed, 0) }, "1", "1"},
		{func() { m.Synced(web, SyncConflict, 0) }, "1", "1"},
		{func() { m.Synced(web, SyncStale, 0) }, "1", "1"},
		{func() { m.Synced(web, SyncFailed, 0) }, "2", "1"},
		{func() { m.Forget(db) }, "2", ""},
		{func() { m.Synced(web, SyncDone, 0) }, "", ""},
	} {
		step.do()
		all := sample(t, m)
		for name, want := range map[string]string{"web": step.web, "db": step.db} {
			if got := all[fmt.Sprintf("ordinal_statefulset_sync_failures{name=%q,namespace=\"default\"}", name)]; got != want {
				t.Errorf("%s has %q failures in a row, want %q", name, got, want)
			}
		}
	}
}

func TestLeads(t *testing.T) {
	m := New()
	for _, leads := range []bool{false, true, false} {
		m.Leads(leads)
		want := map[bool]string{false: "0", true: "1"}[leads]
		if got := sample(t, m)[`leader_election_master_status{name="ordinal-controller"}`]; got != want {
			t.Errorf("a controller that leads: %v, is told as %q", leads, got)
		}
	}
}

// roundTripper is a function that carries out requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip carries out a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Each request counts, also one without an answer, and its answer is left as it is.
func TestRequestsAreCounted(t *testing.T) {
	m := New()
	broken := errors.New("broken")
	client := m.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		switch r.URL.Path {
		case "/gone":
			return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
		case "/broken":
			return nil, broken
		default:
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}
	}))
	for _, tt := range []struct {
		method, path string
		status       int
		err          error
	}{
		{http.MethodGet, "/", http.StatusOK, nil},
		{http.MethodGet, "/", http.StatusOK, nil},
		{http.MethodGet, "/gone", http.StatusNotFound, nil},
		{http.MethodPatch, "/broken", 0, broken},
	} {
		answer, err := client.RoundTrip(httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, http.NoBody))
		if !errors.Is(err, tt.err) || (err == nil && answer.StatusCode != tt.status) {
			t.Errorf("%s %s ends with %+v, %v", tt.method, tt.path, answer, err)
		}
		if err == nil {
			answer.Body.Close()
		}
	}
	all := sample(t, m)
	for series, want := range map[string]string{
		`rest_client_requests_total{code="200",method="GET"}`:       "2",
		`rest_client_requests_total{code="404",method="GET"}`:       "1",
		`rest_client_requests_total{code="<error>",method="PATCH"}`: "1",
		`rest_client_request_duration_seconds_count{verb="GET"}`:    "3",
		`rest_client_request_duration_seconds_count{verb="PATCH"}`:  "1",
	} {
		if all[series] != want {
			t.Errorf("%s is %q, want %q", series, all[series], want)
		}
	}
}

// The example leaves out no metric.
func TestExampleIsWhole(t *testing.T) {
	m := Example()
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, f := range families {
		shown[f.GetName()] = true
	}
	// A description gives its name in no other way.
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		m.Registry().Describe(descs)
	}()
	for d := range descs {
		if found := name.FindStringSubmatch(d.String()); len(found) < 2 || !shown[found[1]] {
			t.Errorf("the example has no series of %s", d)
		}
	}
}

// https://prometheus.io/docs/practices/naming/
func TestMetricsAreNamedWell(t *testing.T) {
	families, err := Example().Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// What is not ours alone has the name that it has in all of Kubernetes.
	name := regexp.MustCompile(`^(ordinal|workqueue|rest_client|leader_election)_`)
	for _, f := range families {
		if !name.MatchString(f.GetName()) {
			t.Errorf("%s has a prefix of its own", f.GetName())
		}
	}
}

// docs/metrics.md has one row for each metric, with its type and labels.
func TestMetricsAreDocumented(t *testing.T) {
	families, err := Example().Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		cells := []string{"\n|", fmt.Sprintf("%#q", f.GetName()), "|", strings.ToLower(f.GetType().String()), "|"}
		if len(labels) > 0 {
			cells = append(cells, strings.Join(labels, ", "))
		}
		row := strings.Join(append(cells, "| "), " ")
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/metrics.md has no row that begins with %q", strings.TrimSpace(row))
		}
	}
	rows := strings.Count(string(page), "\n| `")
	if rows != len(families) {
		t.Errorf("docs/metrics.md has %d rows for %d metrics", rows, len(families))
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
