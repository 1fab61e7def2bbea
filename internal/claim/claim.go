// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claim knows which PersistentVolumeClaims a pod of a set wants, and which owners the set's retention policy
// gives them. It never deletes a claim: the garbage collector does, once the owners that the policy named are gone.
package claim

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// Templates gives the set's claim templates in their order. Of templates with one name, the last counts, in the place of the
// first.
func Templates(set *appsv1.StatefulSet) iter.Seq[*corev1.PersistentVolumeClaim] {
	all := set.Spec.VolumeClaimTemplates
	return func(yield func(*corev1.PersistentVolumeClaim) bool) {
		for i := range all {
			first, last := i, i
			for j := range all {
				if all[j].Name == all[i].Name {
					first, last = min(first, j), j
				}
			}
			if first == i && !yield(&all[last]) {
				return
			}
		}
	}
}

// Names are the names of the claims of the pod with ordinal n, in the order of the templates.
func Names(set *appsv1.StatefulSet, n int) []string {
	names := make([]string, 0, len(set.Spec.VolumeClaimTemplates))
	for t := range Templates(set) {
		names = append(names, ordinal.ClaimName(t.Name, set.Name, n))
	}
	return names
}

// New is the claim to create from template for the pod with ordinal n, which the set keeps. It has the owner that the
// policy wants from its first moment on, so a set that is deleted early leaves nothing behind.
func New(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, n int) *corev1.PersistentVolumeClaim {
	c := template.DeepCopy()
	c.Name = ordinal.ClaimName(template.Name, set.Name, n)
	c.Namespace = set.Namespace
	labels := make(map[string]string, len(c.Labels))
	maps.Copy(labels, c.Labels)
	if set.Spec.Selector != nil {
		maps.Copy(labels, set.Spec.Selector.MatchLabels)
	}
	c.Labels = labels
	v := Owners(set, Holder{Name: ordinal.PodName(set.Name, n)}, c)
	c.OwnerReferences = v.Refs
	return c
}

// Volumes are the volumes of the pod with ordinal n: one for each claim, in the order of the templates, before those of
// the pod template. A claim's volume takes the place of a template's volume with the same name.
func Volumes(set *appsv1.StatefulSet, own []corev1.Volume, n int) []corev1.Volume {
	volumes := make([]corev1.Volume, 0, len(set.Spec.VolumeClaimTemplates)+len(own))
	claimed := make(map[string]bool, len(set.Spec.VolumeClaimTemplates))
	for t := range Templates(set) {
		claimed[t.Name] = true
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ordinal.ClaimName(t.Name, set.Name, n)}
		volumes = append(volumes, corev1.Volume{
			Name:         t.Name,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source},
		})
	}
	for _, v := range own {
		if !claimed[v.Name] {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

// IsMounted tells if the pod has a volume for each claim that its ordinal n wants.
func IsMounted(set *appsv1.StatefulSet, pod *corev1.Pod, n int) bool {
	for t := range Templates(set) {
		if claimAt(pod, t.Name) != ordinal.ClaimName(t.Name, set.Name, n) {
			return false
		}
	}
	return true
}

// claimAt is the name of the claim that a pod has as the named volume; empty if it has none.
func claimAt(pod *corev1.Pod, volume string) string {
	name := ""
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == volume && v.PersistentVolumeClaim != nil {
			name = v.PersistentVolumeClaim.ClaimName
		}
	}
	return name
}

// Holder is the pod that uses a claim. UID is empty while the pod does not exist.
type Holder struct {
	Name string
	UID  types.UID
	// Condemned means that the set's range does not hold the pod any more.
	Condemned bool
}

// Verdict tells which owner references a claim should have.
type Verdict struct {
	Refs []metav1.OwnerReference
	// Change means that Refs differs from what the claim has.
	Change bool
	// Conflict means that another controller owns the claim, so that the policy cannot be followed.
	Conflict bool
}

// Owners applies the set's retention policy to a claim of the pod h. A claim that an earlier set or pod of the same name
// owns is left as it is: the garbage collector is about to take it.
func Owners(set *appsv1.StatefulSet, h Holder, c *corev1.PersistentVolumeClaim) Verdict {
	refs := c.OwnerReferences
	if ownedByEarlierSet(refs, set) || OwnedByEarlierPod(c, h) {
		return Verdict{Refs: refs}
	}
	p := policyOf(set)
	v := Verdict{Refs: refs, Conflict: p.follows() && hasForeignController(refs, set, h)}
	wantSet, wantPod := p.owners(h.Condemned)
	if v.Conflict {
		wantSet, wantPod = false, false
	}
	v.Change = ownerOf(refs, set.UID) != owns(wantSet) || (h.UID != "" && ownerOf(refs, h.UID) != owns(wantPod))
	if !v.Change {
		return v
	}
	v.Refs = withoutOurs(refs, set, h)
	if wantSet {
		v.Refs = append(v.Refs, revision.Owner(set))
	}
	if wantPod {
		v.Refs = append(v.Refs, podOwner(h))
	}
	return v
}

// withoutOurs are the references to others than the set and the pod.
func withoutOurs(refs []metav1.OwnerReference, set *appsv1.StatefulSet, h Holder) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool { return isSet(&r, set) || isPod(&r, h) })
}

