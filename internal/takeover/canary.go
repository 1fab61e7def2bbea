// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

const (
	// canaryLabel marks the namespaces of canaries. Its value is for how many seconds one is in use.
	canaryLabel = "ordinal.dev/takeover-check"
	canaryName  = "canary"
	// nobody is a service account that does not exist, so that no pod of the canary is ever made, and a scheduler that does not, so
	// that none would run. Each controller at work tries, and tells so by an event of its own.
	nobody = "ordinal-takeover-check-nobody"
	// lookEvery is how often it is looked who reacted.
	lookEvery = 250 * time.Millisecond
	// removalTime is how long removing a canary may take, also when the check was interrupted.
	removalTime = 10 * time.Second
	// margin is for how much longer than it waits a check may use its canary.
	margin = removalTime + 20*time.Second
)

// sighting is who reacted to a canary.
type sighting struct {
	// ran means that there was one. Else why tells why not.
	ran bool
	why string
	// alive means that kube-controller-manager was at work: another of its controllers made the namespace's service account.
	alive bool
	// did is what each field manager did, in words, and when that was first seen, after so long.
	did   map[string][]string
	after map[string]time.Duration
	// waited is for how long it was looked.
	waited time.Duration
}

// canary makes a set that is never to have a pod, looks who reacts to it, and removes it.
func (c *check) canary(ctx context.Context) (s *sighting, err error) {
	s = &sighting{did: map[string][]string{}, after: map[string]time.Duration{}}
	switch {
	case c.NoCanary:
		s.why = "no canary was set out (--no-canary)"
		return s, nil
	case !c.may(forCanary):
		s.why = "no canary could be set out, as rights are missing"
		return s, nil
	}
	namespace, err := c.makeNamespace(ctx)
	if err != nil {
		return s.refused(ctx, err)
	}
	defer func() {
		if left := c.removeNamespace(ctx, namespace.Name); left != nil {
			err = errors.Join(err, fmt.Errorf("%w %s: %w", ErrCanaryLeft, namespace.Name, left))
		}
	}()
	c.removeLeftOver(ctx, namespace)
	set, err := c.Client.AppsV1().StatefulSets(namespace.Name).Create(ctx, newCanary(), metav1.CreateOptions{})
	if err != nil {
		return s.refused(ctx, err)
	}
	s.ran = true
	began := c.Now()
	err = wait.PollUntilContextTimeout(ctx, lookEvery, c.Wait, false, func(context.Context) (bool, error) {
		// The last look is not cut short by the end of the wait.
		err := c.look(ctx, set, s, c.Now().Sub(began))
		return s.reactedForeign(), err
	})
	s.waited = c.Now().Sub(began)
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return s, err
}

// refused tells why there is no canary: policies of the cluster may be against it.
func (s *sighting) refused(ctx context.Context, err error) (*sighting, error) {
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return s, err
	}
	s.why = fmt.Sprintf("the canary was refused: %v", err)
	return s, nil
}

// makeNamespace is not interrupted: of one that was made all the same, the name would not be known.
func (c *check) makeNamespace(ctx context.Context) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTime)
	defer cancel()
	use := strconv.Itoa(int((c.Wait + margin).Seconds()))
	return c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "ordinal-takeover-check-", Labels: map[string]string{canaryLabel: use},
	}}, metav1.CreateOptions{})
}

// ErrCanaryLeft means that a canary could not be removed. A later check will try again.
var ErrCanaryLeft = errors.New("remove the canary, namespace")

// removeNamespace removes a canary and its namespace, also when the check was interrupted.
func (c *check) removeNamespace(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTime)
	defer cancel()
	// The set goes first, in case kube-controller-manager, which empties namespaces, is down.
	errSet := c.Client.AppsV1().StatefulSets(name).Delete(ctx, canaryName, metav1.DeleteOptions{})
	errNamespace := c.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(errNamespace) || errNamespace == nil {
		return nil
	}
	return errors.Join(errSet, errNamespace)
}

// removeLeftOver removes the canaries of checks that were killed. By the clock of the API server, they are not in use any more.
func (c *check) removeLeftOver(ctx context.Context, own *corev1.Namespace) {
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: canaryLabel})
	if err != nil {
		return
	}
	for i := range list.Items {
		other := &list.Items[i]
		use, err := strconv.Atoi(other.Labels[canaryLabel])
		age := own.CreationTimestamp.Sub(other.CreationTimestamp.Time)
		if err == nil && other.Name != own.Name && other.DeletionTimestamp == nil && age > time.Duration(use)*time.Second {
			// If it fails, it is there for the next check, as it was for this one.
			_ = c.removeNamespace(ctx, other.Name)
		}
	}
}

