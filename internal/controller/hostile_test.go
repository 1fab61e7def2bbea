// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/revision"
)

// mischief is what somebody does to a set before it comes.
type mischief struct {
	set *appsv1.StatefulSet
	// before are the objects that are there before.
	before []object
	// refuse refuses writes.
	refuse func(clienttesting.Action) error
	// event is a part of what the set's events have to tell; empty if nothing is wrong.
	event string
	// pods and ready are how many pods the set has in the end.
	pods, ready int32
}

// object is one of the kinds that sets deal with.
type object interface {
	runtime.Object
	metav1.Object
}

// stranger is the UID of an owner that has nothing to do with sets.
const stranger = "stranger"

// somebody is another owner.
func somebody() []metav1.OwnerReference {
	owner := &metav1.ObjectMeta{Name: "somebody", UID: stranger}
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
}

func podNamed(name string, owners ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}, OwnerReferences: owners},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: "other"}}},
	}
}

func claimNamed(name string, owners ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
}

func revisionOf(name, data string, number int64, owners ...metav1.OwnerReference) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}, OwnerReferences: owners},
		Data:       runtime.RawExtension{Raw: []byte(data)},
		Revision:   number,
	}
}

func firstRevision(t *testing.T) string {
	t.Helper()
	r, err := revision.New(newSet(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r.Name
}

// oddPod has labels that no controller writes.
func oddPod() *corev1.Pod {
	p := podNamed("web-0")
	p.Labels[appsv1.PodIndexLabel] = "-99999999999999999999"
	p.Labels[appsv1.StatefulSetPodNameLabel] = "web-1"
	p.Labels[appsv1.StatefulSetRevisionLabel] = strings.Repeat("x", 300)
	return p
}

// refuseNumbers refuses revisions with a number that the API server does not take.
func refuseNumbers(a clienttesting.Action) error {
	create, ok := a.(clienttesting.CreateActionImpl)
	if !ok {
		return nil
	}
	if r, ok := create.GetObject().(*appsv1.ControllerRevision); ok && r.Revision < 0 {
		return apierrors.NewBadRequest("the number is negative")
	}
	return nil
}

// refuseCreations refuses what is created of a resource for the set.
func refuseCreations(resource, set string) func(clienttesting.Action) error {
	return func(a clienttesting.Action) error {
		create, ok := a.(clienttesting.CreateActionImpl)
		if !ok || a.GetResource().Resource != resource {
			return nil
		}
		if o, ok := create.GetObject().(object); ok && strings.Contains(o.GetName(), set+"-") {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), o.GetName(), errors.New("exceeded quota"))
		}
		return nil
	}
}

// refusePatches refuses changes of a resource.
func refusePatches(resource string) func(clienttesting.Action) error {
	return func(a clienttesting.Action) error {
		if a.GetVerb() == "patch" && a.GetResource().Resource == resource {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), "it", errors.New("denied by a webhook"))
		}
		return nil
	}
}

func mischiefs(t *testing.T) map[string]mischief {
	t.Helper()
	noTemplates := make([]object, 0, 8)
	for i, data := range []string{
		`null`, `[]`, `7`, `{}`, `{"spec":7}`, `{"spec":{"template":7}}`, `{"spec":{"template":null}}`,
		`{"spec":{"template":{"$patch":"replace","spec":{"containers":{}}}}}`,
	} {
		noTemplates = append(noTemplates, revisionOf(fmt.Sprintf("web-%d", i), data, int64(i)))
	}
	return map[string]mischief{
		"pod of somebody else": {
			set: newSet(), before: []object{podNamed("web-1", somebody()...)}, pods: 1, ready: 1, event: "belongs to another owner",
		},
		"claim of somebody else": {
			set: newSet(policy(deleteThem, deleteThem)), before: []object{claimNamed("data-web-0", somebody()...)},
			pods: 3, ready: 3, event: "conflicting OwnerReference",
		},
		"revision of somebody else": {
			set: newSet(), before: []object{revisionOf(firstRevision(t), `{}`, 1, somebody()...)}, pods: 3, ready: 3,
		},
		"revisions that are no templates": {set: newSet(), before: noTemplates, pods: 3, ready: 3},
		"current revision that is no template": {
			set: newSet(func(s *appsv1.StatefulSet) {
				s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(3))
				s.Status.CurrentRevision = "web-5"
			}),
			before: noTemplates, event: `controllerrevisions "web-5" holds no template`,
		},
		"highest revision number": {
			set: newSet(), before: []object{revisionOf("web-x", `{"spec":{"template":{"$patch":"replace"}}}`, math.MaxInt64)}, refuse: refuseNumbers,
			event: "Create ControllerRevision",
		},
		"bad selector": {
			set: newSet(func(s *appsv1.StatefulSet) {
				s.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
			}),
			event: "InvalidSpec",
		},
		"no selector": {set: newSet(func(s *appsv1.StatefulSet) { s.Spec.Selector = nil }), event: "InvalidSpec"},
		"pods that are never available": {
			set: newSet(func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 1_000_000_000 }), pods: 1, ready: 1,
		},
		"longest wait": {
			set: newSet(func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = math.MaxInt32 }), pods: 1, ready: 1,
		},
		"ordinals that overflow": {
			set: newSet(replicas(math.MaxInt32), func(s *appsv1.StatefulSet) {
				s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: math.MaxInt32 - 1}
			}),
			before: []object{
				podNamed("web-2147483648"), podNamed("web-99999999999999999999"), podNamed("web-007"), podNamed("web--1"), podNamed("web-"),
			},
			pods: 2, ready: 2,
		},
		"odd labels":     {set: newSet(), before: []object{oddPod()}, pods: 3, ready: 3},
		"pods refused":   {set: newSet(parallel, replicas(100)), refuse: refuseCreations("pods", "web"), event: "FailedCreate"},
		"claims refused": {set: newSet(parallel), refuse: refuseCreations("persistentvolumeclaims", "web"), event: "FailedCreate"},
		"most replicas": {
			set: newSet(parallel, replicas(math.MaxInt32)), refuse: refuseCreations("pods", "web"), event: "FailedCreate",
		},
		"adoption refused": {set: newSet(), before: []object{podNamed("web-0")}, refuse: refusePatches("pods"), event: "FailedAdopt"},
	}
}

