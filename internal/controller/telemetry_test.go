// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/apply"
	"github.com/ordinal-dev/ordinal/internal/events"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// spaced lets a moment pass between two events, so that not all pods of a Parallel set are made at once: client-go's fake holds
// no more than 100 changes that nobody has seen.
type spaced struct {
	apply.Recorder
	turn chan struct{}
}

func (s spaced) Event(o runtime.Object, kind, reason, message string) {
	s.turn <- struct{}{}
	<-time.After(time.Nanosecond)
	s.Recorder.Event(o, kind, reason, message)
	<-s.turn
}

// client-go by itself drops all but about 25 events of a set, and all that come while 1000 wait.
func TestNoEventIsLost(t *testing.T) {
	const pods = 200
	for _, policy := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				// Nor are all ready at once.
				c.readyAfter = func(pod *corev1.Pod) time.Duration {
					return time.Duration(pod.Name[len(pod.Name)-1]%4) * 100 * time.Millisecond
				}
				sink := fake.NewClientset()
				log := events.New(sink.CoreV1(), telemetry.Component)
				stop := writeEvents(t.Context(), log)
				c.recorder = spaced{log, make(chan struct{}, 1)}
				defer c.run(Options{})()
				c.create(setsResource, newSet(func(s *appsv1.StatefulSet) {
					s.Spec.Replicas, s.Spec.PodManagementPolicy = new(int32(pods)), policy
				}))
				pass(time.Minute)
				stop()

				list, err := sink.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				told := int32(0)
				for i := range list.Items {
					e := &list.Items[i]
					if e.Reason != telemetry.EventSuccessfulCreate || e.Source.Component != telemetry.Component {
						t.Errorf("an event is %s %s of %s", e.Reason, e.Message, e.Source.Component)
					}
					told += e.Count
				}
				// One for each pod and each claim.
				if told != 2*pods {
					t.Errorf("%d events are told by %d objects", told, len(list.Items))
				}
			})
		})
	}
}

// told gives all series with labels.
func told(t *testing.T, m *telemetry.Metrics) map[string]string {
	t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	telemetry.Handler(m, &telemetry.Health{}).ServeHTTP(recorder, request)
	values := map[string]string{}
	for line := range strings.Lines(recorder.Body.String()) {
		if metric, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok {
			values[metric+"}"] = value
		}
	}
	return values
}

// series gives all series of a set, without its labels.
func series(t *testing.T, m *telemetry.Metrics, set string) map[string]string {
	t.Helper()
	values := map[string]string{}
	labels := fmt.Sprintf("name=%q,namespace=%q", set, namespace)
	for metric, value := range told(t, m) {
		if strings.Contains(metric, labels) {
			values[strings.Replace(metric, labels, "", 1)] = value
		}
	}
	return values
}

// A set's series are those of its last sync, and go with it.
func TestSeriesOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m := telemetry.New()
		defer c.run(Options{Metrics: m})()
		c.readyAfter = func(pod *corev1.Pod) time.Duration {
			if pod.Name == "web-1" {
				return -1
			}
			return time.Second
		}
		c.create(setsResource, newSet())
		c.create(setsResource, newSet(func(s *appsv1.StatefulSet) { s.Name, s.Spec.Replicas = "db", new(int32(0)) }))
		settle()
		want := map[string]string{
			`ordinal_statefulset_pods{,state="wanted"}`:        "3",
			`ordinal_statefulset_pods{,state="created"}`:       "2",
			`ordinal_statefulset_pods{,state="ready"}`:         "1",
			`ordinal_statefulset_pods{,state="available"}`:     "1",
			`ordinal_statefulset_pods{,state="current"}`:       "2",
			`ordinal_statefulset_pods{,state="updated"}`:       "2",
			`ordinal_statefulset_max_unavailable{}`:            "1",
			`ordinal_statefulset_waits{,reason="Starting"}`:    "1",
			`ordinal_statefulset_degraded{,reason="NotReady"}`: "1",
			// Since the second pod was made, a second after the first.
			`ordinal_statefulset_progress_timestamp_seconds{,reason="Scaling"}`: "9.46684801e+08",
		}
		if got := series(t, m, "web"); !maps.Equal(got, want) {
			t.Errorf("the series are %v, want %v", got, want)
		}
		if err := c.tracker().Delete(setsResource, namespace, "web"); err != nil {
			t.Fatal(err)
		}
		settle()
		if left := series(t, m, "web"); len(left) != 0 {
			t.Errorf("of a set that is gone, %v is left", left)
		}
		want = map[string]string{`ordinal_statefulset_max_unavailable{}`: "1"}
		for _, state := range []string{"wanted", "created", "ready", "available", "current", "updated"} {
			want[fmt.Sprintf("ordinal_statefulset_pods{,state=%q}", state)] = "0"
		}
		if got := series(t, m, "db"); !maps.Equal(got, want) {
			t.Errorf("of a set at rest, the series are %v, want %v", got, want)
		}
	})
}

// A set whose syncs fail is named until one ends well.
func TestSeriesOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m := telemetry.New()
		var broken atomic.Bool
		broken.Store(true)
		c.refuse = func(a clienttesting.Action) error {
			if broken.Load() && a.Matches("create", "controllerrevisions") {
				return errors.New("broken")
			}
			return nil
		}
		defer c.run(Options{Metrics: m})()
		c.create(setsResource, newSet())
		settle()
		// 20 ms, 40 ms, … 20.48 s, 30 s, 30 s, 30 s.
		if got := series(t, m, "web")["ordinal_statefulset_sync_failures{}"]; got != "14" {
			t.Errorf("%q failures in a row are told", got)
		}
		broken.Store(false)
		settle()
		if got := series(t, m, "web")["ordinal_statefulset_sync_failures{}"]; got != "" {
			t.Errorf("after it was mended, %q failures are told", got)
		}
	})
}

func TestResultOf(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		ends []error
		want string
		err  error
	}{
		{[]error{nil, nil}, telemetry.SyncDone, nil},
		{[]error{errConflict, nil}, telemetry.SyncConflict, errConflict},
		{[]error{nil, errConflict}, telemetry.SyncConflict, errConflict},
		{[]error{broken, nil}, telemetry.SyncFailed, broken},
		{[]error{broken, errConflict}, telemetry.SyncFailed, broken},
		{[]error{errConflict, broken}, telemetry.SyncFailed, broken},
	} {
		result, err := resultOf(tt.ends...)
		if result != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%v end in %s, %v", tt.ends, result, err)
		}
	}
}

// A controller that waits for leadership is as ready as it can be.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		start := func() (*telemetry.Health, *telemetry.Metrics) {
			h, m := &telemetry.Health{}, telemetry.New()
			wg.Go(func() {
				err := lead(ctx, client, Options{Health: h, Metrics: m}.withDefaults(), func(ctx context.Context) error {
					if h.Ready() == nil {
						t.Error("the leader is ready before it works")
					}
					h.Working()
					<-ctx.Done()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			pass(time.Minute)
			return h, m
		}
		const leads = `leader_election_master_status{name="ordinal-controller"}`
		if leader, m := start(); leader.Ready() != nil || told(t, m)[leads] != "1" {
			t.Errorf("the leader is not ready, or says that it leads as %q", told(t, m)[leads])
		}
		if other, m := start(); other.Ready() != nil || told(t, m)[leads] != "0" {
			t.Errorf("the one that stands by is not ready, or says that it leads as %q", told(t, m)[leads])
		}
		stop()
		wg.Wait()
	})
}
