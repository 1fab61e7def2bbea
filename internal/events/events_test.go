// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// world is a log and an API server, inside a bubble of virtual time.
type world struct {
	*testing.T
	log    *Log
	client *fake.Clientset
	// fail, if set, decides over each write before it is made. With after it is made all the same.
	fail  func(clienttesting.Action) error
	after bool
	stop  func()
}

func inWorld(t *testing.T, do func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		w := &world{T: t, client: fake.NewClientset()}
		w.log = New(w.client.CoreV1(), "statefulset-controller")
		w.client.PrependReactor("*", "events", w.react)
		w.start()
		do(w)
		w.stop()
	})
}

func (w *world) start() {
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.log.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
}

func (w *world) react(action clienttesting.Action) (bool, runtime.Object, error) {
	if w.fail == nil {
		return false, nil, nil
	}
	err := w.fail(action)
	if err != nil && w.after {
		if create, ok := action.(clienttesting.CreateAction); ok {
			if err := w.client.Tracker().Create(action.GetResource(), create.GetObject(), action.GetNamespace()); err != nil {
				return true, nil, err
			}
		}
	}
	return err != nil, nil, err
}

// hold lets every write wait until it is released, so that what comes meanwhile waits.
func (w *world) hold() (release func()) {
	gate := make(chan struct{})
	w.fail = func(clienttesting.Action) error {
		<-gate
		return nil
	}
	return func() { close(gate) }
}

// events are those in the API, the oldest first, as text.
func (w *world) events() []string {
	w.Helper()
	list, err := w.client.CoreV1().Events("").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int {
		// The names end in the moments at which they were made.
		return strings.Compare(a.Name[strings.LastIndex(a.Name, "."):], b.Name[strings.LastIndex(b.Name, "."):])
	})
	var all []string
	for _, e := range list.Items {
		all = append(all, fmt.Sprintf("%s %s/%s %s: %s ×%d", e.Type, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message, e.Count))
	}
	return all
}

func (w *world) wantEvents(want ...string) {
	w.Helper()
	synctest.Wait()
	if got := w.events(); !slices.Equal(got, want) {
		w.Errorf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func set(name string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-" + "set", ResourceVersion: "7"}}
}

var (
	anEvent   = schema.GroupResource{Resource: "events"}
	errBroken = apierrors.NewInternalError(errors.New("broken"))
	errDown   = errors.New("connection refused")
)

func TestOneEvent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
		synctest.Wait()
		list, err := w.client.CoreV1().Events("shop").List(w.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			w.Fatalf("%d events, %v", len(list.Items), err)
		}
		e := list.Items[0]
		about := corev1.ObjectReference{
			Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "uid-of-set", APIVersion: "apps/v1", ResourceVersion: "7",
		}
		if e.InvolvedObject != about {
			w.Errorf("the event is about %v", e.InvolvedObject)
		}
		if e.Source.Component != "statefulset-controller" || e.ReportingController != "statefulset-controller" {
			w.Errorf("the event is from %q and %q", e.Source.Component, e.ReportingController)
		}
		if !e.FirstTimestamp.Time.Equal(time.Now()) || !e.LastTimestamp.Time.Equal(time.Now()) {
			w.Errorf("the event is from %s to %s", e.FirstTimestamp, e.LastTimestamp)
		}
	})
}

// client-go's recorder keeps a thousand that wait.
func TestNoneOfABurstIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		release := w.hold()
		var want []string
		for i := range 1500 {
			name := fmt.Sprintf("web-%d", i)
			w.log.Event(set(name), "Normal", "SuccessfulCreate", "create Pod")
			want = append(want, "Normal shop/"+name+" SuccessfulCreate: create Pod ×1")
		}
		release()
		w.wantEvents(want...)
		if len(w.log.waiting) != 0 || len(w.log.topics) != 0 || w.log.queue != nil {
			w.Errorf("%d notes on %d topics are kept", len(w.log.waiting), len(w.log.topics))
		}
	})
}

// Of those that come faster than they can be written, the first are told one by one and the others together.
func TestBurstOfOneSet(t *testing.T) {
	inWorld(t, func(w *world) {
		release := w.hold()
		want := []string{"Normal shop/db Other: holds up the log ×1"}
		w.log.Event(set("db"), "Normal", "Other", "holds up the log")
		synctest.Wait()
		for i := range 1000 {
			message := fmt.Sprintf("create Pod web-%d", i)
			w.log.Event(set("web"), "Normal", "SuccessfulCreate", message)
			if i < most {
				want = append(want, "Normal shop/web SuccessfulCreate: "+message+" ×1")
			}
		}
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-3")
		w.log.Event(set("web"), "Warning", "FailedCreate", "quota")
		want[4] = "Normal shop/web SuccessfulCreate: create Pod web-3 ×2"
		want = append(want, "Normal shop/web SuccessfulCreate: (combined from similar events): create Pod web-999 ×900",
			"Warning shop/web FailedCreate: quota ×1")
		release()
		w.wantEvents(want...)
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-1000")
		w.wantEvents(append(want, "Normal shop/web SuccessfulCreate: create Pod web-1000 ×1")...)
	})
}

