// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

const root = "../.."

func TestFilesAreUpToDate(t *testing.T) {
	all, err := inChart(root)
	if err != nil {
		t.Fatal(err)
	}
	// The go command gives the result of an earlier run again until a file changes that the test itself has read.
	if err := os.CopyFS(t.TempDir(), os.DirFS(filepath.Join(root, chart))); err != nil {
		t.Fatal(err)
	}
	base, err := rendered(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"definition.yaml", "rights.yaml", "controller.yaml", "config.yaml"} {
		if base[kustomize+"/"+name] == "" {
			t.Errorf("no %s is made", name)
		}
	}
	for _, made := range []files{all, base} {
		for name, want := range made {
			got, err := os.ReadFile(filepath.Join(root, name))
			if err != nil || string(got) != want {
				t.Errorf("%s is stale: run make generate (%v)", name, err)
			}
		}
	}
}

// Rights on leases are taken apart; if they were given in another way than they are, that would go wrong without a word.
func TestRightsOnLeases(t *testing.T) {
	lease := rbacv1.PolicyRule{Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}}
	pods := rbacv1.PolicyRule{Resources: []string{"pods"}, Verbs: []string{"create"}}
	all, err := rightsOf([]rbacv1.PolicyRule{pods, lease})
	if err != nil {
		t.Fatal(err)
	}
	split := all["lease"].(map[string]rbacv1.PolicyRule)
	if !slices.Equal(split["create"].Verbs, []string{"create"}) || !slices.Equal(split["keep"].Verbs, []string{"get", "update"}) {
		t.Errorf("the rights on leases are %v", split)
	}
	if rest := all["controller"].([]rbacv1.PolicyRule); len(rest) != 1 || rest[0].Resources[0] != "pods" {
		t.Errorf("the other rights are %v", rest)
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"none":    {pods},
		"twice":   {lease, lease},
		"no make": {{Resources: []string{"leases"}, Verbs: []string{"get"}}},
	} {
		if got, err := rightsOf(rules); err == nil {
			t.Errorf("%s: the rights are %v", name, got)
		}
	}
}
