// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"iter"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
)

// rivals are the other sets that give names of a set's claims, each with the set's template whose claims those are. It
// needs no more of the set than its names, so that it can be gone. A rival that is being deleted still is one: its pods
// use the claims.
func (i *space) rivals(set *appsv1.StatefulSet) iter.Seq2[*appsv1.StatefulSet, string] {
	return func(yield func(*appsv1.StatefulSet, string) bool) {
		for t := range claim.Templates(set) {
			// Which ordinal it is does not matter: all claims of the two share their names, or none do.
			for c := range ordinal.ParseClaim(ordinal.ClaimName(t.Name, set.Name, 0)) {
				if c.Set == set.Name {
					continue
				}
				rival, ok := lookup(i.sets.GetStore(), set.Namespace, c.Set).(*appsv1.StatefulSet)
				if ok && hasTemplate(rival, c.Template) && !yield(rival, t.Name) {
					return
				}
			}
		}
	}
}

// rivalsOf are the set's rivals, each with the ordinals for which it has a pod.
func (i *space) rivalsOf(set *appsv1.StatefulSet) ([]claim.Rival, error) {
	var all []claim.Rival
	for rival, template := range i.rivals(set) {
		pods, err := indexed[*corev1.Pod](i.pods.GetIndexer(), byOwner, string(rival.UID))
		if err != nil {
			return nil, err
		}
		ordinals := map[int]bool{}
		for _, p := range pods {
			if n, named := ordinal.Of(rival.Name, p.Name); named {
				ordinals[n] = true
			}
		}
		all = append(all, claim.Rival{Set: rival, Template: template, Ordinals: ordinals})
	}
	return all, nil
}

// setsOfSet are the set itself, and its rivals.
func (i *space) setsOfSet(o metav1.Object) []Key {
	keys := []Key{{Namespace: o.GetNamespace(), Name: o.GetName()}}
	if set, ok := o.(*appsv1.StatefulSet); ok {
		for rival := range i.rivals(set) {
			keys = append(keys, Key{Namespace: rival.Namespace, Name: rival.Name})
		}
	}
	return keys
}
