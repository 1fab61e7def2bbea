// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/revision"
)

// newPod is the pod to create for ordinal n. It is false when the revision that the pod has to be made from cannot be read,
// which is then waited for.
func (p *planner) newPod(n int) (*corev1.Pod, bool) {
	r, cached := p.revisionFor(n), &p.current
	if r == p.resolved.Update {
		cached = &p.update
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

// revisionFor is the revision that a pod is made from that is created now for ordinal n.
func (p *planner) revisionFor(n int) *appsv1.ControllerRevision {
	if p.keepsCurrent(n) {
		return p.resolved.Current
	}
	return p.rollout.target
}

// keepsCurrent tells if a pod that is created now for ordinal n is made from the current revision. That goes by the
// partition; a set whose strategy has no rollingUpdate block goes by how many pods its status calls current. While a rollout
// is halted, no pod has its revision that had not.
func (p *planner) keepsCurrent(n int) bool {
	if p.rollout.frozen {
		return true
	}
	if p.Set.Spec.UpdateStrategy.RollingUpdate != nil {
		return n < p.span.Start+Partition(p.Set)
	}
	return p.comesBackAtCurrent(n)
}

// comesBackAtCurrent tells if a pod comes back at the current revision although it will be updated, for want of a
// rollingUpdate block. One that was stuck does not: it would be stuck again. Nor does any where a leader goes last: the pods
// that are updated are then not the highest.
func (p *planner) comesBackAtCurrent(n int) bool {
	return p.Set.Spec.UpdateStrategy.RollingUpdate == nil && p.countsCurrent() && p.rules.Leader == nil &&
		p.span.Below(n) < int(p.Set.Status.CurrentReplicas) && !p.Unstuck[ordinal.PodName(p.Set.Name, n)]
}

// countsCurrent tells if a missing rollingUpdate block brings pods back at the current revision. It does not for a Parallel
// set, whose update takes outdated pods without waiting for them: such a pod would be deleted as soon as it is created, over
// and over.
func (p *planner) countsCurrent() bool {
	return p.strategy() == appsv1.RollingUpdateStatefulSetStrategyType && p.isOrdered()
}

// Partition is how many ordinals from the start of the range an update leaves alone.
func Partition(set *appsv1.StatefulSet) int {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
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

// nameFault tells why no pod of set can have ordinal n, with the limit; empty if it can.
func nameFault(set *appsv1.StatefulSet, revisionName string, n int) string {
	pod := ordinal.PodName(set.Name, n)
	switch {
	case len(pod) > validation.DNS1123LabelMaxLength:
		return fmt.Sprintf("its name %s has %d characters, and a host name has at most %d", pod, len(pod), validation.DNS1123LabelMaxLength)
	case len(validation.IsDNS1123Label(pod)) > 0:
		return fmt.Sprintf("its name %s is no host name: %s", pod, validation.IsDNS1123Label(pod)[0])
	case len(revisionName) > validation.LabelValueMaxLength:
		hash := len(revisionName) - len(set.Name)
		return fmt.Sprintf("the label with its revision %s would have %d characters, and a label has at most %d: name the set with at most %d",
			revisionName, len(revisionName), validation.LabelValueMaxLength, validation.LabelValueMaxLength-hash)
	case set.Spec.ServiceName != "" && len(validation.IsDNS1123Label(set.Spec.ServiceName)) > 0:
		return fmt.Sprintf("serviceName %s is no host name: %s", set.Spec.ServiceName, validation.IsDNS1123Label(set.Spec.ServiceName)[0])
	}
	return ""
}

// identity are the labels that tell who a pod is.
func identity(name string, n int) map[string]string {
	return map[string]string{
		appsv1.StatefulSetPodNameLabel: name,
		appsv1.PodIndexLabel:           strconv.Itoa(n),
	}
}

// lostIdentity are those of these labels that a pod does not have as it should.
func lostIdentity(pod *corev1.Pod, n int) map[string]string {
	if pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name && pod.Labels[appsv1.PodIndexLabel] == strconv.Itoa(n) {
		return nil
	}
	labels := identity(pod.Name, n)
	maps.DeleteFunc(labels, func(key, value string) bool { return pod.Labels[key] == value })
	return labels
}