// In a crowd, alike ones are combined from the second on. No first one of anything is.
func TestCrowd(t *testing.T) {
	inWorld(t, func(w *world) {
		release := w.hold()
		w.log.Event(set("db"), "Normal", "Other", "holds up the log")
		synctest.Wait()
		for i := range crowd {
			w.log.Event(set(fmt.Sprint("set", i)), "Normal", "SuccessfulCreate", "create Pod")
		}
		w.log.Event(set("set0"), "Normal", "SuccessfulCreate", "create Claim")
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
		for i := range 3 {
			w.log.Event(set("web"), "Normal", "SuccessfulCreate", fmt.Sprint("create Pod web-", i))
		}
		release()
		synctest.Wait()
		got := w.events()
		want := []string{
			"Normal shop/set0 SuccessfulCreate: (combined from similar events): create Claim ×1",
			"Normal shop/web SuccessfulCreate: create Pod web-0 ×2",
			"Normal shop/web SuccessfulCreate: (combined from similar events): create Pod web-2 ×2",
		}
		if len(got) != 1+crowd+3 || !slices.Equal(got[1+crowd:], want) {
			w.Errorf("%d events, and the last are %q, want %q", len(got), got[len(got)-3:], want)
		}
	})
}

func TestSameEventCountsUp(t *testing.T) {
	inWorld(t, func(w *world) {
		release := w.hold()
		w.log.Event(set("db"), "Normal", "Other", "holds up the log")
		synctest.Wait()
		for range 3 {
			w.log.Event(set("web"), "Warning", "FailedCreate", "quota")
		}
		release()
		w.wantEvents("Normal shop/db Other: holds up the log ×1", "Warning shop/web FailedCreate: quota ×3")
		first := time.Now()
		<-time.After(time.Minute)
		newer := set("web")
		newer.ResourceVersion = "8"
		w.log.Event(newer, "Warning", "FailedCreate", "quota")
		w.wantEvents("Normal shop/db Other: holds up the log ×1", "Warning shop/web FailedCreate: quota ×4")
		list, _ := w.client.CoreV1().Events("shop").List(w.Context(), metav1.ListOptions{})
		for _, e := range list.Items {
			if e.Reason == "FailedCreate" && (!e.FirstTimestamp.Time.Equal(first) || !e.LastTimestamp.Time.Equal(time.Now())) {
				w.Errorf("the event is from %s to %s", e.FirstTimestamp, e.LastTimestamp)
			}
		}
		w.log.Event(set("web"), "Normal", "FailedCreate", "quota")
		w.log.Event(set("db"), "Warning", "FailedCreate", "quota")
		synctest.Wait()
		if got := len(w.events()); got != 4 {
			w.Errorf("%d events of another type and about another set", got-2)
		}
	})
}

// Events live for an hour.
func TestExpiredEventIsToldAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		w.log.Event(set("web"), "Warning", "FailedCreate", "quota")
		synctest.Wait()
		list, _ := w.client.CoreV1().Events("shop").List(w.Context(), metav1.ListOptions{})
		if err := w.client.CoreV1().Events("shop").Delete(w.Context(), list.Items[0].Name, metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
		w.log.Event(set("web"), "Warning", "FailedCreate", "quota")
		w.wantEvents("Warning shop/web FailedCreate: quota ×1")
		w.log.Event(set("web"), "Warning", "FailedCreate", "quota")
		w.wantEvents("Warning shop/web FailedCreate: quota ×2")
	})
}

func TestOutage(t *testing.T) {
	for name, err := range map[string]error{
		"nobody answers": errDown,
		"too many":       apierrors.NewTooManyRequestsError("later"),
		"unavailable":    apierrors.NewServiceUnavailable("starting"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var down atomic.Bool
				down.Store(true)
				w.fail = func(clienttesting.Action) error {
					if down.Load() {
						return err
					}
					return nil
				}
				w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
				w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-1")
				<-time.After(time.Hour)
				w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
				down.Store(false)
				<-time.After(lastPause)
				synctest.Wait()
				got := w.events()
				slices.Sort(got)
				want := []string{
					"Normal shop/web SuccessfulCreate: create Pod web-0 ×2",
					"Normal shop/web SuccessfulCreate: create Pod web-1 ×1",
				}
				if !slices.Equal(got, want) {
					w.Errorf("the events are %q, want %q", got, want)
				}
			})
		})
	}
}

// What was written although no answer came is not written twice.
func TestLostAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		var lost atomic.Bool
		lost.Store(true)
		w.after = true
		w.fail = func(clienttesting.Action) error {
			if lost.Load() {
				return errDown
			}
			return nil
		}
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
		synctest.Wait()
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
		lost.Store(false)
		<-time.After(time.Second)
		w.wantEvents("Normal shop/web SuccessfulCreate: create Pod web-0 ×2")
	})
}

