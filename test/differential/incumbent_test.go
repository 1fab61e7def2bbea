// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/controller/statefulset"

	"github.com/ordinal-dev/ordinal/internal/sim"
)

var setKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// incumbent is Kubernetes' controller in a world. It implements what the controller asks of an API server.
type incumbent struct {
	*sim.World
	mu sync.Mutex
	// seen is the world as the caches show it: as it was when the sync began.
	seen sim.World
	// deleted are the pods that were asked to go, in order.
	deleted []string
	// refusals are writes that an API server does not accept.
	refusals []string
}

func newIncumbent(w *sim.World) *incumbent {
	return &incumbent{World: w}
}

// sync does what StatefulSetController.sync does.
func (i *incumbent) sync(ctx context.Context) error {
	i.seen = *i.World
	i.seen.Pods, i.seen.Claims = maps.Clone(i.Pods), maps.Clone(i.Claims)
	i.seen.Revisions = maps.Clone(i.Revisions)
	set := i.Set
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return err
	}
	control := statefulset.NewDefaultStatefulSetControl(
		statefulset.NewStatefulPodControlFromManager(i, record.NewFakeRecorder(10_000)), i, i)
	revisions, err := control.ListRevisions(set)
	if err != nil {
		return err
	}
	orphans := slices.DeleteFunc(revisions, func(r *appsv1.ControllerRevision) bool { return metav1.GetControllerOf(r) != nil })
	if len(orphans) > 0 && set.DeletionTimestamp == nil {
		if err := control.AdoptOrphanRevisions(set, orphans); err != nil {
			return err
		}
	}
	pods, err := i.claim(ctx, set, selector)
	if err != nil {
		return err
	}
	_, err = control.UpdateStatefulSet(ctx, set, pods, i.Now)
	return err
}

// claim does what StatefulSetController.getPodsForStatefulSet does.
func (i *incumbent) claim(ctx context.Context, set *appsv1.StatefulSet, selector labels.Selector) ([]*corev1.Pod, error) {
	isMember := func(p *corev1.Pod) bool {
		at := strings.LastIndexByte(p.Name, '-')
		digits := at >= 0 && at < len(p.Name)-1 && strings.Trim(p.Name[at+1:], "0123456789") == ""
		return digits && p.Name[:at] == set.Name
	}
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(i.Pods)) {
		pods = append(pods, i.Pods[name])
	}
	refs := controller.NewPodControllerRefManager(&claimer{world: i}, set, selector, setKind,
		func(context.Context) error { return nil })
	return refs.ClaimPods(ctx, pods, isMember)
}

// claimer adopts and releases pods.
type claimer struct {
	controller.FakePodControl
	world *incumbent
}

