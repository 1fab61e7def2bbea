// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/preview"
)

// setEdit is what would become of a set.
type setEdit struct {
	key observe.Key
	// edit is nil if only the set's policies change.
	edit *edit
	// live is the set as it is and after as it would be; nil if there is none.
	live, after *appsv1.StatefulSet
	preview     *preview.Preview
}

// setEdits are the sets that the edits concern, in the order in which they are named.
func (c *cluster) setEdits(ctx context.Context, edits []*edit) ([]*setEdit, error) {
	var sets []*setEdit
	known := map[observe.Key]bool{}
	for _, e := range edits {
		if !e.is(setKind) {
			continue
		}
		s := &setEdit{key: observe.Key{Namespace: e.namespace, Name: e.name}, edit: e}
		if err := s.read(); err != nil {
			return nil, err
		}
		known[s.key] = true
		sets = append(sets, s)
	}
	targets, err := targetsOf(edits)
	if err != nil {
		return nil, err
	}
	for _, key := range targets {
		if known[key] {
			continue
		}
		known[key] = true
		set, err := c.client.AppsV1().StatefulSets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get set %s: %w", key, err)
		}
		sets = append(sets, &setEdit{key: key, live: set, after: set})
	}
	return sets, nil
}

func (s *setEdit) read() error {
	e := s.edit
	if e.live != nil {
		s.live = &appsv1.StatefulSet{}
		if err := typed(e.live, s.live); err != nil {
			return err
		}
	}
	if after := cmp.Or(e.after, e.anew); after != nil {
		s.after = &appsv1.StatefulSet{}
		return typed(after, s.after)
	}
	return nil
}

// targetsOf are the sets that the policies among the edits name, now or afterwards.
func targetsOf(edits []*edit) ([]observe.Key, error) {
	var keys []observe.Key
	for _, e := range edits {
		before, after, err := e.policies()
		if err != nil {
			return nil, err
		}
		for _, p := range []*v1alpha1.StatefulSetPolicy{before, after} {
			if p != nil {
				keys = append(keys, observe.Key{Namespace: e.namespace, Name: p.Spec.TargetRef.Name})
			}
		}
	}
	return keys, nil
}

// policies are the policy that the edit is about as it is and as it would be; nil if there is none.
func (e *edit) policies() (before, after *v1alpha1.StatefulSetPolicy, err error) {
	if !e.is(policyKind) || e.isRefused() {
		return nil, nil, nil
	}
	if e.live != nil {
		before = &v1alpha1.StatefulSetPolicy{}
		if err := typed(e.live, before); err != nil {
			return nil, nil, err
		}
	}
	after = &v1alpha1.StatefulSetPolicy{}
	return before, after, typed(e.after, after)
}

// previewAll previews the sets of one namespace.
func (c *cluster) previewAll(ctx context.Context, namespace string, sets []*setEdit, edits []*edit) error {
	ahead := amended{Interface: c.client, sets: map[string]*appsv1.StatefulSet{}}
	for _, s := range sets {
		if s.after != nil {
			ahead.sets[s.key.Name] = s.after
		}
	}
	observer, err := observe.Load(ctx, ahead, c.policies, namespace, c.Options)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if s.after == nil && (s.edit.isRefused() || s.live == nil) {
			continue
		}
		if err := s.look(observer, edits); err != nil {
			return err
		}
	}
	return nil
}

// look previews the set.
func (s *setEdit) look(observer *observe.Observer, edits []*edit) error {
	snapshot, view, err := observer.Look(s.key, now())
	if err != nil || view != observe.Fresh {
		return err
	}
	snapshot.Set = s.live
	e := preview.Edit{Live: snapshot, After: s.after, Anew: s.edit != nil && s.edit.anew != nil}
	if e.Policies, err = amend(snapshot.Policies, s.key, edits); err != nil {
		return err
	}
	s.preview = new(preview.Of(e))
	return nil
}

// amend gives the policies of a set after the edits.
func amend(live []*v1alpha1.StatefulSetPolicy, key observe.Key, edits []*edit) ([]*v1alpha1.StatefulSetPolicy, error) {
	policies := slices.Clone(live)
	for _, e := range edits {
		_, after, err := e.policies()
		if err != nil {
			return nil, err
		}
		if after == nil || e.namespace != key.Namespace {
			continue
		}
		policies = slices.DeleteFunc(policies, func(p *v1alpha1.StatefulSetPolicy) bool { return p.Name == after.Name })
		if after.Spec.TargetRef.Name == key.Name {
			policies = append(policies, after)
		}
	}
	return policies, nil
}

// amended is a cluster whose sets are listed as they would be after the edits. So a snapshot of it holds the claims of all
// ordinals that a set will have, and what a set meets that is not there yet.
type amended struct {
	kubernetes.Interface

	sets map[string]*appsv1.StatefulSet
}

// AppsV1 gives the amended sets.
func (a amended) AppsV1() appsv1client.AppsV1Interface {
	return amendedApps{a.Interface.AppsV1(), a.sets}
}

type amendedApps struct {
	appsv1client.AppsV1Interface

	sets map[string]*appsv1.StatefulSet
}

func (a amendedApps) StatefulSets(namespace string) appsv1client.StatefulSetInterface {
	return amendedSets{a.AppsV1Interface.StatefulSets(namespace), a.sets}
}

type amendedSets struct {
	appsv1client.StatefulSetInterface

	sets map[string]*appsv1.StatefulSet
}

func (a amendedSets) List(ctx context.Context, o metav1.ListOptions) (*appsv1.StatefulSetList, error) {
	list, err := a.StatefulSetInterface.List(ctx, o)
	if err != nil {
		return nil, err
	}
	list.Items = slices.DeleteFunc(list.Items, func(s appsv1.StatefulSet) bool { return a.sets[s.Name] != nil })
	for _, s := range a.sets {
		list.Items = append(list.Items, *s)
	}
	return list, nil
}
