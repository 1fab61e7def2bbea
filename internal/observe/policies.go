// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/plan"
)

// KindPolicy is the kind of policies. No plan speaks of them.
const KindPolicy plan.Kind = v1alpha1.Kind

// PolicyClient gives the policies of a namespace, or those of all for an empty one. Where it is nil, there are no policies.
type PolicyClient func(namespace string) PolicyAPI

// PolicyAPI is what the API server does with policies.
type PolicyAPI interface {
	Get(context.Context, string, metav1.GetOptions) (*v1alpha1.StatefulSetPolicy, error)
	List(context.Context, metav1.ListOptions) (*v1alpha1.StatefulSetPolicyList, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Create(context.Context, *v1alpha1.StatefulSetPolicy, metav1.CreateOptions) (*v1alpha1.StatefulSetPolicy, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*v1alpha1.StatefulSetPolicy, error)
	UpdateStatus(context.Context, *v1alpha1.StatefulSetPolicy, metav1.UpdateOptions) (*v1alpha1.StatefulSetPolicy, error)
}

// NewPolicyClient makes a client for the policies of a cluster, whether or not it serves them.
func NewPolicyClient(cfg *rest.Config) (PolicyClient, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register policies: %w", err)
	}
	c := rest.CopyConfig(cfg)
	version := v1alpha1.GroupVersion()
	c.GroupVersion, c.APIPath = &version, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Custom resources have no protobuf.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make client for policies: %w", err)
	}
	codec := runtime.NewParameterCodec(scheme)
	return func(namespace string) PolicyAPI {
		return gentype.NewClientWithList(v1alpha1.Resource, client, codec, namespace,
			func() *v1alpha1.StatefulSetPolicy { return &v1alpha1.StatefulSetPolicy{} },
			func() *v1alpha1.StatefulSetPolicyList { return &v1alpha1.StatefulSetPolicyList{} })
	}, nil
}

// policies are the cache of policies.
type policies struct {
	cache.SharedIndexInformer
	// absent means that the cluster does not serve them, or does not let us read them.
	absent atomic.Bool
}

func newPolicies(all PolicyAPI, resync time.Duration) (*policies, error) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			uptodate(&o)
			return all.List(ctx, o)
		},
		WatchFuncWithContext: all.Watch,
	}
	p := &policies{SharedIndexInformer: cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, all),
		&v1alpha1.StatefulSetPolicy{}, resync, cache.Indexers{byTarget: targetIndex})}
	if err := p.SetTransform(strip); err != nil {
		return nil, fmt.Errorf("strip policies: %w", err)
	}
	if err := p.SetWatchErrorHandlerWithContext(p.failed); err != nil {
		return nil, fmt.Errorf("handle errors of policies: %w", err)
	}
	return p, nil
}

// failed is told why policies cannot be listed or watched; they are then tried again, ever less often. In a cluster that does
// not serve them, that is as it should be, and is said once. Where they may not be read, sets are kept without them.
func (p *policies) failed(ctx context.Context, r *cache.Reflector, err error) {
	switch {
	case apierrors.IsNotFound(err):
		if !p.absent.Swap(true) {
			klog.FromContext(ctx).Info("The cluster serves no StatefulSetPolicies; they are obeyed once it does")
		}
	case apierrors.IsForbidden(err):
		if !p.absent.Swap(true) {
			klog.FromContext(ctx).Error(err, "StatefulSetPolicies may not be read; they are obeyed once they may")
		}
	default:
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// isKnown tells if all policies are cached, as far as there can be any.
func (p *policies) isKnown() bool {
	return p.HasSynced() || p.absent.Load()
}

func targetIndex(obj any) ([]string, error) {
	p, ok := obj.(*v1alpha1.StatefulSetPolicy)
	if !ok {
		return nil, nil
	}
	return []string{targetOf(p).String()}, nil
}

func targetOf(p *v1alpha1.StatefulSetPolicy) Key {
	return Key{Namespace: p.Namespace, Name: p.Spec.TargetRef.Name}
}

// setsOfPolicy is the set that the policy names, even if there is none: the policy is told so.
func setsOfPolicy(o metav1.Object) []Key {
	p, ok := o.(*v1alpha1.StatefulSetPolicy)
	if !ok {
		return nil
	}
	return []Key{targetOf(p)}
}

// Policies are those that name a set, whether or not there is one.
func (o *Observer) Policies(k Key) ([]*v1alpha1.StatefulSetPolicy, error) {
	caches := o.informers.in(k.Namespace)
	if caches == nil {
		return nil, nil
	}
	return caches.policiesOf(k)
}

func (i *space) policiesOf(k Key) ([]*v1alpha1.StatefulSetPolicy, error) {
	if i.policies == nil {
		return nil, nil
	}
	return indexed[*v1alpha1.StatefulSetPolicy](i.policies.GetIndexer(), byTarget, k.String())
}
