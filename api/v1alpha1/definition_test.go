// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func definitionOf(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(Definition()), &crd); err != nil {
		t.Fatal(err)
	}
	return &crd
}

func TestDefinitionHasOurNames(t *testing.T) {
	crd := definitionOf(t)
	names, version := crd.Spec.Names, crd.Spec.Versions[0].Name
	if crd.Name != DefinitionName || crd.Spec.Group != Group || names.Plural != Resource || names.Kind != Kind || version != GroupVersion().Version {
		t.Errorf("definition %s is of %s/%s, %s, %s", crd.Name, crd.Spec.Group, version, names.Plural, names.Kind)
	}
}

// docs/policy.md is the reference: it has each field and each value.
func TestPageNamesEverything(t *testing.T) {
	content, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(regexp.MustCompile("`[^`\n]+`").FindAllString(string(content), -1), " ")
	words := []string{
		StopReasonAnnotation, StopAtAnnotation, RetryAtAnnotation, ResumeAtAnnotation, StopScaleDown, StopUpdate,
		ConditionAccepted, ReasonAccepted, ReasonTargetNotFound, ReasonConflict, ReasonInvalid,
		string(RolloutProgressing), string(RolloutPaused), string(RolloutHeld), string(RolloutRollingBack), string(RolloutRolledBack),
		string(RolloutComplete),
	}
	schema := definitionOf(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, part := range []string{"spec", "status"} {
		words = append(words, wordsOf(schema.Properties[part])...)
	}
	if len(words) < 40 {
		t.Fatalf("there are only the words %q", words)
	}
	for _, word := range words {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(page) {
			t.Errorf("docs/policy.md does not tell of %s", word)
		}
	}
}

// wordsOf gives the fields below a schema and their values, but for types that are not ours.
func wordsOf(schema apiextensionsv1.JSONSchemaProps) []string {
	var words []string
	for _, value := range schema.Enum {
		words = append(words, strings.Trim(string(value.Raw), `"`))
	}
	for name := range schema.Properties {
		words = append(words, name)
		if name != "leaderSelector" {
			words = append(words, wordsOf(schema.Properties[name])...)
		}
	}
	return words
}