// Nor is it when the same event came again before it was known that no answer comes, or is told with others like it.
func TestLostAnswerAmongOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		answer := make(chan error)
		w.after = true
		w.fail = func(clienttesting.Action) error { return <-answer }
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
		synctest.Wait()
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
		answer <- errDown
		<-time.After(firstPause)
		synctest.Wait()
		close(answer)
		w.wantEvents("Normal shop/web SuccessfulCreate: create Pod web-0 ×2")
	})
	inWorld(t, func(w *world) {
		answer := make(chan error)
		w.after = true
		w.fail = func(clienttesting.Action) error { return <-answer }
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
		synctest.Wait()
		want := make([]string, 0, most+1)
		for i := range most {
			message := fmt.Sprint("create Pod web-", i+1)
			w.log.Event(set("web"), "Normal", "SuccessfulCreate", message)
			want = append(want, "Normal shop/web SuccessfulCreate: "+message+" ×1")
		}
		answer <- errDown
		close(answer)
		<-time.After(firstPause)
		w.wantEvents(append([]string{"Normal shop/web SuccessfulCreate: create Pod web-0 ×1"}, want...)...)
	})
}

func TestRefusedEventHoldsUpNoOther(t *testing.T) {
	terminating := apierrors.NewForbidden(anEvent, "x", errors.New("ending"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tt := range map[string]struct {
		err   error
		tries int32
	}{
		"forbidden":            {apierrors.NewForbidden(anEvent, "x", errors.New("no")), 1},
		"no namespace":         {apierrors.NewNotFound(anEvent, "shop"), 1},
		"namespace ends":       {terminating, 1},
		"invalid":              {apierrors.NewBadRequest("no"), 1},
		"server fails over it": {errBroken, patience},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var tries atomic.Int32
				w.fail = func(a clienttesting.Action) error {
					if create, ok := a.(clienttesting.CreateAction); ok && create.GetObject().(*corev1.Event).InvolvedObject.Name == "bad" {
						tries.Add(1)
						return tt.err
					}
					return nil
				}
				w.log.Event(set("bad"), "Normal", "SuccessfulCreate", "create Pod bad-0")
				w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
				<-time.After(firstPause)
				w.wantEvents("Normal shop/web SuccessfulCreate: create Pod web-0 ×1")
				<-time.After(time.Hour)
				if n := tries.Load(); n != tt.tries {
					w.Errorf("tried %d times, want %d", n, tt.tries)
				}
			})
		})
	}
}

func TestStopWritesWhatWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		release := w.hold()
		for i := range 3 {
			w.log.Event(set("web"), "Normal", "SuccessfulCreate", fmt.Sprintf("create Pod web-%d", i))
		}
		synctest.Wait()
		time.AfterFunc(time.Second, release)
		w.stop()
		w.wantEvents("Normal shop/web SuccessfulCreate: create Pod web-0 ×1",
			"Normal shop/web SuccessfulCreate: create Pod web-1 ×1",
			"Normal shop/web SuccessfulCreate: create Pod web-2 ×1")
		w.fail = nil
		w.start()
	})
}

// There is no time to write thousands, so they are told together.
func TestStopAfterABurst(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		for i := range 1000 {
			w.log.Event(set("web"), "Normal", "SuccessfulCreate", fmt.Sprintf("create Pod web-%d", i))
			w.log.Event(set("db"), "Warning", "FailedCreate", "quota")
		}
		ended, end := context.WithCancel(w.Context())
		end()
		w.log.Run(ended)
		want := []string{"Normal shop/web SuccessfulCreate: create Pod web-0 ×1", "Warning shop/db FailedCreate: quota ×1000"}
		for i := 1; i < few; i++ {
			want = append(want, fmt.Sprintf("Normal shop/web SuccessfulCreate: create Pod web-%d ×1", i))
		}
		w.wantEvents(append(want, "Normal shop/web SuccessfulCreate: (combined from similar events): create Pod web-999 ×990")...)
		w.start()
	})
}

func TestStopWhileNobodyAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fail = func(clienttesting.Action) error { return errDown }
		w.log.Event(set("web"), "Normal", "SuccessfulCreate", "create Pod web-0")
		synctest.Wait()
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > flushTime {
			w.Errorf("the stop took %s", took)
		}
		if w.log.left() != 1 {
			w.Errorf("%d events are left", w.log.left())
		}
		w.start()
	})
}

// The name of a set may leave no room for the name of an event.
func TestLongName(t *testing.T) {
	inWorld(t, func(w *world) {
		w.log.Event(set(strings.Repeat("x", 250)), "Normal", "SuccessfulCreate", "create Pod")
		synctest.Wait()
		list, _ := w.client.CoreV1().Events("shop").List(w.Context(), metav1.ListOptions{})
		if len(list.Items) != 1 || len(list.Items[0].Name) > 253 {
			w.Errorf("the events are %v", list.Items)
		}
	})
}
