// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/kubectl/pkg/cmd/apply"
	"k8s.io/kubectl/pkg/cmd/diff"
)

// applyFiles asks for each object of the files what applying it would give. The error, if any, is about those that are
// not among the edits.
func (c *cluster) applyFiles(ctx context.Context) ([]*edit, error) {
	result := c.factory.NewBuilder().
		Unstructured().
		ContinueOnError().
		NamespaceParam(c.namespace).DefaultNamespace().
		FilenameParam(c.enforced, &c.Files).
		Flatten().
		Do()
	if err := result.Err(); err != nil {
		return nil, err
	}
	var edits []*edit
	err := result.Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		e, err := c.apply(ctx, info)
		if err != nil {
			return err
		}
		edits = append(edits, e)
		return nil
	})
	if err == nil && len(edits) == 0 {
		return nil, errNothing
	}
	return edits, err
}

// apply asks what applying an object would give.
func (c *cluster) apply(ctx context.Context, info *resource.Info) (*edit, error) {
	local := info.Object.DeepCopyObject()
	e := &edit{kind: info.Mapping.GroupVersionKind, namespace: info.Namespace, name: info.Name}
	err := info.Get()
	switch {
	case apierrors.IsNotFound(err):
		info.Object = nil
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", e.kind.Kind, e.name, err)
	default:
		e.live = info.Object.DeepCopyObject()
	}
	e.after, e.refused = diff.InfoObject{
		LocalObj: local, Info: info, Force: true,
		OpenAPIGetter: c.factory, OpenAPIV3Root: c.schema,
		FieldManager: apply.FieldManagerClientSideApply,
		IOStreams:    genericiooptions.IOStreams{Out: c.Warnings, ErrOut: c.Warnings},
	}.Merged()
	if e.refused == nil {
		c.namespaces[e.name] = c.namespaces[e.name] || e.is(namespaceKind)
		return e, nil
	}
	e.after = nil
	if e.live == nil && apierrors.IsNotFound(e.refused) && c.namespaces[e.namespace] {
		return e, c.trust(e, local)
	}
	if e.live != nil && e.is(setKind) && isFixed(e.refused) {
		return e, c.makeAnew(ctx, e, local)
	}
	return e, nil
}

// trust takes an object as it is in the file, for the server cannot be asked.
func (c *cluster) trust(e *edit, local runtime.Object) error {
	e.refused, e.unchecked, e.after = nil, true, local
	if !e.is(setKind) || c.Options.Defaulter == nil {
		return nil
	}
	set := &appsv1.StatefulSet{}
	if err := typed(local, set); err != nil {
		return err
	}
	c.Options.Defaulter(set)
	e.after = set
	return nil
}

// fixedFields are the fields of a set that cannot be changed.
func fixedFields() []string {
	return []string{"selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"}
}

// isFixed tells if a set is refused because a field cannot be changed. Kubernetes before 1.36 names those that can instead.
func isFixed(err error) bool {
	return apierrors.IsInvalid(err) &&
		(strings.Contains(err.Error(), "field is immutable") || strings.Contains(err.Error(), "updates to statefulset spec"))
}

// makeAnew asks what the set would be if it were made anew, and finds the fields that make that necessary. The server is asked
// for a set of another name, as the name is taken.
func (c *cluster) makeAnew(ctx context.Context, e *edit, local runtime.Object) error {
	var before, after appsv1.StatefulSet
	if err := typed(e.live, &before); err != nil {
		return err
	}
	if err := typed(local, &after); err != nil {
		return err
	}
	after.Name, after.ResourceVersion, after.UID = "ordinal-plan-"+string(before.UID), "", ""
	if len(after.Name) > 63 {
		after.Name = after.Name[:63]
	}
	made, err := c.client.AppsV1().StatefulSets(e.namespace).Create(ctx, &after, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		// Then it cannot be made anew either, and the first refusal says what there is to say.
		return nil //nolint:nilerr // See above.
	}
	made.Name, made.UID = before.Name, before.UID
	a, b, err := specs(&before, made)
	if err != nil {
		return err
	}
	for _, field := range fixedFields() {
		if !equality.Semantic.DeepEqual(a[field], b[field]) {
			e.fixed = append(e.fixed, "spec."+field)
		}
	}
	if len(e.fixed) > 0 {
		e.anew = made
	}
	return nil
}

// specs are the specs of two sets, comparable field by field.
func specs(before, after *appsv1.StatefulSet) (a, b map[string]any, err error) {
	if a, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&before.Spec); err != nil {
		return nil, nil, fmt.Errorf("convert set: %w", err)
	}
	if b, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&after.Spec); err != nil {
		return nil, nil, fmt.Errorf("convert set: %w", err)
	}
	bareTemplates(a)
	bareTemplates(b)
	return a, b, nil
}

// bareTemplates drops from a set's claim templates what the server fills in, and not every client shows.
func bareTemplates(spec map[string]any) {
	templates, _ := spec["volumeClaimTemplates"].([]any)
	for _, t := range templates {
		if m, ok := t.(map[string]any); ok {
			delete(m, "apiVersion")
			delete(m, "kind")
			delete(m, "status")
		}
	}
}

// typed converts an object to its own type.
func typed(o runtime.Object, into any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("convert %T: %w", o, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, into); err != nil {
		return fmt.Errorf("convert %T: %w", into, err)
	}
	return nil
}
