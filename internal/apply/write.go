// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// fields is a JSON object.
type fields map[string]any

// write makes the call that an action asks for. The object is as the server returned it; for deletions there is none.
func (r *run) write(ctx context.Context, action plan.Action) (metav1.Object, plan.Result, error) {
	switch a := action.(type) {
	case plan.CreatePod, plan.CreateClaim, plan.CreateRevision:
		return r.create(ctx, action)
	case plan.AdoptPod, plan.AdoptRevision:
		return r.adopt(ctx, action.Target())
	case plan.ReleasePod:
		drop := fields{"$patch": "delete", "uid": r.set.UID}
		body := fields{"uid": a.Pod.UID, "ownerReferences": []fields{drop}}
		return patched(r.patch(ctx, a.Pod, types.StrategicMergePatchType, fields{"metadata": body}))
	case plan.LabelPod:
		body := fields{"metadata": fields{"uid": a.Pod.UID, "labels": a.Labels}}
		return patched(r.patch(ctx, a.Pod, types.MergePatchType, body))
	case plan.OwnClaim:
		// The list replaces another, so it holds only for the version that it was made from.
		body := fields{"uid": a.Claim.UID, "resourceVersion": a.Claim.ResourceVersion, "ownerReferences": a.Owners}
		return patched(r.patch(ctx, a.Claim, types.MergePatchType, fields{"metadata": body}))
	case plan.BumpRevision:
		body := fields{"metadata": fields{"uid": a.Revision.UID}, "revision": a.Number}
		return patched(r.patch(ctx, a.Revision, types.MergePatchType, body))
	case plan.TellPod:
		body := fields{"metadata": fields{"uid": a.Pod.UID, "annotations": annotations(a)}}
		return patched(r.patch(ctx, a.Pod, types.MergePatchType, body))
	case plan.DeletePod, plan.DeleteRevision:
		err := r.remove(ctx, action)
		return nil, deleted(err), err
	}
	return nil, plan.ResultFailed, fmt.Errorf("unknown action %T", action)
}

// annotations are those by which a pod is told. What is not told any more is removed.
func annotations(a plan.TellPod) fields {
	told := fields{v1alpha1.StopReasonAnnotation: nil, v1alpha1.StopAtAnnotation: nil}
	if a.Stop != "" {
		told[v1alpha1.StopReasonAnnotation] = a.Stop
	}
	if !a.At.IsZero() {
		told[v1alpha1.StopAtAnnotation] = a.At.UTC().Format(time.RFC3339)
	}
	return told
}

func (r *run) remove(ctx context.Context, action plan.Action) error {
	switch a := action.(type) {
	case plan.DeletePod:
		pods := r.Client.CoreV1().Pods(r.set.Namespace)
		if !a.Evict {
			return pods.Delete(ctx, a.Pod.Name, onlyThis(a.Pod))
		}
		return pods.EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: r.set.Namespace, Name: a.Pod.Name},
			DeleteOptions: new(onlyThis(a.Pod)),
		})
	case plan.DeleteRevision:
		return r.Client.AppsV1().ControllerRevisions(r.set.Namespace).Delete(ctx, a.Revision.Name, onlyThis(a.Revision))
	default:
		return fmt.Errorf("%T removes nothing", action)
	}
}

func (r *run) create(ctx context.Context, action plan.Action) (metav1.Object, plan.Result, error) {
	switch a := action.(type) {
	case plan.CreatePod:
		obj, err := r.Client.CoreV1().Pods(r.set.Namespace).Create(ctx, a.Pod, metav1.CreateOptions{})
		return created(obj, err)
	case plan.CreateClaim:
		obj, err := r.Client.CoreV1().PersistentVolumeClaims(r.set.Namespace).Create(ctx, a.Claim, metav1.CreateOptions{})
		return created(obj, err)
	case plan.CreateRevision:
		return r.createRevision(ctx, a.Revision)
	default:
		return nil, plan.ResultFailed, fmt.Errorf("%T creates nothing", action)
	}
}

func (r *run) adopt(ctx context.Context, target plan.Ref) (metav1.Object, plan.Result, error) {
	if err := r.live(); err != nil {
		if errors.Is(err, errSetGone) {
			return nil, plan.ResultConflict, err
		}
		return nil, plan.ResultFailed, err
	}
	// What is adopted may be deleted next, so it has to be what was looked at: its labels may have been taken from it meanwhile.
	body := fields{
		"uid": target.UID, "resourceVersion": target.ResourceVersion,
		"ownerReferences": []metav1.OwnerReference{revision.Owner(r.set)},
	}
	return patched(r.patch(ctx, target, types.StrategicMergePatchType, fields{"metadata": body}))
}