// OwnedByEarlierPod tells if a pod with the holder's name and another UID owns the claim. If scaling down deletes claims,
// such a claim is doomed, and no pod may be started on it.
func OwnedByEarlierPod(c *corev1.PersistentVolumeClaim, h Holder) bool {
	for i := range c.OwnerReferences {
		if r := &c.OwnerReferences[i]; isPod(r, h) && r.UID != h.UID {
			return true
		}
	}
	return false
}

// DeletesWhenScaled tells if the claims of a pod go when the set is scaled below it.
func DeletesWhenScaled(set *appsv1.StatefulSet) bool {
	return policyOf(set).whenScaled
}

// policy tells in which cases claims are deleted.
type policy struct {
	whenScaled, whenDeleted bool
}

func policyOf(set *appsv1.StatefulSet) policy {
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	if p == nil {
		return policy{}
	}
	return policy{
		whenScaled:  p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		whenDeleted: p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
}

// follows tells if the policy ever wants an owner.
func (p policy) follows() bool {
	return p.whenScaled || p.whenDeleted
}

// owners tells if the set and if the pod has to own the claim.
func (p policy) owners(condemned bool) (set, pod bool) {
	if condemned && p.whenScaled {
		return false, true
	}
	return p.whenDeleted, false
}

// ownership is what a list of references says about one owner.
type ownership int

const (
	none ownership = iota
	// dependent means owned without being controlled, as controllers before Kubernetes 1.31 wrote it.
	dependent
	controlled
)

func owns(wanted bool) ownership {
	if wanted {
		return controlled
	}
	return none
}

func ownerOf(refs []metav1.OwnerReference, uid types.UID) ownership {
	found := none
	for i := range refs {
		if refs[i].UID != uid {
			continue
		}
		if !isController(&refs[i]) {
			return dependent
		}
		found = controlled
	}
	return found
}

func ownedByEarlierSet(refs []metav1.OwnerReference, set *appsv1.StatefulSet) bool {
	for i := range refs {
		if isSet(&refs[i], set) && refs[i].UID != set.UID {
			return true
		}
	}
	return false
}

func hasForeignController(refs []metav1.OwnerReference, set *appsv1.StatefulSet, h Holder) bool {
	for i := range refs {
		if isController(&refs[i]) && !isSet(&refs[i], set) && !isPod(&refs[i], h) {
			return true
		}
	}
	return false
}

func isController(r *metav1.OwnerReference) bool {
	return r.Controller != nil && *r.Controller
}

func isSet(r *metav1.OwnerReference, set *appsv1.StatefulSet) bool {
	return r.APIVersion == appsv1.SchemeGroupVersion.String() && r.Kind == "StatefulSet" && r.Name == set.Name
}

func isPod(r *metav1.OwnerReference, h Holder) bool {
	return r.APIVersion == "v1" && r.Kind == "Pod" && r.Name == h.Name
}

func podOwner(h Holder) metav1.OwnerReference {
	owner := &metav1.ObjectMeta{Name: h.Name, UID: h.UID}
	return *metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Pod"))
}

// Rival is another set of the namespace, one of whose templates gives the same claim names as a template of this set: claim
// data-a-b-0 is that of template data of set a-b, and that of template data-a of set b.
type Rival struct {
	Set *appsv1.StatefulSet
	// Template is the template of this set whose claims the rival shares.
	Template string
	// Ordinals are those for which the rival has a pod.
	Ordinals map[int]bool
}

// HeldBy tells which of the rivals, if any, the claim of a template for ordinal n belongs to, and not to this set. The first
// evidence counts that tells them apart: an owner of the claim, the set's selector that its labels fit, a pod that uses it,
// the age of the sets. c is nil if there is no claim yet.
func HeldBy(
	set *appsv1.StatefulSet, c *corev1.PersistentVolumeClaim, template string, n int, hasPod bool, rivals []Rival,
) (string, bool) {
	for _, r := range rivals {
		if r.Template == template && isPreferred(r, set, c, n, hasPod) {
			return r.Set.Name, true
		}
	}
	return "", false
}

// isPreferred tells if the claim is the rival's and not the set's.
func isPreferred(r Rival, set *appsv1.StatefulSet, c *corev1.PersistentVolumeClaim, n int, hasPod bool) bool {
	if c == nil && !ordinal.RangeOf(r.Set).Contains(n) {
		// Neither has it, and the rival does not want it.
		return false
	}
	if c != nil {
		for _, has := range []func(*appsv1.StatefulSet) bool{
			func(s *appsv1.StatefulSet) bool { return isOwnedThrough(c, s, n) },
			func(s *appsv1.StatefulSet) bool { return fitsSelector(c, s) },
		} {
			if theirs, ours := has(r.Set), has(set); theirs != ours {
				return theirs
			}
		}
	}
	if theirs := r.Ordinals[n]; theirs != hasPod {
		return theirs
	}
	return isOlder(r.Set, set)
}

// isOwnedThrough tells if the set or its pod owns the claim.
func isOwnedThrough(c *corev1.PersistentVolumeClaim, set *appsv1.StatefulSet, n int) bool {
	h := Holder{Name: ordinal.PodName(set.Name, n)}
	return slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool {
		return (isSet(&r, set) && r.UID == set.UID) || isPod(&r, h)
	})
}

func fitsSelector(c *corev1.PersistentVolumeClaim, set *appsv1.StatefulSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(c.Labels))
}

func isOlder(a, b *appsv1.StatefulSet) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) < 0
}
