// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dryrun asks an API server what an edit would make of its objects, and previews the StatefulSets among them. Every
// request that it makes reads, or is a dry run.
package dryrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi3"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/observe"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

// Request is what is to be looked at beforehand: files that would be applied, or sets that would be changed or deleted.
type Request struct {
	// Cluster is how the API server is reached, and in which namespace.
	Cluster genericclioptions.RESTClientGetter
	// Files would be applied as kubectl apply does.
	Files resource.FilenameOptions
	// Sets name sets as kubectl takes them: sts/web. Change is what would be done to each.
	Sets   []string
	Change Change
	// Options are those of the controller that would work on the sets.
	Options plan.Options
	// Kubectl is how kubectl is called; empty for kubectl.
	Kubectl string
	// Warnings is where warnings of the API server go.
	Warnings io.Writer
}

// cluster is what requests go through.
type cluster struct {
	Request
	factory  cmdutil.Factory
	client   kubernetes.Interface
	policies observe.PolicyClient
	// namespace is that of objects that name none; with enforced, others are refused.
	namespace string
	enforced  bool
	schema    openapi3.Root
	// namespaces are those that the files would create.
	namespaces map[string]bool
}

// Run asks and previews. Its error means that it could not; what the server refuses is part of the report.
func Run(ctx context.Context, r Request) (Report, error) {
	c, err := connect(r)
	if err != nil {
		return Report{}, err
	}
	var edits []*edit
	if len(r.Sets) > 0 {
		edits, err = c.changeSets(ctx)
	} else {
		edits, err = c.applyFiles(ctx)
	}
	if len(edits) == 0 && err != nil {
		return Report{}, err
	}
	report, previewErr := c.report(ctx, edits)
	if previewErr != nil {
		return Report{}, previewErr
	}
	if err != nil {
		report.Errors = append(report.Errors, err.Error())
	}
	return report, nil
}

func connect(r Request) (*cluster, error) {
	c := &cluster{Request: r, factory: cmdutil.NewFactory(r.Cluster), namespaces: map[string]bool{}}
	cfg, err := c.factory.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	if c.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if c.policies, err = observe.NewPolicyClient(cfg); err != nil {
		return nil, err
	}
	if c.namespace, c.enforced, err = c.factory.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	if open, err := c.factory.OpenAPIV3Client(); err == nil {
		c.schema = openapi3.NewRoot(open)
	}
	return c, nil
}

// edit is what would become of one object.
type edit struct {
	kind            schema.GroupVersionKind
	namespace, name string
	// live is the object as it is, and after as it would be; nil if there is none.
	live, after runtime.Object
	// refused is why the server does not accept it.
	refused error
	// unchecked means that the server could not be asked, as the namespace of the object is made by the same files.
	unchecked bool
	// anew is a set as it would be if it were made anew, and fixed are the fields that make that necessary.
	anew  runtime.Object
	fixed []string
}

var (
	setKind       = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	policyKind    = schema.GroupKind{Group: v1alpha1.Group, Kind: v1alpha1.Kind}
)

func (e *edit) isRefused() bool {
	return e.refused != nil
}

func (e *edit) is(kind schema.GroupKind) bool {
	return e.kind.GroupKind() == kind
}

// errNothing is why a request without objects is one.
var errNothing = errors.New("no objects in the files")

// now is when snapshots are taken.
func now() time.Time { return time.Now() }
