// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install tests the chart and the base for kustomize: what they make, what they refuse, and that it is what the binary embeds.
package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// values are what a user sets.
type values map[string]any

// objects are what was rendered, each of its Go type. There is none with a field that its type does not have.
type objects []metav1.Object

// helm runs Helm on the chart with values, and gives what it writes.
func helm(ctx context.Context, t *testing.T, v values, command ...string) (string, error) {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// The go command gives the result of an earlier run again until a file changes that the test itself has read.
	if err := os.CopyFS(t.TempDir(), os.DirFS("chart")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "../scripts/helm", append(command, "--values", file)...)
	// It looks for no cluster, whoever runs this test.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"), "HELM_CACHE_HOME="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), nil
}

// render gives what the chart makes of values, as the release "ordinal" in the namespace "databases".
func render(t *testing.T, v values) objects {
	t.Helper()
	out, err := helm(t.Context(), t, v, "template", "ordinal", "chart/ordinal", "--namespace", "databases")
	if err != nil {
		t.Fatalf("%v: %v", v, err)
	}
	return decode(t, out)
}

// kustomized gives what the base makes, or an overlay in a directory.
func kustomized(t *testing.T, dir string) objects {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(text))
}

// decode reads objects strictly.
func decode(t *testing.T, text string) objects {
	t.Helper()
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	known.AddKnownTypes(schema.GroupVersion{Group: "monitoring.coreos.com", Version: "v1"}, &ServiceMonitor{}, &PrometheusRule{})
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	var all objects
	for document := range strings.SplitSeq(text, "\n---\n") {
		if data, err := yaml.YAMLToJSON([]byte(document)); err == nil && string(data) == "null" {
			continue
		}
		o, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, o.(metav1.Object))
	}
	return all
}

// ServiceMonitor is what we need of the type of Prometheus' operator.
type ServiceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port        string         `json:"port"`
			Scheme      string         `json:"scheme"`
			HonorLabels bool           `json:"honorLabels"`
			Interval    string         `json:"interval,omitempty"`
			TLSConfig   map[string]any `json:"tlsConfig,omitempty"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// DeepCopyObject copies it.
func (m *ServiceMonitor) DeepCopyObject() runtime.Object {
	c := *m
	return &c
}

// PrometheusRule is the other; what is in its groups is tested beside the rules.
type PrometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Groups []map[string]any `json:"groups"`
	} `json:"spec"`
}

// DeepCopyObject copies it.
func (r *PrometheusRule) DeepCopyObject() runtime.Object {
	c := *r
	return &c
}

// of gives the objects of a type.
func of[T metav1.Object](all objects) []T {
	var some []T
	for _, o := range all {
		if o, ok := o.(T); ok {
			some = append(some, o)
		}
	}
	return some
}

// one gives the object of a type, of which there has to be one.
func one[T metav1.Object](t *testing.T, all objects) T {
	t.Helper()
	some := of[T](all)
	if len(some) != 1 {
		t.Fatalf("there are %d objects of type %T, want one", len(some), *new(T))
	}
	return some[0]
}
