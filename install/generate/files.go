// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/install"
)

// Where everything is, from the root of the project.
const (
	chart     = "install/chart/ordinal"
	kustomize = "install/kustomize"
	observed  = "install/observability"
	namespace = "ordinal-system"
)

// header begins each file.
const header = `# Copyright The Ordinal Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Made by make generate. Do not edit.
`

// files are contents by path.
type files map[string]string

// inChart are the chart's files that are made: what the binary embeds, the definition of policies and who needs which rights; and copies
// of the alerts and the dashboard, because a chart holds no file from outside of it.
func inChart(root string) (files, error) {
	rights, err := rightsOf(controller.ClusterRole().Rules)
	if err != nil {
		return nil, err
	}
	rights["users"] = install.Roles()
	text, err := yaml.Marshal(rights)
	if err != nil {
		return nil, err
	}
	made := files{
		chart + "/files/definition.yaml": v1alpha1.Definition(),
		chart + "/files/rights.yaml":     header + string(text),
	}
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join(root, observed, name))
		if err != nil {
			return nil, err
		}
		made[chart+"/files/"+name] = string(text)
	}
	return made, nil
}

// rightsOf splits the controller's rights into those on sets and what is theirs, and those on the lease. Those on the lease are given
// in one namespace. To make it is apart from the rest, which can be narrowed to its name.
func rightsOf(rules []rbacv1.PolicyRule) (map[string]any, error) {
	var sets, leases []rbacv1.PolicyRule
	for _, rule := range rules {
		if slices.Equal(rule.Resources, []string{"leases"}) {
			leases = append(leases, rule)
		} else {
			sets = append(sets, rule)
		}
	}
	if len(leases) != 1 || !slices.Contains(leases[0].Verbs, "create") {
		return nil, fmt.Errorf("the rights on leases are not one rule with the verb create: %v", leases)
	}
	create, keep := leases[0].DeepCopy(), leases[0].DeepCopy()
	create.Verbs = []string{"create"}
	keep.Verbs = slices.DeleteFunc(keep.Verbs, func(verb string) bool { return verb == "create" })
	return map[string]any{"controller": sets, "lease": map[string]rbacv1.PolicyRule{"create": *create, "keep": *keep}}, nil
}

// rendered is the base for kustomize: what the chart makes of its defaults, without what only Helm needs.
func rendered(ctx context.Context, root string) (files, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "scripts/helm"), "template", "ordinal", filepath.Join(root, chart),
		"--namespace", namespace, "--skip-tests")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("helm template: %w: %s", err, stderr.String())
	}
	made := files{}
	for text := range strings.SplitSeq(string(out), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			return nil, fmt.Errorf("read what helm has made: %w", err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if err := made.add(&o); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// add puts an object into the file where it belongs.
func (f files) add(o *unstructured.Unstructured) error {
	if o.GetKind() == "ConfigMap" {
		// Kustomize makes it anew, under a name that changes with it, so that pods are restarted.
		for name, text := range o.Object["data"].(map[string]any) {
			f[kustomize+"/"+name] = header + text.(string)
		}
		return nil
	}
	file := kustomize + "/controller.yaml"
	switch o.GetKind() {
	case "CustomResourceDefinition":
		file = kustomize + "/definition.yaml"
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		file = kustomize + "/rights.yaml"
	}
	withoutHelm(o)
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return err
	}
	before, found := f[file]
	if !found {
		before = header
	}
	f[file] = before + "---\n" + string(text)
	return nil
}

// withoutHelm takes away what an object has for Helm alone.
func withoutHelm(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return key == "helm.sh/chart" || key == "app.kubernetes.io/managed-by" || key == "app.kubernetes.io/version"
	})
	o.SetLabels(labels)
	annotations := o.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	o.SetAnnotations(annotations)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations")
}
