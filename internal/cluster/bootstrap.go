// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/install"
	"github.com/ordinal-dev/ordinal/internal/nodes"
	"github.com/ordinal-dev/ordinal/internal/storage"
)

// rights are what each of our own components may do.
func rights() map[string][]rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return map[string][]rbacv1.PolicyRule{
		dnsUser: {
			{APIGroups: []string{""}, Resources: []string{"services", "namespaces", "pods"}, Verbs: read},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		},
		storageUser:    storage.ClusterRole().Rules,
		controllerUser: controller.ClusterRole().Rules,
		simulatorUser:  nodes.Rules(),
	}
}

// bootstrap puts the objects in place that our own components need. It leaves alone what is as it should be.
func bootstrap(ctx context.Context, config *rest.Config, client kubernetes.Interface, classes []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return install.Policies(ctx, config) })
	group.Go(func() error { return ensureObjects(ctx, client, classes) })
	return group.Wait()
}

// ensureObjects puts rights and storage classes in place.
func ensureObjects(ctx context.Context, client kubernetes.Interface, classes []string) error {
	for user, rules := range rights() {
		if err := ensureRights(ctx, client, user, rules); err != nil {
			return fmt.Errorf("give %s its rights: %w", user, err)
		}
	}
	for i, name := range append([]string{DefaultStorageClass}, classes...) {
		// A class that is already there stays as it is: the user may have changed it, or made another the default.
		_, err := client.StorageV1().StorageClasses().Create(ctx, storage.Class(name, i == 0), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make storage class %s: %w", name, err)
		}
	}
	return nil
}

func ensureRights(ctx context.Context, client kubernetes.Interface, user string, rules []rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: user}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	_, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// An older version may have had other rights.
		_, err = client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
