// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

const podDelay = 3 * time.Second

// world plays stages for one pod, as the API server would store what they write.
type world struct {
	*testing.T
	stages   lifecycle.Lifecycle
	renderer gotpl.Renderer
	pod      *corev1.Pod
	events   []string
	isGone   bool
}

func newWorld(t *testing.T, annotations map[string]string) *world {
	t.Helper()
	ways, err := lifecycle.NewLifecycle(stages(podDelay))
	if err != nil {
		t.Fatal(err)
	}
	addresses := newAddresses(netip.MustParsePrefix(podNetwork))
	return &world{
		T: t, stages: ways,
		renderer: gotpl.NewRenderer(gotpl.FuncMap{"PodIP": func(pod string) string { return addresses.of(types.UID(pod)).String() }}),
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "u-1", Generation: 1, Annotations: annotations},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{
					{Name: "prepare", Image: "p:1"},
					{Name: "beside", Image: "b:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
				},
				Containers: []corev1.Container{{Name: "main", Image: "m:1"}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		},
	}
}

// next plays the pod's next stage and gives its name and delay. The name is empty when the pod stays as it is.
func (w *world) next() (string, time.Duration) {
	w.Helper()
	event := &lifecycle.Event{Annotations: w.pod.Annotations, Data: w.pod}
	all, err := w.stages.ListAllPossible(w.Context(), event)
	if err != nil {
		w.Fatal(err)
	}
	if len(all) > 1 {
		w.Fatalf("%s and %s are both next", all[0].Name(), all[1].Name())
	}
	if len(all) == 0 {
		return "", 0
	}
	delay, _, err := all[0].Delay(w.Context(), event, time.Now())
	if err != nil {
		w.Fatal(err)
	}
	if _, err := all[0].DoSteps(0, nil, w.pod, w.renderer, w.event, w.delete, w.patch, nil); err != nil {
		w.Fatal(err)
	}
	return all[0].Name(), delay
}

func (w *world) event(e *internalversion.StageEvent) error {
	w.events = append(w.events, e.Reason)
	return nil
}

func (w *world) delete() error {
	w.isGone = true
	return nil
}

func (w *world) patch(p *lifecycle.Patch) error {
	before, err := json.Marshal(w.pod)
	if err != nil {
		return err
	}
	after, err := strategicpatch.StrategicMergePatch(before, p.Data, corev1.Pod{})
	if err != nil {
		return err
	}
	w.pod = &corev1.Pod{}
	return json.Unmarshal(after, w.pod)
}

func (w *world) wantNext(name string, delay time.Duration) {
	w.Helper()
	if got, after := w.next(); got != name || after != delay {
		w.Fatalf("next is %q after %s, want %q after %s", got, after, name, delay)
	}
}

// wantRest says that nothing more happens to the pod, and in which state that is.
func (w *world) wantRest(phase corev1.PodPhase, ready corev1.ConditionStatus) {
	w.Helper()
	w.wantNext("", 0)
	got := corev1.ConditionStatus("unknown")
	for _, c := range w.pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			got = c.Status
		}
	}
	if w.pod.Status.Phase != phase || got != ready {
		w.Errorf("pod is %s and its readiness %s, want %s and %s", w.pod.Status.Phase, got, phase, ready)
	}
}

func TestPodBecomesReadyAndGoesWhenAsked(t *testing.T) {
	w := newWorld(t, nil)
	w.wantNext("ready", podDelay)
	w.wantRest(corev1.PodRunning, corev1.ConditionTrue)
	s := w.pod.Status
	if s.PodIP != "10.128.0.1" || s.StartTime == nil || s.ObservedGeneration != 1 || len(s.PodIPs) != 1 {
		t.Errorf("status is %+v", s)
	}
	if c := s.ContainerStatuses; len(c) != 1 || c[0].Name != "main" || c[0].Image != "m:1" || !c[0].Ready || c[0].State.Running == nil {
		t.Errorf("containers are %+v", c)
	}
	if c := s.InitContainerStatuses; len(c) != 2 || c[0].State.Terminated == nil || c[1].State.Running == nil {
		t.Errorf("init containers are %+v", c)
	}
	w.pod.DeletionTimestamp = new(metav1.Now())
	w.wantNext("delete", 0)
	if !w.isGone {
		t.Error("the pod is still there")
	}
}

