// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/policy"
)

// ErrNotInstalled means that a cluster does not serve policies.
var ErrNotInstalled = errors.New("this cluster knows no StatefulSetPolicies (the CustomResourceDefinition " +
	v1alpha1.Resource + "." + v1alpha1.Group + " is not installed)")

// PoliciesOf lists the policies that name a set, oldest first. A cluster that does not serve policies has none.
func PoliciesOf(ctx context.Context, client observe.PolicyAPI, set string) ([]*v1alpha1.StatefulSetPolicy, error) {
	all, err := listPolicies(ctx, client, set)
	if errors.Is(err, ErrNotInstalled) {
		return nil, nil
	}
	return all, err
}

func listPolicies(ctx context.Context, client observe.PolicyAPI, set string) ([]*v1alpha1.StatefulSetPolicy, error) {
	list, err := client.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, ErrNotInstalled
	}
	if err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	var named []*v1alpha1.StatefulSetPolicy
	for i := range list.Items {
		if list.Items[i].Spec.TargetRef.Name == set {
			named = append(named, &list.Items[i])
		}
	}
	return policy.Sorted(named), nil
}

// onlyPolicy is the policy of a set; nil if it has none.
func onlyPolicy(ctx context.Context, client observe.PolicyAPI, set string) (*v1alpha1.StatefulSetPolicy, error) {
	all, err := listPolicies(ctx, client, set)
	switch {
	case err != nil || len(all) == 0:
		return nil, err
	case len(all) > 1:
		return nil, fmt.Errorf("%s has several policies, so that none is obeyed: %s; delete all but one", set, join(policyNames(all)))
	}
	return all[0], nil
}

// Pause holds up the rollout of a set, and tells what it did. If the set has no policy, it makes one of the set's name.
func Pause(ctx context.Context, client observe.PolicyAPI, namespace, set string) (string, error) {
	p, err := onlyPolicy(ctx, client, set)
	if err != nil {
		return "", err
	}
	if p == nil {
		return createPaused(ctx, client, namespace, set)
	}
	if p.Spec.Rollout != nil && p.Spec.Rollout.Paused {
		return fmt.Sprintf("%s is paused already, by its policy %s", set, p.Name), nil
	}
	if err := patch(ctx, client, p, map[string]any{"spec": map[string]any{"rollout": map[string]any{"paused": true}}}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s paused: its policy %s lets no pod be replaced because of the template", set, p.Name), nil
}

func createPaused(ctx context.Context, client observe.PolicyAPI, namespace, set string) (string, error) {
	p := &v1alpha1.StatefulSetPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: set},
		Spec: v1alpha1.StatefulSetPolicySpec{
			TargetRef: v1alpha1.TargetRef{Name: set},
			Rollout:   &v1alpha1.RolloutPolicy{Paused: true},
		},
	}
	if _, err := client.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create policy %s: %w", set, err)
	}
	return fmt.Sprintf("%s paused: its new policy %s lets no pod be replaced because of the template", set, set), nil
}

// Resume ends the pause of a set's rollout, also that after a batch, and tells what it did.
func Resume(ctx context.Context, client observe.PolicyAPI, set string, now time.Time) (string, error) {
	p, err := onlyPolicy(ctx, client, set)
	if err != nil {
		return "", err
	}
	if p == nil {
		return set + " has no policy, so nothing pauses it", nil
	}
	change := annotation(v1alpha1.ResumeAtAnnotation, resumeTime(p, now))
	paused := p.Spec.Rollout != nil && p.Spec.Rollout.Paused
	if paused {
		change["spec"] = map[string]any{"rollout": map[string]any{"paused": false}}
	}
	if err := patch(ctx, client, p, change); err != nil {
		return "", err
	}
	if paused {
		return fmt.Sprintf("%s resumed: its policy %s pauses it no longer", set, p.Name), nil
	}
	return fmt.Sprintf("%s resumed: its policy %s lets the next batch begin", set, p.Name), nil
}

// Retry lets the revision of a set whose rollout failed be tried again, and tells what it did.
func Retry(ctx context.Context, client observe.PolicyAPI, set string, now time.Time) (string, error) {
	p, err := onlyPolicy(ctx, client, set)
	if err != nil {
		return "", err
	}
	if p == nil {
		return "", fmt.Errorf("%s has no policy, so no rollout of it was given up", set)
	}
	if err := patch(ctx, client, p, annotation(v1alpha1.RetryAtAnnotation, retryTime(p, now))); err != nil {
		return "", err
	}
	what := "its template"
	if p.Status.FailedRevision != "" {
		what = p.Status.FailedRevision
	}
	return fmt.Sprintf("%s: its policy %s lets %s be tried again", set, p.Name, what), nil
}

// resumeTime is now, but not before the pause that is to be ended, however the clock of this machine goes.
func resumeTime(p *v1alpha1.StatefulSetPolicy, now time.Time) time.Time {
	if r := p.Status.Rollout; r != nil {
		return latest(now, r.LastProgressTime.Add(time.Second))
	}
	return now
}

// retryTime is now, but not before the failure that is to be forgotten.
func retryTime(p *v1alpha1.StatefulSetPolicy, now time.Time) time.Time {
	if t := p.Status.FailedTime; t != nil {
		now = latest(now, t.Add(time.Second))
	}
	return resumeTime(p, now)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func annotation(name string, at time.Time) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: at.UTC().Format(time.RFC3339Nano)}}}
}

func patch(ctx context.Context, client observe.PolicyAPI, p *v1alpha1.StatefulSetPolicy, change map[string]any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write change of policy %s: %w", p.Name, err)
	}
	if _, err := client.Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change policy %s: %w", p.Name, err)
	}
	return nil
}
