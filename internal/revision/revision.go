// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revision records pod templates in ControllerRevisions, byte for byte as kube-controller-manager does, so that
// either controller understands what the other has written, and so does kubectl.
package revision

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// HashLabel is the label of a revision that tells the hash of its data.
const HashLabel = "controller.kubernetes.io/hash"

// maxPrefix is how much of the set's name goes into a revision's name.
const maxPrefix = 223

// Data is what a revision of template holds: a strategic merge patch that replaces a set's template by this one.
// Numbers pass through float64, as they do in kube-controller-manager: the bytes decide whether two revisions are equal.
func Data(template *corev1.PodTemplateSpec) ([]byte, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encode template: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("decode template: %w", err)
	}
	fields["$patch"] = "replace"
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
	if err != nil {
		return nil, fmt.Errorf("encode revision: %w", err)
	}
	return data, nil
}

// Hash is the hash of a revision's data. Collisions is counted up each time the name made of it was taken.
func Hash(data []byte, collisions int32) string {
	h := fnv.New32()
	_, _ = h.Write(data)
	_, _ = h.Write([]byte(strconv.FormatInt(int64(collisions), 10)))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// Name is the name of the revision of set with the given hash.
func Name(set, hash string) string {
	return set[:min(len(set), maxPrefix)] + "-" + hash
}

// Fits tells if a name is one that a revision of the set may have.
func Fits(set, name string) bool {
	hash, ok := strings.CutPrefix(name, Name(set, ""))
	return ok && hash != "" && !strings.Contains(hash, "-")
}

// New is the revision of the template that set has now.
func New(set *appsv1.StatefulSet, number int64, collisions int32) (*appsv1.ControllerRevision, error) {
	data, err := Data(&set.Spec.Template)
	if err != nil {
		return nil, err
	}
	hash := Hash(data, collisions)
	labels := make(map[string]string, len(set.Spec.Template.Labels)+1)
	maps.Copy(labels, set.Spec.Template.Labels)
	labels[HashLabel] = hash
	annotations := make(map[string]string, len(set.Annotations))
	maps.Copy(annotations, set.Annotations)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:            Name(set.Name, hash),
			Namespace:       set.Namespace,
			Labels:          labels,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{Owner(set)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}, nil
}

// Owner is the reference by which set owns its pods, revisions and claims.
func Owner(set *appsv1.StatefulSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
}

// Compare orders revisions from the oldest to the newest.
func Compare(a, b *appsv1.ControllerRevision) int {
	return cmp.Or(
		cmp.Compare(a.Revision, b.Revision),
		a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

// Sorted is a copy of revisions, oldest first.
func Sorted(revisions []*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	return slices.SortedFunc(slices.Values(revisions), Compare)
}

// IsEqual tells if two revisions hold the same bytes.
func IsEqual(a, b *appsv1.ControllerRevision) bool {
	return bytes.Equal(a.Data.Raw, b.Data.Raw)
}

// Template is the pod template that set has when it is put back to revision r.
func Template(set *appsv1.StatefulSet, r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	if t, ok := replacement(r.Data.Raw); ok {
		return t, nil
	}
	current, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("encode set: %w", err)
	}
	patched, err := strategicpatch.StrategicMergePatch(current, r.Data.Raw, set)
	if err != nil {
		return nil, fmt.Errorf("apply revision %s: %w", r.Name, err)
	}
	var restored appsv1.StatefulSet
	if err := json.Unmarshal(patched, &restored); err != nil {
		return nil, fmt.Errorf("decode revision %s: %w", r.Name, err)
	}
	return &restored.Spec.Template, nil
}

// replacement reads data of exactly the form that Data writes, which needs no merge.
func replacement(data []byte) (*corev1.PodTemplateSpec, bool) {
	spec, ok := onlyField(data, "spec")
	if !ok {
		return nil, false
	}
	raw, ok := onlyField(spec, "template")
	if !ok {
		return nil, false
	}
	var t struct {
		corev1.PodTemplateSpec
		Patch string `json:"$patch"`
	}
	if err := json.Unmarshal(raw, &t); err != nil || t.Patch != "replace" {
		return nil, false
	}
	return &t.PodTemplateSpec, true
}

func onlyField(data []byte, name string) (json.RawMessage, bool) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || len(fields) != 1 {
		return nil, false
	}
	value, ok := fields[name]
	return value, ok
}
