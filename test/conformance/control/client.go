// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// client is an API server for the applier of one sync, which passes on what it is asked to those who hold the objects. It
// knows the calls that the applier makes; any other panics.
type client struct {
	kubernetes.Interface
	control *Control
	set     *appsv1.StatefulSet
}

// CoreV1 is part of kubernetes.Interface.
func (c *client) CoreV1() typedcorev1.CoreV1Interface { return coreV1{c: c} }

// AppsV1 is part of kubernetes.Interface.
func (c *client) AppsV1() typedappsv1.AppsV1Interface { return appsV1{c: c} }

type coreV1 struct {
	typedcorev1.CoreV1Interface
	c *client
}

// Pods is part of typedcorev1.CoreV1Interface.
func (v coreV1) Pods(string) typedcorev1.PodInterface { return pods{c: v.c} }

// PersistentVolumeClaims is part of typedcorev1.CoreV1Interface.
func (v coreV1) PersistentVolumeClaims(string) typedcorev1.PersistentVolumeClaimInterface {
	return claims{c: v.c}
}

type appsV1 struct {
	typedappsv1.AppsV1Interface
	c *client
}

// StatefulSets is part of typedappsv1.AppsV1Interface.
func (v appsV1) StatefulSets(string) typedappsv1.StatefulSetInterface { return sets{c: v.c} }

// ControllerRevisions is part of typedappsv1.AppsV1Interface.
func (v appsV1) ControllerRevisions(string) typedappsv1.ControllerRevisionInterface {
	return revisions{c: v.c}
}

type pods struct {
	typedcorev1.PodInterface
	c *client
}

// Create is part of typedcorev1.PodInterface.
func (p pods) Create(ctx context.Context, pod *corev1.Pod, _ metav1.CreateOptions) (*corev1.Pod, error) {
	made := pod.DeepCopy()
	made.Namespace = p.c.set.Namespace
	if err := p.c.control.Objects.CreatePod(ctx, made, p.c.set); err != nil {
		return nil, err
	}
	return made.DeepCopy(), nil
}

// Patch is part of typedcorev1.PodInterface.
func (p pods) Patch(
	_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (*corev1.Pod, error) {
	old, err := p.c.control.Objects.GetPod(p.c.set.Namespace, name)
	if err != nil {
		return nil, err
	}
	changed := new(corev1.Pod)
	if err := patch(old, changed, kind, data); err != nil {
		return nil, err
	}
	return changed, p.c.control.Objects.UpdatePod(changed, p.c.set)
}

// Delete is part of typedcorev1.PodInterface.
func (p pods) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	pod, err := p.c.control.Objects.GetPod(p.c.set.Namespace, name)
	if err != nil {
		return err
	}
	if o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != pod.UID {
		return apierrors.NewConflict(corev1.Resource("pods"), name, fmt.Errorf("it is %s", pod.UID))
	}
	return p.c.control.Objects.DeletePod(pod)
}

type claims struct {
	typedcorev1.PersistentVolumeClaimInterface
	c *client
}

// Create is part of typedcorev1.PersistentVolumeClaimInterface.
func (p claims) Create(
	_ context.Context, claim *corev1.PersistentVolumeClaim, _ metav1.CreateOptions,
) (*corev1.PersistentVolumeClaim, error) {
	made := claim.DeepCopy()
	made.Namespace = p.c.set.Namespace
	return made, p.c.control.Objects.CreateClaim(made, p.c.set)
}

// Patch is part of typedcorev1.PersistentVolumeClaimInterface.
func (p claims) Patch(
	_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (*corev1.PersistentVolumeClaim, error) {
	old, err := p.c.control.Objects.GetClaim(p.c.set.Namespace, name)
	if err != nil {
		return nil, err
	}
	changed := new(corev1.PersistentVolumeClaim)
	if err := patch(old, changed, kind, data); err != nil {
		return nil, err
	}
	return changed, p.c.control.Objects.UpdateClaim(changed, p.c.set)
}

type sets struct {
	typedappsv1.StatefulSetInterface
	c *client
}

// Get is part of typedappsv1.StatefulSetInterface.
func (s sets) Get(context.Context, string, metav1.GetOptions) (*appsv1.StatefulSet, error) {
	return s.c.set, nil
}

// UpdateStatus is part of typedappsv1.StatefulSetInterface.
func (s sets) UpdateStatus(ctx context.Context, changed *appsv1.StatefulSet, _ metav1.UpdateOptions) (*appsv1.StatefulSet, error) {
	return changed, s.c.control.Status.UpdateStatefulSetStatus(ctx, s.c.set.DeepCopy(), &changed.Status)
}

type revisions struct {
	typedappsv1.ControllerRevisionInterface
	c *client
}

// Get is part of typedappsv1.ControllerRevisionInterface.
func (r revisions) Get(_ context.Context, name string, _ metav1.GetOptions) (*appsv1.ControllerRevision, error) {
	all, err := r.c.control.Revisions(r.c.set)
	if err != nil {
		return nil, err
	}
	if found := named(all, name); found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(appsv1.Resource("controllerrevisions"), name)
}

// Create is part of typedappsv1.ControllerRevisionInterface.
func (r revisions) Create(
	ctx context.Context, revision *appsv1.ControllerRevision, _ metav1.CreateOptions,
) (*appsv1.ControllerRevision, error) {
	if _, err := r.Get(ctx, revision.Name, metav1.GetOptions{}); err == nil {
		return nil, apierrors.NewAlreadyExists(appsv1.Resource("controllerrevisions"), revision.Name)
	}
	collisions := new(int32)
	if known := r.c.set.Status.CollisionCount; known != nil {
		*collisions = *known
	}
	made, err := r.c.control.History.CreateControllerRevision(r.c.set, revision.DeepCopy(), collisions)
	if err == nil && made.Name != revision.Name {
		return nil, fmt.Errorf("revision %s got the name %s", revision.Name, made.Name)
	}
	return made, err
}

// Patch is part of typedappsv1.ControllerRevisionInterface.
func (r revisions) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (*appsv1.ControllerRevision, error) {
	old, err := r.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	changed := new(appsv1.ControllerRevision)
	if err := patch(old, changed, kind, data); err != nil {
		return nil, err
	}
	if changed.Revision != old.Revision {
		return r.c.control.History.UpdateControllerRevision(old, changed.Revision)
	}
	return r.c.control.History.AdoptControllerRevision(r.c.set, setKind, old)
}

// Delete is part of typedappsv1.ControllerRevisionInterface.
func (r revisions) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	old, err := r.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return r.c.control.History.DeleteControllerRevision(old)
}

// patch makes changed what the patch makes of old.
func patch[T any](old, changed *T, kind types.PatchType, data []byte) error {
	before, err := json.Marshal(old)
	if err != nil {
		return err
	}
	var after []byte
	switch kind {
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, data)
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, data, new(T))
	default:
		err = fmt.Errorf("no patch of type %s", kind)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(after, changed)
}
