// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import _ "embed"

//go:embed statefulsetpolicies.yaml
var definition string

// DefinitionName is the name of the CustomResourceDefinition of policies.
const DefinitionName = Resource + "." + Group

// Definition is the CustomResourceDefinition of policies, as YAML.
func Definition() string { return definition }
