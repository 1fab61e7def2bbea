// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// newPod is the pod to create for ordinal n. It is false when the revision that the pod has to be made from cannot be read,
// which is then waited for.
func (p *planner) newPod(n int) (*corev1.Pod, bool) {
	r, cached := p.resolved.Update, &p.update
	if p.keepsCurrent(n) {
		r, cached = p.resolved.Current, &p.current
	}
	if *cached == nil {
		template, err := revision.Template(p.Set, r)
		if err != nil {
			p.wait(Wait{Reason: WaitBadRevision, On: refRevision(r), For: ordinal.PodName(p.Set.Name, n)})
			return nil, false
		}
		*cached = template
	}
	return p.podFrom(*cached, r.Name, n), true
}

// keepsCurrent tells if a pod that is created now for ordinal n is made from the current revision. That goes by the
// partition; a set whose strategy has no rollingUpdate block goes by how many pods its status calls current.
func (p *planner) keepsCurrent(n int) bool {
	if p.Set.Spec.UpdateStrategy.RollingUpdate != nil {
		return n < p.span.Start+p.partition()
	}
	return p.countsCurrent() && n < p.span.Start+int(p.Set.Status.CurrentReplicas)
}

// countsCurrent tells if a missing rollingUpdate block brings pods back at the current revision. It does not for a Parallel
// set, whose update takes outdated pods without waiting for them: such a pod would be deleted as soon as it is created, over
// and over.
func (p *planner) countsCurrent() bool {
	return p.strategy() == appsv1.RollingUpdateStatefulSetStrategyType && p.isOrdered()
}

// partition is how many ordinals from the start of the range an update leaves alone.
func (p *planner) partition() int {
	rolling := p.Set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.Partition == nil {
		return 0
	}
	return int(*rolling.Partition)
}

func (p *planner) podFrom(template *corev1.PodTemplateSpec, revisionName string, n int) *corev1.Pod {
	name := ordinal.PodName(p.Set.Name, n)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			GenerateName:    p.Set.Name + "-",
			Namespace:       p.Set.Namespace,
			Labels:          make(map[string]string, len(template.Labels)+3),
			Annotations:     make(map[string]string, len(template.Annotations)),
			Finalizers:      slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{revision.Owner(p.Set)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	maps.Copy(pod.Labels, template.Labels)
	maps.Copy(pod.Labels, identity(name, n))
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revisionName
	maps.Copy(pod.Annotations, template.Annotations)
	pod.Spec.Hostname = name
	pod.Spec.Subdomain = p.Set.Spec.ServiceName
	pod.Spec.Volumes = claim.Volumes(p.Set, pod.Spec.Volumes, n)
	return pod
}

// identity are the labels that tell who a pod is.
func identity(name string, n int) map[string]string {
	return map[string]string{
		appsv1.StatefulSetPodNameLabel: name,
		appsv1.PodIndexLabel:           strconv.Itoa(n),
	}
}
