// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// errOther is why an action conflicts: the object is another, or has changed.
var errOther = errors.New("the object has changed")

// errBudget is why an eviction is refused.
var errBudget = errors.New("a PodDisruptionBudget forbids it")

// Apply carries out a plan.
func (w *World) Apply(p plan.Plan) []plan.Outcome {
	var all []plan.Outcome
	failed, lost := false, false
	for _, s := range p.Steps {
		if lost || (failed && !s.Always) {
			continue
		}
		outcomes, ok := w.step(s)
		all = append(all, outcomes...)
		if !ok {
			failed = true
			lost = lost || s.Essential
		}
	}
	return all
}

// step carries out a step. A failed chain ends it; in batches, the rest of the batch is still done.
func (w *World) step(s plan.Step) ([]plan.Outcome, bool) {
	size := 1
	var all []plan.Outcome
	for from := 0; from < len(s.Chains); {
		to := min(from+size, len(s.Chains))
		ok := true
		for ; from < to; from++ {
			outcomes, done := w.chain(s.Chains[from])
			all = append(all, outcomes...)
			ok = ok && done
		}
		if !ok {
			return all, false
		}
		if s.Mode == plan.SlowStart {
			size *= 2
		}
	}
	return all, true
}

func (w *World) chain(c plan.Chain) ([]plan.Outcome, bool) {
	var outcomes []plan.Outcome
	for _, a := range c {
		o := w.act(a)
		outcomes = append(outcomes, o)
		if o.Result != plan.ResultDone && o.Result != plan.ResultGone {
			return outcomes, false
		}
	}
	return outcomes, true
}

func (w *World) act(a plan.Action) plan.Outcome {
	if w.Refuse != nil {
		if err := w.Refuse(a); err != nil {
			return plan.Outcome{Action: a, Result: plan.ResultFailed, Err: err}
		}
	}
	o := plan.Outcome{Action: a, Result: plan.ResultDone}
	switch a.Target().Kind {
	case plan.KindPod:
		w.actOnPod(a, &o)
	case plan.KindClaim:
		w.actOnClaim(a, &o)
	case plan.KindRevision:
		w.actOnRevision(a, &o)
	case plan.KindSet:
	}
	if o.Result == plan.ResultConflict {
		o.Err = errOther
	}
	return o
}

func (w *World) actOnPod(action plan.Action, o *plan.Outcome) {
	target := action.Target()
	pod := w.Pods[target.Name]
	if a, ok := action.(plan.CreatePod); ok {
		if pod != nil {
			o.Result = plan.ResultConflict
			return
		}
		w.AddPod(a.Pod)
		o.Object = w.Pods[a.Pod.Name]
		return
	}
	if o.Result = meets(pod, pod == nil, target); o.Result != plan.ResultDone {
		return
	}
	switch a := action.(type) {
	case plan.DeletePod:
		if a.Evict && w.Blocked != nil && w.Blocked(a) {
			o.Result, o.Err = plan.ResultBlocked, errBudget
			return
		}
		w.Kill(target.Name)
	default:
		w.change(pod, func(p *corev1.Pod) { o.Result = w.write(p, action) })
	}
}

// write changes a pod as an action says.
func (w *World) write(p *corev1.Pod, action plan.Action) plan.Result {
	switch a := action.(type) {
	case plan.TellPod:
		tell(p, a)
	case plan.AdoptPod:
		p.OwnerReferences = append(p.OwnerReferences, revision.Owner(w.Set))
	case plan.ReleasePod:
		p.OwnerReferences = without(p.OwnerReferences, w.Set.UID)
	case plan.LabelPod:
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		maps.Copy(p.Labels, a.Labels)
	default:
		return plan.ResultFailed
	}
	return plan.ResultDone
}

// tell writes the annotations by which a pod learns that it goes, or that it stays.
func tell(p *corev1.Pod, a plan.TellPod) {
	at := ""
	if !a.At.IsZero() {
		at = a.At.UTC().Format(time.RFC3339)
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	for key, value := range map[string]string{
		v1alpha1.StopReasonAnnotation: a.Stop,
		v1alpha1.StopAtAnnotation:     at,
	} {
		if value == "" {
			delete(p.Annotations, key)
			continue
		}
		p.Annotations[key] = value
	}
}

func (w *World) actOnClaim(action plan.Action, o *plan.Outcome) {
	target := action.Target()
	claim := w.Claims[target.Name]
	switch a := action.(type) {
	case plan.CreateClaim:
		if claim != nil {
			o.Result = plan.ResultConflict
			return
		}
		claim = a.Claim.DeepCopy()
		w.stamp(claim)
	case plan.OwnClaim:
		if o.Result = meets(claim, claim == nil, target); o.Result != plan.ResultDone {
			return
		}
		if claim.ResourceVersion != target.ResourceVersion {
			o.Result = plan.ResultConflict
			return
		}
		claim = claim.DeepCopy()
		claim.OwnerReferences = slices.Clone(a.Owners)
		w.version++
		claim.ResourceVersion = strconv.Itoa(w.version)
	default:
		o.Result = plan.ResultFailed
		return
	}
	w.Claims[claim.Name] = claim
}

func (w *World) actOnRevision(action plan.Action, o *plan.Outcome) {
	target := action.Target()
	r := w.Revisions[target.Name]
	if a, ok := action.(plan.CreateRevision); ok {
		switch {
		case r == nil:
			r = a.Revision.DeepCopy()
			w.stamp(r)
			w.Revisions[r.Name] = r
		case !bytes.Equal(r.Data.Raw, a.Revision.Data.Raw):
			o.Result = plan.ResultCollision
		}
		return
	}
	if o.Result = meets(r, r == nil, target); o.Result != plan.ResultDone {
		return
	}
	w.version++
	r = r.DeepCopy()
	r.ResourceVersion = strconv.Itoa(w.version)
	w.Revisions[target.Name] = r
	switch a := action.(type) {
	case plan.DeleteRevision:
		delete(w.Revisions, target.Name)
	case plan.BumpRevision:
		r.Revision = a.Number
	case plan.AdoptRevision:
		r.OwnerReferences = append(r.OwnerReferences, revision.Owner(w.Set))
	default:
		o.Result = plan.ResultFailed
	}
}

// meets tells if an object is the one that is named.
func meets(o metav1.Object, missing bool, target plan.Ref) plan.Result {
	switch {
	case missing:
		return plan.ResultGone
	case o.GetUID() != target.UID:
		return plan.ResultConflict
	default:
		return plan.ResultDone
	}
}

// NewSet is a set of pods with one claim each, for tests and previews.
func NewSet(name string, replicas int32, changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         name,
			PodManagementPolicy: appsv1.OrderedReadyPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0))},
			},
			RevisionHistoryLimit: new(int32(10)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "one"}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
	}
	for _, change := range changes {
		change(set)
	}
	return set
}
