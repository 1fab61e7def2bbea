// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install puts into a cluster what StatefulSetPolicies need there: their definition, and the rights of users.
package install

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacv1apply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
)

const (
	// fieldManager owns the fields that are written here.
	fieldManager = "ordinal"
	// establishing is how long the API server may take until it serves a new resource. It takes a few milliseconds.
	establishing = 10 * time.Second
)

// Policies makes a cluster serve policies, or brings up to date what another version installed, and returns when they are
// served. It needs the rights of an administrator.
func Policies(ctx context.Context, cfg *rest.Config) error {
	definitions, err := apiextensionsclient.NewForConfig(cfg)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	crds := definitions.CustomResourceDefinitions()
	definition, err := crds.Patch(ctx, v1alpha1.DefinitionName, types.ApplyYAMLPatchType, []byte(v1alpha1.Definition()),
		metav1.PatchOptions{FieldManager: fieldManager, Force: new(true)})
	if err != nil {
		return fmt.Errorf("apply definition %s: %w", v1alpha1.DefinitionName, err)
	}
	for _, role := range Roles() {
		o := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
		if _, err := client.RbacV1().ClusterRoles().Apply(ctx, role, o); err != nil {
			return fmt.Errorf("apply cluster role %s: %w", *role.Name, err)
		}
	}
	return awaitEstablished(ctx, crds, definition)
}

// awaitEstablished waits until a definition is obeyed. Last is what is known of it.
func awaitEstablished(
	ctx context.Context, crds apiextensionsclient.CustomResourceDefinitionInterface, last *apiextensionsv1.CustomResourceDefinition,
) error {
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, establishing, true, func(ctx context.Context) (bool, error) {
		if isTrue(last, apiextensionsv1.Established) {
			return true, nil
		}
		var err error
		last, err = crds.Get(ctx, v1alpha1.DefinitionName, metav1.GetOptions{})
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait until %s are served (conditions %+v): %w", v1alpha1.DefinitionName, last.Status.Conditions, err)
	}
	return nil
}

func isTrue(d *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == kind {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// Roles add rights on policies to the built-in roles of users. Edit has all that view has, and admin all that edit has.
func Roles() []*rbacv1apply.ClusterRoleApplyConfiguration {
	role := func(part string, verbs ...string) *rbacv1apply.ClusterRoleApplyConfiguration {
		rule := rbacv1apply.PolicyRule().WithAPIGroups(v1alpha1.Group).WithResources(v1alpha1.Resource).WithVerbs(verbs...)
		return rbacv1apply.ClusterRole("ordinal-policies-" + part).
			WithLabels(map[string]string{rbacv1.GroupName + "/aggregate-to-" + part: "true"}).
			WithRules(rule)
	}
	return []*rbacv1apply.ClusterRoleApplyConfiguration{
		role("view", "get", "list", "watch"),
		role("edit", "create", "update", "patch", "delete", "deletecollection"),
	}
}