func TestPodMeetsItsFate(t *testing.T) {
	for _, test := range []struct {
		fate, stage string
		delay       time.Duration
		phase       corev1.PodPhase
		ready       corev1.ConditionStatus
		event       string
	}{
		{FateReady, "ready", podDelay, corev1.PodRunning, corev1.ConditionTrue, ""},
		{FateUnready, "unready", podDelay, corev1.PodRunning, corev1.ConditionFalse, ""},
		{FateFail, "fail", podDelay, corev1.PodRunning, corev1.ConditionFalse, "BackOff"},
		{FateEvict, "evict", podDelay, corev1.PodFailed, corev1.ConditionFalse, "Evicted"},
		{FatePending, "pending", 0, corev1.PodPending, corev1.ConditionFalse, ""},
	} {
		t.Run(test.fate, func(t *testing.T) {
			w := newWorld(t, map[string]string{FateAnnotation: test.fate})
			w.wantNext(test.stage, test.delay)
			w.wantRest(test.phase, test.ready)
			if test.event != "" && (len(w.events) != 1 || w.events[0] != test.event) {
				t.Errorf("events are %v, want %s", w.events, test.event)
			}
		})
	}
}

func TestFateChangesWhileThePodRuns(t *testing.T) {
	w := newWorld(t, map[string]string{DelayAnnotation: "20ms"})
	w.wantNext("ready", 20*time.Millisecond)
	for _, change := range []struct {
		fate  string
		phase corev1.PodPhase
		ready corev1.ConditionStatus
	}{
		{FateFail, corev1.PodRunning, corev1.ConditionFalse},
		{FateUnready, corev1.PodRunning, corev1.ConditionFalse},
		{FateReady, corev1.PodRunning, corev1.ConditionTrue},
	} {
		w.pod.Annotations[FateAnnotation] = change.fate
		w.wantNext(change.fate, 20*time.Millisecond)
		w.wantRest(change.phase, change.ready)
	}
	if w.pod.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil {
		t.Error("a container that runs again still has its crash")
	}
}

func TestPodOfAJobComesToAnEnd(t *testing.T) {
	for fate, phase := range map[string]corev1.PodPhase{FateReady: corev1.PodSucceeded, FateFail: corev1.PodFailed} {
		w := newWorld(t, map[string]string{FateAnnotation: fate})
		w.pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "once"}}
		_, _ = w.next()
		w.wantRest(phase, corev1.ConditionFalse)
	}
}

func TestUnknownFateIsTold(t *testing.T) {
	w := newWorld(t, map[string]string{FateAnnotation: "explode"})
	w.wantNext("unknown", 0)
	if len(w.events) != 1 || w.events[0] != "UnknownFate" || w.pod.Status.Phase != corev1.PodPending {
		t.Errorf("events are %v, and the pod is %s", w.events, w.pod.Status.Phase)
	}
}

func TestAddressesAreNotGivenTwice(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("10.0.0.0/29"))
	a.keep("old", "10.0.0.2")
	seen := map[string]bool{"10.0.0.2": true}
	for _, pod := range []types.UID{"a", "b", "c", "d", "e"} {
		address := a.of(pod)
		if seen[address.String()] || address != a.of(pod) {
			t.Errorf("%s got %s, given before or not kept", pod, address)
		}
		seen[address.String()] = true
	}
	if address := a.of("f"); address.IsValid() {
		t.Errorf("a full network has %s left", address)
	}
	a.release("c")
	if address := a.of("f"); !address.IsValid() {
		t.Error("what was released is not given again")
	}
}

func TestCapacity(t *testing.T) {
	capacity, err := ParseCapacity("cpu=4,example.com/disk=2")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[corev1.ResourceName]string{
		corev1.ResourceCPU: "4", "example.com/disk": "2", corev1.ResourcePods: "1k", corev1.ResourceMemory: "256Gi",
	} {
		if got := capacity[name]; got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s is %s, want %s", name, got.String(), want)
		}
	}
	for _, text := range []string{"cpu", "cpu=much", "=3", "cpu=-1"} {
		if _, err := ParseCapacity(text); err == nil {
			t.Errorf("%q is taken for a capacity", text)
		}
	}
}
