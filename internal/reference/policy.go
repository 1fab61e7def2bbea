// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
)

const typesFile = "api/v1alpha1/types.go"

func policyPage(s source) (string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(v1alpha1.Definition()), &crd); err != nil {
		return "", fmt.Errorf("read the definition: %w", err)
	}
	if len(crd.Spec.Versions) != 1 {
		return "", errors.New("the page is made for one version")
	}
	version := crd.Spec.Versions[0]
	p := newPage(v1alpha1.Kind, "api/v1alpha1")
	p.paragraphs(fmt.Sprintf("`apiVersion: %s/%s`, `kind: %s`; `kubectl get %s` lists them. How they are used is told in [docs/policy.md](../policy.md).",
		v1alpha1.Group, version.Name, v1alpha1.Kind, crd.Spec.Names.ShortNames[0]))
	for _, name := range []string{"spec", "status"} {
		schema := version.Schema.OpenAPIV3Schema.Properties[name]
		p.object(name, &schema)
	}
	for _, words := range []struct{ title, prefix string }{
		{"Reasons of the condition `" + v1alpha1.ConditionAccepted + "`", "Reason"},
		{"Phases of a rollout", "Rollout"},
		{"Annotations", ""},
	} {
		if err := p.values(s, words.title, words.prefix); err != nil {
			return "", err
		}
	}
	return p.String(), nil
}

// object describes an object and those within it.
func (p *page) object(path string, schema *apiextensionsv1.JSONSchemaProps) {
	p.paragraphs("## " + path)
	var rows [][]string
	var within []string
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		kind := kindOf(&field)
		if kind == "object" {
			within = append(within, name)
			kind = fmt.Sprintf("[object](#%s)", strings.ToLower(strings.ReplaceAll(path+"."+name, ".", "")))
		}
		if slices.Contains(schema.Required, name) {
			kind += ", required"
		}
		rows = append(rows, []string{code(name), kind + limits(&field), defaultOf(&field), sentence(name, field.Description)})
	}
	p.table([]string{"field", "type", "default", ""}, rows)
	var rules []string
	for _, rule := range schema.XValidations {
		rules = append(rules, "- "+rule.Message)
	}
	if len(rules) > 0 {
		p.paragraphs("What is refused is told so:", strings.Join(rules, "\n"))
	}
	for _, name := range within {
		field := schema.Properties[name]
		p.object(path+"."+name, &field)
	}
}

// kindOf is the type of a field: object if it is described by itself.
func kindOf(field *apiextensionsv1.JSONSchemaProps) string {
	_, isSelector := field.Properties["matchLabels"]
	switch {
	case isSelector:
		return "label selector"
	case field.Format == "date-time":
		return "time"
	case field.XIntOrString:
		return "number or text"
	case field.Type == "array":
		item := field.Items.Schema
		if _, isCondition := item.Properties["lastTransitionTime"]; isCondition {
			return "list of conditions"
		}
		return "list of " + kindOf(item)
	case len(field.Enum) > 0:
		var values []string
		for _, v := range field.Enum {
			values = append(values, code(strings.Trim(string(v.Raw), `"`)))
		}
		return strings.Join(values, " or ")
	case field.Type == "integer":
		return "number"
	case field.Type == "string":
		return "text"
	}
	return field.Type
}

// limits are those of a number, or of a list.
func limits(field *apiextensionsv1.JSONSchemaProps) string {
	var parts []string
	if field.Minimum != nil {
		parts = append(parts, fmt.Sprintf("at least %g", *field.Minimum))
	}
	if field.Maximum != nil {
		parts = append(parts, fmt.Sprintf("at most %g", *field.Maximum))
	}
	if field.MaxItems != nil {
		parts = append(parts, fmt.Sprintf("at most %d", *field.MaxItems))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, ", ")
}

func defaultOf(field *apiextensionsv1.JSONSchemaProps) string {
	if field.Default == nil {
		return ""
	}
	return code(strings.Trim(string(field.Default.Raw), `"`))
}

// values adds a table of constants. Annotations are told by their values, as their names end so.
func (p *page) values(s source, title, prefix string) error {
	all, err := s.constants(typesFile, prefix)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, c := range all {
		if prefix == "" && !strings.HasSuffix(c.name, "Annotation") {
			continue
		}
		rows = append(rows, []string{code(c.value), c.doc})
	}
	p.paragraphs("## " + title)
	p.table([]string{"", ""}, rows)
	return nil
}