func (r *run) patch(ctx context.Context, target plan.Ref, kind types.PatchType, body fields) (metav1.Object, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s: %w", target, err)
	}
	switch target.Kind {
	case plan.KindPod:
		return r.Client.CoreV1().Pods(r.set.Namespace).Patch(ctx, target.Name, kind, data, metav1.PatchOptions{})
	case plan.KindClaim:
		claims := r.Client.CoreV1().PersistentVolumeClaims(r.set.Namespace)
		return claims.Patch(ctx, target.Name, kind, data, metav1.PatchOptions{})
	case plan.KindRevision:
		return r.Client.AppsV1().ControllerRevisions(r.set.Namespace).Patch(ctx, target.Name, kind, data, metav1.PatchOptions{})
	case plan.KindSet:
	}
	return nil, fmt.Errorf("no patch for %s", target)
}

// createRevision creates a revision. One of the same name and data serves as well, unless a stranger owns it; one with other
// data is a collision, after which the next plan tries another name.
func (r *run) createRevision(ctx context.Context, wanted *appsv1.ControllerRevision) (metav1.Object, plan.Result, error) {
	revisions := r.Client.AppsV1().ControllerRevisions(r.set.Namespace)
	obj, err := revisions.Create(ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return created(obj, err)
	}
	existing, getErr := revisions.Get(ctx, wanted.Name, metav1.GetOptions{})
	if getErr != nil {
		return nil, plan.ResultFailed, fmt.Errorf("get revision %s: %w", wanted.Name, getErr)
	}
	if !bytes.Equal(existing.Data.Raw, wanted.Data.Raw) || r.isStranger(metav1.GetControllerOfNoCopy(existing)) {
		return nil, plan.ResultCollision, err
	}
	return existing, plan.ResultDone, nil
}

// isStranger tells if an owner is neither the set nor an earlier one of its name, whose revisions are about to go.
func (r *run) isStranger(owner *metav1.OwnerReference) bool {
	return owner != nil && (owner.Kind != string(plan.KindSet) || owner.Name != r.set.Name)
}

// Status writes a set's status, provided the set is as it was observed.
func (a *Applier) Status(ctx context.Context, set *appsv1.StatefulSet, s appsv1.StatefulSetStatus) (plan.Result, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	// The whole set is sent, as a patch costs the API server more. Only the status counts, and only if the set is of that version.
	changed := *set
	changed.Status, changed.ManagedFields = s, nil
	obj, err := a.Client.AppsV1().StatefulSets(set.Namespace).UpdateStatus(ctx, &changed, metav1.UpdateOptions{})
	written, result, err := patched(obj, err)
	if result == plan.ResultDone {
		key := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
		a.Watermark.Wrote(key, plan.KindSet, written)
	}
	a.Metrics.Acted("WriteStatus", "Changed", string(result))
	return result, err
}

// PolicyStatus writes a policy's status, provided the policy is as it was observed.
func (a *Applier) PolicyStatus(
	ctx context.Context, p *v1alpha1.StatefulSetPolicy, s v1alpha1.StatefulSetPolicyStatus,
) (plan.Result, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	next := p.DeepCopy()
	next.Status = s
	written, err := a.Policies(p.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	_, result, err := patched(written, err)
	if result == plan.ResultDone {
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.TargetRef.Name}
		a.Watermark.Wrote(key, observe.KindPolicy, written)
	}
	a.Metrics.Acted("WritePolicyStatus", "Changed", string(result))
	return result, err
}

// onlyThis lets a deletion hold for that object only, and not for a later one of the same name.
func onlyThis(target plan.Ref) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &target.UID}}
}

func created(obj metav1.Object, err error) (metav1.Object, plan.Result, error) {
	switch {
	case err == nil:
		return obj, plan.ResultDone, nil
	case apierrors.IsAlreadyExists(err):
		return nil, plan.ResultConflict, err
	default:
		return nil, plan.ResultFailed, err
	}
}

func deleted(err error) plan.Result {
	switch {
	case err == nil:
		return plan.ResultDone
	case apierrors.IsNotFound(err):
		return plan.ResultGone
	case apierrors.IsConflict(err):
		return plan.ResultConflict
	case apierrors.IsTooManyRequests(err), apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return plan.ResultBlocked
	default:
		return plan.ResultFailed
	}
}

func patched(obj metav1.Object, err error) (metav1.Object, plan.Result, error) {
	switch {
	case err == nil:
		return obj, plan.ResultDone, nil
	case apierrors.IsNotFound(err):
		return nil, plan.ResultGone, err
	case apierrors.IsConflict(err), isOther(err):
		return nil, plan.ResultConflict, err
	default:
		return nil, plan.ResultFailed, err
	}
}

// isOther tells if a patch was refused because the object of that name is another by now.
func isOther(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

func objectOf(obj metav1.Object) runtime.Object {
	o, _ := obj.(runtime.Object)
	return o
}
