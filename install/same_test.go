// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/install"
)

// both gives what the chart makes of its defaults, and what the base for kustomize makes.
func both(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{"chart": render(t, nil), "kustomize": kustomized(t, "kustomize")}
}

// rights are rules as sentences, one for each verb, and where they hold.
func rights(rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, fmt.Sprintf("%s %s.%s", verb, resource, group))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// The account of the pods has the rights that the controller needs, each of them once, and no others.
func TestControllerHasTheRightsThatItNeeds(t *testing.T) {
	made := both(t)
	made["another account"] = render(t, values{"serviceAccount": values{"name": "account"}})
	for name, all := range made {
		roles := map[string][]rbacv1.PolicyRule{}
		for _, r := range of[*rbacv1.ClusterRole](all) {
			roles["ClusterRole "+r.Name] = r.Rules
		}
		for _, r := range of[*rbacv1.Role](all) {
			roles["Role "+r.Name] = r.Rules
		}
		var granted []rbacv1.PolicyRule
		grant := func(role rbacv1.RoleRef, subjects []rbacv1.Subject) {
			pods := one[*appsv1.Deployment](t, all)
			account := rbacv1.Subject{Kind: "ServiceAccount", Name: pods.Spec.Template.Spec.ServiceAccountName, Namespace: pods.Namespace}
			if !reflect.DeepEqual(subjects, []rbacv1.Subject{account}) {
				t.Errorf("%s: %s is given to %v, want %v", name, role.Name, subjects, account)
			}
			granted = append(granted, roles[role.Kind+" "+role.Name]...)
		}
		for _, b := range of[*rbacv1.ClusterRoleBinding](all) {
			grant(b.RoleRef, b.Subjects)
		}
		for _, b := range of[*rbacv1.RoleBinding](all) {
			grant(b.RoleRef, b.Subjects)
		}
		if got, want := rights(granted), rights(controller.ClusterRole().Rules); !slices.Equal(got, want) {
			t.Errorf("%s: the controller may\n%s\nand needs\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// The lease can be made where it is to be, and no other can be touched.
func TestRightsOnTheLeaseAreOnThatLease(t *testing.T) {
	leader := values{"config": values{"leaderElection": values{"resourceNamespace": "elsewhere", "resourceName": "mine"}}}
	for name, c := range map[string]struct {
		all             objects
		namespace, name string
	}{
		"chart":     {render(t, nil), "kube-system", "ordinal-controller"},
		"kustomize": {kustomized(t, "kustomize"), "kube-system", "ordinal-controller"},
		"elsewhere": {render(t, leader), "elsewhere", "mine"},
	} {
		role := one[*rbacv1.Role](t, c.all)
		if role.Namespace != c.namespace {
			t.Errorf("%s: the role is in %s", name, role.Namespace)
		}
		for _, rule := range role.Rules {
			isCreate := slices.Equal(rule.Verbs, []string{"create"})
			if !isCreate && !slices.Equal(rule.ResourceNames, []string{c.name}) || isCreate && rule.ResourceNames != nil {
				t.Errorf("%s: there is the rule %v", name, rule)
			}
		}
	}
	if roles := of[*rbacv1.Role](render(t, values{"replicas": 1, "config": values{"leaderElection": values{"leaderElect": false}}})); roles != nil {
		t.Errorf("there is %v for a controller that needs no lease", roles)
	}
}

func TestPoliciesAreThoseOfTheBinary(t *testing.T) {
	var want apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(v1alpha1.Definition()), &want); err != nil {
		t.Fatal(err)
	}
	for name, all := range both(t) {
		got := one[*apiextensionsv1.CustomResourceDefinition](t, all)
		if got.Name != want.Name || !reflect.DeepEqual(got.Spec, want.Spec) {
			t.Errorf("%s: the definition is another", name)
		}
		for key, value := range want.Annotations {
			if got.Annotations[key] != value {
				t.Errorf("%s: the definition has lost %s", name, key)
			}
		}
	}
}

func TestUsersHaveTheRightsThatTheBinaryGives(t *testing.T) {
	for name, all := range both(t) {
		roles := of[*rbacv1.ClusterRole](all)
		for _, want := range install.Roles() {
			at := slices.IndexFunc(roles, func(r *rbacv1.ClusterRole) bool { return r.Name == *want.Name })
			if at < 0 {
				t.Errorf("%s: there is no %s", name, *want.Name)
				continue
			}
			for key, value := range want.Labels {
				if roles[at].Labels[key] != value {
					t.Errorf("%s: %s has no label %s", name, *want.Name, key)
				}
			}
			text, err := yaml.Marshal(want.Rules)
			if err != nil {
				t.Fatal(err)
			}
			var rules []rbacv1.PolicyRule
			if err := yaml.Unmarshal(text, &rules); err != nil || !reflect.DeepEqual(roles[at].Rules, rules) {
				t.Errorf("%s: %s has %v, want %v, %v", name, *want.Name, roles[at].Rules, rules, err)
			}
		}
	}
}

// But for the namespace, its names and what only Helm needs, both make the same.
func TestKustomizeMakesWhatTheChartMakes(t *testing.T) {
	kinds := func(all objects) []string {
		var kinds []string
		for _, o := range all {
			_, isTest := o.GetAnnotations()["helm.sh/hook"]
			if _, isNamespace := o.(*corev1.Namespace); !isTest && !isNamespace {
				kinds = append(kinds, fmt.Sprintf("%T", o))
			}
		}
		slices.Sort(kinds)
		return kinds
	}
	chart, base := render(t, nil), kustomized(t, "kustomize")
	if c, k := kinds(chart), kinds(base); !slices.Equal(c, k) {
		t.Errorf("the chart makes %v, kustomize %v", c, k)
	}
	if c, k := one[*corev1.ConfigMap](t, chart), one[*corev1.ConfigMap](t, base); !strings.HasSuffix(k.Data["config.yaml"], c.Data["config.yaml"]) {
		t.Errorf("the chart configures\n%s\nkustomize\n%s", c.Data["config.yaml"], k.Data["config.yaml"])
	}
	c, k := one[*appsv1.Deployment](t, chart), one[*appsv1.Deployment](t, base)
	if got, want := k.Spec.Template.Spec.Volumes[0].ConfigMap.Name, one[*corev1.ConfigMap](t, base).Name; got != want || got == k.Name {
		t.Errorf("kustomize mounts the configuration %s, and makes %s", got, want)
	}
	k.Spec.Template.Spec.Volumes[0].ConfigMap.Name = c.Spec.Template.Spec.Volumes[0].ConfigMap.Name
	k.Spec.Template.Annotations = c.Spec.Template.Annotations
	if !reflect.DeepEqual(c.Spec, k.Spec) {
		t.Errorf("the chart's pods are\n%+v\nkustomize's\n%+v", c.Spec, k.Spec)
	}
}

// The overlay that docs/install.md shows names the image and replaces the configuration.
func TestOverlay(t *testing.T) {
	page, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n# kustomization.yaml\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("there is none")
	}
	dir := t.TempDir()
	base, err := filepath.Abs("kustomize")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Rel(dir, base)
	if err != nil {
		t.Fatal(err)
	}
	overlay := strings.Replace(string(shown[1]), "github.com/ordinal-dev/ordinal/install/kustomize?ref=v1", here, 1)
	err = errors.Join(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600),
		os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("ours"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	all := kustomized(t, dir)
	configuration, pods := one[*corev1.ConfigMap](t, all), one[*appsv1.Deployment](t, all).Spec.Template.Spec
	if configuration.Data["config.yaml"] != "ours" || pods.Volumes[0].ConfigMap.Name != configuration.Name {
		t.Errorf("pods mount %+v, and there is %+v", pods.Volumes, configuration)
	}
	if got := pods.Containers[0].Image; got != "registry.example/ordinal-controller:v1" {
		t.Errorf("the image is %s", got)
	}
}
