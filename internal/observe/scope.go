// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Scope says which sets are ours. The zero value says that all are.
type Scope struct {
	// Namespaces are those whose sets are ours; nothing outside of them is read. If there are none, those of all are.
	Namespaces []string
	// Selector says which sets are ours by their labels; nil for all. Others are read, as the names of their claims count.
	Selector labels.Selector
}

// selects tells if a set of the scope's namespaces is ours.
func (s Scope) selects(set *appsv1.StatefulSet) bool {
	return s.Selector == nil || s.Selector.Matches(labels.Set(set.Labels))
}

// strip drops what planning does not need before an object is cached. Of sets that are not ours, that is nearly all.
func (s Scope) strip(obj any) (any, error) {
	if set, ok := obj.(*appsv1.StatefulSet); ok && !s.selects(set) {
		set.Annotations = nil
		set.Spec.Template.Spec.Reset()
		set.Spec.Template.ObjectMeta.Reset()
		set.Status = appsv1.StatefulSetStatus{}
	}
	return strip(obj)
}