// Whatever somebody does to a set: other sets proceed as if nothing were, the set's events tell what is wrong, and it is tried
// again, but not often.
func TestMischief(t *testing.T) {
	for name, m := range mischiefs(t) {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			prepare := func(s *stage) {
				s.refuse = func(a clienttesting.Action) error {
					s.judge(a)
					attempts++
					if m.refuse != nil {
						return m.refuse(a)
					}
					return nil
				}
			}
			onStage(t, prepare, func(s *stage) {
				s.suffer(m)
				if ready := s.status("good").ReadyReplicas; ready != 3 {
					t.Errorf("of another set, %d pods are ready", ready)
				}
				s.idle(time.Minute)
				// A set of three takes seven writes and some of status; what is refused is tried few times.
				if attempts > 60 {
					t.Errorf("in a minute, %d writes are tried", attempts)
				}
				told := strings.Join(s.told(), "\n")
				if m.event != "" && !strings.Contains(told, m.event) || m.event == "" && strings.Contains(told, "Warning") {
					t.Errorf("told is\n%s\nwant %q", told, m.event)
				}
				if got := s.status("web"); got.Replicas != m.pods || got.ReadyReplicas != m.ready {
					t.Errorf("the status is %+v", got)
				}
				s.do(func() { attempts = 0 })
				s.idle(20 * time.Minute)
				// Each pod that was ever tried has one try in half a minute, and after a few none that is new has its turn.
				if attempts > 125 {
					t.Errorf("in 20 minutes, %d writes are tried", attempts)
				}
				if n := len(s.told()); n > 125 {
					t.Errorf("in 20 minutes, %d events are told", n)
				}
			})
		})
	}
}

// idle lets a long time pass in which little happens.
func (s *stage) idle(d time.Duration) {
	for range d / (20 * time.Second) {
		pass(20 * time.Second)
		s.due()
	}
}

// suffer lets the mischief happen, beside a set that has nothing to do with it.
func (s *stage) suffer(m mischief) {
	for _, o := range m.before {
		switch o.(type) {
		case *corev1.Pod:
			s.create(podsResource, o)
		case *corev1.PersistentVolumeClaim:
			s.create(claimsResource, o)
		case *appsv1.ControllerRevision:
			s.create(revisionsResource, o)
		}
	}
	s.creates(m.set)
	s.creates(newSet(func(set *appsv1.StatefulSet) {
		set.Name = "good"
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "good"}}
		set.Spec.Template.Labels = map[string]string{"app": "good"}
	}))
	s.run(5 * time.Second)
}

func (s *stage) status(name string) appsv1.StatefulSetStatus {
	s.t.Helper()
	set, err := s.client.AppsV1().StatefulSets(namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return set.Status
}

// One pod that is refused keeps none of the others.
func TestOneRefusedPodKeepsNoOther(t *testing.T) {
	for _, name := range []string{"web-0", "web-2", "web-9"} {
		t.Run(name, func(t *testing.T) {
			prepare := func(s *stage) {
				s.refuse = func(a clienttesting.Action) error {
					create, ok := a.(clienttesting.CreateActionImpl)
					if !ok {
						return nil
					}
					if pod, ok := create.GetObject().(*corev1.Pod); ok && pod.Name == name {
						return apierrors.NewForbidden(corev1.Resource("pods"), name, errors.New("denied by a webhook"))
					}
					return nil
				}
			}
			onStage(t, prepare, func(s *stage) {
				s.creates(newSet(parallel, replicas(10)))
				s.run(time.Second)
				if n := len(s.pods()); n != 9 {
					t.Errorf("a second later there are %d pods, want 9", n)
				}
			})
		})
	}
}
