// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// The lease by which our controllers elect a leader.
const (
	leaseNamespace = metav1.NamespaceSystem
	leaseName      = "ordinal-controller"
)

// Limits of what is read.
const (
	maxSubjects = 10
	logLines    = int64(5)
	maxLogBytes = int64(16 << 10)
)

// Question asks how a set fares.
type Question struct {
	Client kubernetes.Interface
	// Policies may be nil.
	Policies observe.PolicyClient
	Key      observe.Key
	Options  plan.Options
	Now      time.Time
	Tools    Tools
}

// Read gathers what a report is made from. What cannot be read but is not needed for the decision is left out, and told.
func Read(ctx context.Context, q Question) (Facts, error) {
	f := Facts{Tools: q.Tools, Logs: map[Container][]string{}}
	set, err := q.Client.AppsV1().StatefulSets(q.Key.Namespace).Get(ctx, q.Key.Name, metav1.GetOptions{})
	if err != nil {
		return f, fmt.Errorf("get set %s: %w", q.Key.Name, err)
	}
	f.Actor = ActorOf(set, Lease(ctx, q.Client), q.Now)
	if f.Actor == Incumbent {
		q.Options.Strict, q.Policies = true, nil
	}
	observer, err := observe.Load(ctx, q.Client, q.Policies, q.Key.Namespace, q.Options)
	if err != nil {
		return f, err
	}
	snapshot, view, err := observer.Look(q.Key, q.Now)
	if err != nil {
		return f, err
	}
	if view == observe.Gone {
		return f, apierrors.NewNotFound(appsv1.Resource("statefulsets"), q.Key.Name)
	}
	f.Snapshot, f.Plan = snapshot, plan.Make(snapshot)
	r := reader{Question: q, facts: &f}
	r.events(ctx)
	r.logs(ctx)
	r.budgets(ctx)
	return f, nil
}

// Lease is the lease by which our controllers elect a leader; nil if there is none or if it cannot be read.
func Lease(ctx context.Context, client kubernetes.Interface) *coordinationv1.Lease {
	lease, err := client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return lease
}

// reader reads the evidence.
type reader struct {
	Question

	facts *Facts
}

func (r *reader) unread(what string, err error) {
	r.facts.Unread = append(r.facts.Unread, fmt.Sprintf("The %s could not be read: %v", what, err))
}

// subjects are the pods of which something is to be told, as many as fit.
func (r *reader) subjects() []*corev1.Pod {
	s := r.facts.Snapshot
	seen := map[string]bool{}
	var all []*corev1.Pod
	add := func(pod *corev1.Pod) {
		if pod != nil && !seen[pod.Name] && len(all) < maxSubjects {
			seen[pod.Name] = true
			all = append(all, pod)
		}
	}
	for _, w := range r.facts.Plan.Waits {
		if w.On.Kind == plan.KindPod {
			add(r.facts.pod(w.On.Name))
		}
	}
	for _, pod := range r.facts.Plan.Members {
		if !podstate.IsServing(pod, s.Set.Spec.MinReadySeconds, s.Now) {
			add(pod)
		}
	}
	return all
}

// events reads the events of the set, of its pods that are not available, and of their claims that have no volume.
func (r *reader) events(ctx context.Context) {
	about := []corev1.ObjectReference{{Kind: "StatefulSet", Name: r.Key.Name}}
	for _, pod := range r.subjects() {
		about = append(about, corev1.ObjectReference{Kind: "Pod", Name: pod.Name})
		for i := range pod.Spec.Volumes {
			v := pod.Spec.Volumes[i].PersistentVolumeClaim
			if v == nil {
				continue
			}
			if c := r.facts.claim(v.ClaimName); c != nil && c.Status.Phase != corev1.ClaimBound {
				about = append(about, corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: c.Name})
			}
		}
	}
	for _, ref := range about {
		selector := fields.Set{"involvedObject.kind": ref.Kind, "involvedObject.name": ref.Name}
		list, err := r.Client.CoreV1().Events(r.Key.Namespace).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
		if err != nil {
			r.unread("events", err)
			return
		}
		for i := range list.Items {
			if o := list.Items[i].InvolvedObject; o.Kind == ref.Kind && o.Name == ref.Name {
				r.facts.Events = append(r.facts.Events, list.Items[i])
			}
		}
	}
}

// logs reads the last lines of the containers that ended and keep their pod from being ready.
func (r *reader) logs(ctx context.Context) {
	for _, pod := range r.subjects() {
		s := culprit(pod)
		if s == nil || isRefused(s) {
			continue
		}
		lines, err := r.log(ctx, pod.Name, &corev1.PodLogOptions{
			Container: s.Name, Previous: s.State.Terminated == nil, TailLines: new(logLines), LimitBytes: new(maxLogBytes),
		})
		if err != nil {
			r.unread(fmt.Sprintf("log of pod %s", pod.Name), err)
			continue
		}
		r.facts.Logs[Container{pod.Name, s.Name}] = lines
	}
}

func (r *reader) log(ctx context.Context, pod string, o *corev1.PodLogOptions) ([]string, error) {
	stream, err := r.Client.CoreV1().Pods(r.Key.Namespace).GetLogs(pod, o).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	all, err := io.ReadAll(io.LimitReader(stream, maxLogBytes))
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(all)) {
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	return lines, nil
}

// budgets reads the PodDisruptionBudgets if the plan needs one to allow something.
func (r *reader) budgets(ctx context.Context) {
	if !r.evicts() {
		return
	}
	list, err := r.Client.PolicyV1().PodDisruptionBudgets(r.Key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		r.unread("PodDisruptionBudgets", err)
		return
	}
	for i := range list.Items {
		r.facts.Budgets = append(r.facts.Budgets, &list.Items[i])
	}
}

func (r *reader) evicts() bool {
	for _, a := range r.facts.Plan.Actions() {
		if d, ok := a.(plan.DeletePod); ok && d.Evict {
			return true
		}
	}
	return false
}