func newCanary() *appsv1.StatefulSet {
	labels := map[string]string{"app": canaryName}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: canaryName, Labels: map[string]string{canaryLabel: "canary"}},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: canaryName,
			Replicas:    new(int32(1)),
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       newPod(),
			},
		},
	}
}

// newPod is a pod that no policy of a cluster should mind.
func newPod() corev1.PodSpec {
	little := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi")}
	return corev1.PodSpec{
		ServiceAccountName:           nobody,
		AutomountServiceAccountToken: new(false),
		SchedulerName:                nobody,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "none", Image: "ordinal.invalid/none:1",
			Resources: corev1.ResourceRequirements{Requests: little, Limits: little},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}

// look takes note of who has reacted so far.
func (c *check) look(ctx context.Context, canary *appsv1.StatefulSet, s *sighting, after time.Duration) error {
	_, err := c.Client.CoreV1().ServiceAccounts(canary.Namespace).Get(ctx, "default", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get service account: %w", err)
	}
	s.alive = s.alive || err == nil
	set, err := c.Client.AppsV1().StatefulSets(canary.Namespace).Get(ctx, canary.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get canary: %w", err)
	}
	for _, f := range set.ManagedFields {
		if f.Subresource == "status" {
			s.note(f.Manager, "wrote its status", after)
		}
	}
	return c.lookAround(ctx, canary, s, after)
}

// lookAround takes note of who has made something for the canary.
func (c *check) lookAround(ctx context.Context, canary *appsv1.StatefulSet, s *sighting, after time.Duration) error {
	revisions, errRevisions := c.Client.AppsV1().ControllerRevisions(canary.Namespace).List(ctx, metav1.ListOptions{})
	pods, errPods := c.Client.CoreV1().Pods(canary.Namespace).List(ctx, metav1.ListOptions{})
	events, errEvents := c.Client.CoreV1().Events(canary.Namespace).List(ctx, metav1.ListOptions{})
	if err := errors.Join(errRevisions, errPods, errEvents); err != nil {
		return fmt.Errorf("look at canary: %w", err)
	}
	for i := range revisions.Items {
		s.noteMade(&revisions.Items[i], "made its revision", after)
	}
	for i := range pods.Items {
		s.noteMade(&pods.Items[i], "made its pod", after)
	}
	for i := range events.Items {
		e := &events.Items[i]
		switch {
		case e.InvolvedObject.UID != canary.UID:
		case e.Reason == telemetry.EventOtherController:
			s.noteMade(e, "told that it leaves all sets to the other controller", after)
		default:
			s.noteMade(e, "tried to make its pod", after)
		}
	}
	return nil
}

// noteMade takes note of who made an object.
func (s *sighting) noteMade(o metav1.Object, what string, after time.Duration) {
	for _, f := range o.GetManagedFields() {
		if f.Subresource == "" {
			s.note(f.Manager, what, after)
			return
		}
	}
}

func (s *sighting) note(manager, what string, after time.Duration) {
	if isOurs(manager) {
		manager = telemetry.Manager
	}
	if !slices.Contains(s.did[manager], what) {
		s.did[manager] = append(s.did[manager], what)
	}
	if _, known := s.after[manager]; !known {
		s.after[manager] = after
	}
}

// reactedForeign tells if another controller than ours reacted.
func (s *sighting) reactedForeign() bool {
	for manager := range s.did {
		if !isOurs(manager) {
			return true
		}
	}
	return false
}

// tellBuiltIn tells what the canary showed of the built-in controller.
func (s *sighting) tellBuiltIn(c *Controller) {
	silence := duration.HumanDuration(s.waited)
	switch {
	case !s.ran:
		c.add(s.why)
	case s.reactedForeign():
		for _, manager := range slices.Sorted(maps.Keys(s.did)) {
			if !isOurs(manager) {
				s.tell(c, manager)
			}
		}
	case s.alive:
		c.add(fmt.Sprintf("it did nothing to a canary within %s, while other controllers of kube-controller-manager were at work", silence))
	default:
		c.add(fmt.Sprintf("nothing of kube-controller-manager reacted to a canary within %s: it seems to be down, and may have the controller "+
			"when it is back", silence))
	}
}

// tellOrdinal tells what the canary showed of ours.
func (s *sighting) tellOrdinal(c *Controller) {
	switch {
	case len(s.did[telemetry.Manager]) > 0:
		c.State = On
		s.tell(c, telemetry.Manager)
	case s.ran && c.State == On:
		c.add("it did nothing to a canary: it works only on some sets or namespaces, or has stopped for another controller (its log and the " +
			"metric ordinal_yields tell)")
	}
}

// tell tells what somebody did to the canary.
func (s *sighting) tell(c *Controller, manager string) {
	c.add(fmt.Sprintf("%s reacted to a canary after %s: it %s", manager,
		s.after[manager].Round(10*time.Millisecond), strings.Join(s.did[manager], ", ")))
}
