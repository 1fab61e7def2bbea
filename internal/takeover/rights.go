// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
)

// purpose is what a right is needed for.
type purpose string

const (
	forSets     purpose = "to see what would change"
	forPolicies purpose = "to see the policies of sets"
	forLeases   purpose = "to see who leads"
	forFlags    purpose = "to see how kube-controller-manager is started"
	forCanary   purpose = "for the canary"
)

// Right is one verb on one resource.
type Right struct {
	Verb string `json:"verb"`
	// Resource is as RBAC names it, with its group behind a dot.
	Resource string `json:"resource"`
	// Namespace is where it is needed; empty for all.
	Namespace string `json:"namespace,omitempty"`
	// For is what it is needed for, in words.
	For purpose `json:"for"`
}

// String tells the right in words.
func (r Right) String() string {
	where := ""
	if r.Namespace != "" {
		where = " in namespace " + r.Namespace
	}
	return fmt.Sprintf("%s %s%s, %s", r.Verb, r.Resource, where, r.For)
}

// needed are the rights of which a check makes use.
func (c *check) needed() []Right {
	all := []Right{
		{"get", "leases.coordination.k8s.io", metav1.NamespaceSystem, forLeases},
		{"list", "pods", metav1.NamespaceSystem, forFlags},
		{"list", v1alpha1.Resource + "." + v1alpha1.Group, c.Namespace, forPolicies},
	}
	for _, resource := range []string{"statefulsets.apps", "pods", "persistentvolumeclaims", "controllerrevisions.apps"} {
		all = append(all, Right{"list", resource, c.Namespace, forSets})
	}
	if c.NoCanary {
		return all
	}
	for _, one := range []string{
		"create namespaces", "delete namespaces", "list namespaces", "create statefulsets.apps", "get statefulsets.apps",
		"list controllerrevisions.apps", "list pods", "list events", "get serviceaccounts",
	} {
		verb, resource, _ := strings.Cut(one, " ")
		all = append(all, Right{verb, resource, metav1.NamespaceAll, forCanary})
	}
	return all
}

// learnRights asks which rights are missing.
func (c *check) learnRights(ctx context.Context) error {
	c.lacks = map[purpose]bool{}
	reviews := c.Client.AuthorizationV1().SelfSubjectAccessReviews()
	for _, r := range c.needed() {
		resource, group, _ := strings.Cut(r.Resource, ".")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.Namespace, Verb: r.Verb, Group: group, Resource: resource,
			},
		}}
		answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
		switch {
		case apierrors.IsForbidden(err):
			// What is refused will show when it is tried.
			return nil
		case err != nil:
			return fmt.Errorf("ask for rights: %w", err)
		case !answer.Status.Allowed:
			c.lacks[r.For] = true
			c.report.Missing = append(c.report.Missing, r)
		}
	}
	return nil
}

// may tells if nothing is missing for a purpose.
func (c *check) may(p purpose) bool { return !c.lacks[p] }