// PatchPod is part of controller.PodControlInterface.
func (c *claimer) PatchPod(_ context.Context, _, name string, data []byte) error {
	var patch struct {
		Metadata struct {
			OwnerReferences []struct {
				metav1.OwnerReference
				Patch string `json:"$patch"`
			} `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return err
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	for _, ref := range patch.Metadata.OwnerReferences {
		c.world.Change(name, func(p *corev1.Pod) {
			p.OwnerReferences = slices.DeleteFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == ref.UID })
			if ref.Patch == "" {
				p.OwnerReferences = append(p.OwnerReferences, ref.OwnerReference)
			}
		})
	}
	return nil
}

// CreatePod is part of statefulset.StatefulPodControlObjectManager.
func (i *incumbent) CreatePod(_ context.Context, pod *corev1.Pod, _ *appsv1.StatefulSet) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.Pods[pod.Name] != nil {
		return apierrors.NewAlreadyExists(corev1.Resource("pods"), pod.Name)
	}
	i.AddPod(pod)
	return nil
}

// GetPod is part of statefulset.StatefulPodControlObjectManager.
func (i *incumbent) GetPod(_, name string) (*corev1.Pod, error) {
	if p := i.seen.Pods[name]; p != nil {
		return p, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

// UpdatePod is part of statefulset.StatefulPodControlObjectManager.
func (i *incumbent) UpdatePod(pod *corev1.Pod, _ *appsv1.StatefulSet) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.Pods[pod.Name]
	if old == nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	if !equality.Semantic.DeepEqual(old.Spec, pod.Spec) {
		i.refusals = append(i.refusals, "spec of pod "+pod.Name)
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), pod.Name, nil)
	}
	i.Change(pod.Name, func(p *corev1.Pod) { p.Labels = maps.Clone(pod.Labels) })
	return nil
}

// DeletePod is part of statefulset.StatefulPodControlObjectManager.
func (i *incumbent) DeletePod(pod *corev1.Pod) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.Pods[pod.Name] == nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	i.deleted = append(i.deleted, pod.Name)
	i.Kill(pod.Name)
	return nil
}

// CreateClaim is part of statefulset.StatefulPodControlObjectManager. The cache shows the claim at once, so that its owners
// are set in the same sync.
func (i *incumbent) CreateClaim(claim *corev1.PersistentVolumeClaim, _ *appsv1.StatefulSet) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.Claims[claim.Name] != nil {
		return apierrors.NewAlreadyExists(corev1.Resource("persistentvolumeclaims"), claim.Name)
	}
	claim = claim.DeepCopy()
	claim.UID = types.UID("uid-" + claim.Name)
	i.Claims[claim.Name] = claim
	return nil
}

// GetClaim is part of statefulset.StatefulPodControlObjectManager.
func (i *incumbent) GetClaim(_, name string) (*corev1.PersistentVolumeClaim, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if c := i.Claims[name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
}

// UpdateClaim is part of statefulset.StatefulPodControlObjectManager.
func (i *incumbent) UpdateClaim(claim *corev1.PersistentVolumeClaim, _ *appsv1.StatefulSet) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.Claims[claim.Name] = claim.DeepCopy()
	return nil
}

// UpdateStatefulSetStatus is part of statefulset.StatefulSetStatusUpdaterInterface. It refuses what an API server refuses.
func (i *incumbent) UpdateStatefulSetStatus(_ context.Context, _ *appsv1.StatefulSet, status *appsv1.StatefulSetStatus) error {
	counters := []int32{
		status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.CurrentReplicas, status.UpdatedReplicas,
	}
	if slices.Min(counters) < 0 || slices.Max(counters) > status.Replicas {
		i.refusals = append(i.refusals, fmt.Sprint("counters ", counters))
		return apierrors.NewInvalid(setKind.GroupKind(), i.Set.Name, nil)
	}
	set := i.Set.DeepCopy()
	set.Status = *status.DeepCopy()
	i.Set = set
	return nil
}

// ListControllerRevisions is part of history.Interface.
func (i *incumbent) ListControllerRevisions(
	parent metav1.Object, _ schema.GroupVersionKind, selector labels.Selector,
) ([]*appsv1.ControllerRevision, error) {
	var all []*appsv1.ControllerRevision
	for _, name := range slices.Sorted(maps.Keys(i.Revisions)) {
		r := i.Revisions[name]
		owner := metav1.GetControllerOf(r)
		if selector.Matches(labels.Set(r.Labels)) && (owner == nil || owner.UID == parent.GetUID()) {
			all = append(all, r)
		}
	}
	return all, nil
}

// CreateControllerRevision is part of history.Interface.
func (i *incumbent) CreateControllerRevision(
	parent metav1.Object, revision *appsv1.ControllerRevision, collisions *int32,
) (*appsv1.ControllerRevision, error) {
	r := revision.DeepCopy()
	for {
		r.Name = history.ControllerRevisionName(parent.GetName(), history.HashControllerRevision(revision, collisions))
		existing := i.Revisions[r.Name]
		switch {
		case existing == nil:
			r.Namespace, r.UID = parent.GetNamespace(), types.UID("uid-"+r.Name)
			r.CreationTimestamp = metav1.NewTime(i.Now)
			i.Revisions[r.Name] = r
			return r, nil
		case bytes.Equal(existing.Data.Raw, r.Data.Raw):
			return existing, nil
		}
		*collisions++
	}
}

// DeleteControllerRevision is part of history.Interface.
func (i *incumbent) DeleteControllerRevision(r *appsv1.ControllerRevision) error {
	delete(i.Revisions, r.Name)
	return nil
}

// UpdateControllerRevision is part of history.Interface.
func (i *incumbent) UpdateControllerRevision(r *appsv1.ControllerRevision, number int64) (*appsv1.ControllerRevision, error) {
	r = r.DeepCopy()
	r.Revision = number
	i.Revisions[r.Name] = r
	return r, nil
}

// AdoptControllerRevision is part of history.Interface.
func (i *incumbent) AdoptControllerRevision(
	parent metav1.Object, kind schema.GroupVersionKind, r *appsv1.ControllerRevision,
) (*appsv1.ControllerRevision, error) {
	r = i.Revisions[r.Name].DeepCopy()
	r.OwnerReferences = append(r.OwnerReferences, *metav1.NewControllerRef(parent, kind))
	i.Revisions[r.Name] = r
	return r, nil
}

// ReleaseControllerRevision is part of history.Interface. The controller does not use it.
func (i *incumbent) ReleaseControllerRevision(metav1.Object, *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	return nil, apierrors.NewMethodNotSupported(appsv1.Resource("controllerrevisions"), "release")
}

// describe tells what of a world has to be the same.
func describe(w *sim.World) []string {
	var lines []string
	for _, p := range w.Pods {
		lines = append(lines, describePod(p))
	}
	for _, c := range w.Claims {
		lines = append(lines, fmt.Sprintf("claim %s labels %v owners %s", c.Name, c.Labels, describeOwners(c.OwnerReferences)))
	}
	for _, r := range w.Revisions {
		lines = append(lines, fmt.Sprintf("revision %s number %d labels %v annotations %v owners %s data %s",
			r.Name, r.Revision, r.Labels, r.Annotations, describeOwners(r.OwnerReferences), r.Data.Raw))
	}
	slices.Sort(lines)
	return lines
}

// unindexed marks pods that had no label of their ordinal before. Ours adds it; theirs only along with the name.
const unindexed = "unindexed"

func describePod(p *corev1.Pod) string {
	tags := maps.Clone(p.Labels)
	if p.Annotations[unindexed] != "" {
		delete(tags, appsv1.PodIndexLabel)
	}
	spec := p.Spec.DeepCopy()
	slices.SortFunc(spec.Volumes, func(a, b corev1.Volume) int { return cmp.Compare(a.Name, b.Name) })
	data, err := json.Marshal(spec)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("pod %s going %s labels %v annotations %v finalizers %v generateName %q owners %s spec %s",
		p.Name, strconv.FormatBool(p.DeletionTimestamp != nil), tags, p.Annotations, p.Finalizers, p.GenerateName,
		describeOwners(p.OwnerReferences), data)
}

// describeOwners names owners without UIDs, which differ from world to world.
func describeOwners(refs []metav1.OwnerReference) string {
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = fmt.Sprintf("%s/%s/%s controller=%t", r.APIVersion, r.Kind, r.Name, r.Controller != nil && *r.Controller)
	}
	return strings.Join(names, ",")
}
