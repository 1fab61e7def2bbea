// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/resource"
)

// Change is what would be done to a set.
type Change struct {
	// Images are given as container=image, or as image if there is one container.
	Images []string
	// Env are given as name=value, for all containers.
	Env                 []string
	Replicas, Partition *int32
	Delete              bool
}

// IsEmpty tells if nothing would be done.
func (c Change) IsEmpty() bool {
	return !c.Delete && !c.edits()
}

func (c Change) edits() bool {
	return len(c.Images) > 0 || len(c.Env) > 0 || c.Replicas != nil || c.Partition != nil
}

// changeSets asks for each set what the change would make of it.
func (c *cluster) changeSets(ctx context.Context) ([]*edit, error) {
	if c.Change.Delete && c.Change.edits() {
		return nil, errors.New("a set is either changed or deleted")
	}
	result := c.factory.NewBuilder().
		Unstructured().
		NamespaceParam(c.namespace).DefaultNamespace().
		ResourceTypeOrNameArgs(false, c.Sets...).
		Flatten().
		Do()
	infos, err := result.Infos()
	if err != nil {
		return nil, err
	}
	var edits []*edit
	for _, info := range infos {
		e := &edit{kind: info.Mapping.GroupVersionKind, namespace: info.Namespace, name: info.Name, live: info.Object}
		if !e.is(setKind) {
			return nil, fmt.Errorf("%s %s is no StatefulSet", e.kind.Kind, e.name)
		}
		if err := c.change(ctx, e, info); err != nil {
			return nil, err
		}
		edits = append(edits, e)
	}
	return edits, nil
}

func (c *cluster) change(ctx context.Context, e *edit, info *resource.Info) error {
	dry := []string{metav1.DryRunAll}
	sets := c.client.AppsV1().StatefulSets(e.namespace)
	if c.Change.Delete {
		e.refused = sets.Delete(ctx, e.name, metav1.DeleteOptions{
			DryRun: dry, PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		return nil
	}
	set := &appsv1.StatefulSet{}
	if err := typed(info.Object, set); err != nil {
		return err
	}
	if err := c.Change.apply(set); err != nil {
		return err
	}
	var after *appsv1.StatefulSet
	if after, e.refused = sets.Update(ctx, set, metav1.UpdateOptions{DryRun: dry}); !e.isRefused() {
		e.after = after
	}
	return nil
}

// apply changes a set.
func (c Change) apply(set *appsv1.StatefulSet) error {
	if c.Replicas != nil {
		set.Spec.Replicas = c.Replicas
	}
	if c.Partition != nil {
		strategy := &set.Spec.UpdateStrategy
		if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			return fmt.Errorf("set %s has the strategy OnDelete, which has no partition", set.Name)
		}
		if strategy.RollingUpdate == nil {
			strategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		}
		strategy.RollingUpdate.Partition = c.Partition
	}
	spec := &set.Spec.Template.Spec
	for _, text := range c.Images {
		if err := setImage(set.Name, spec, text); err != nil {
			return err
		}
	}
	for _, text := range c.Env {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return fmt.Errorf("environment %q is not of the form name=value", text)
		}
		for i := range spec.Containers {
			setEnv(&spec.Containers[i], name, value)
		}
	}
	return nil
}

func setImage(set string, spec *corev1.PodSpec, text string) error {
	container, image, ok := strings.Cut(text, "=")
	if !ok {
		if len(spec.Containers) != 1 {
			return fmt.Errorf("set %s has %d containers; name the one that gets the image: container=%s", set, len(spec.Containers), text)
		}
		container, image = spec.Containers[0].Name, text
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if containers[i].Name == container {
				containers[i].Image = image
				return nil
			}
		}
	}
	return fmt.Errorf("set %s has no container %s", set, container)
}

func setEnv(c *corev1.Container, name, value string) {
	for i := range c.Env {
		if c.Env[i].Name == name {
			c.Env[i] = corev1.EnvVar{Name: name, Value: value}
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}
