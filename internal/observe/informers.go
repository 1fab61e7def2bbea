// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe reads what the API server holds, through caches, and gives snapshots to plan from. Nothing else reads.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// Names of indexes.
const (
	// byOwner finds pods and revisions by the UID of their controller.
	byOwner = "owner"
	// bySet finds pods by the namespace and set that their names tell.
	bySet = "set"
	// byOrphan finds revisions without a controller by namespace.
	byOrphan = "orphan"
	// byTarget finds policies by the namespace and name of the set that they name.
	byTarget = "target"
)

// Informers are the caches of all objects that matter to StatefulSets.
type Informers struct {
	scope Scope
	// all is the one space of the whole cluster; nil if there is one for each namespace.
	all         *space
	byNamespace map[string]*space
	running     sync.WaitGroup
}

// space are the caches of one namespace, or of all of them together.
type space struct {
	scope Scope
	// namespace is empty for all.
	namespace                     string
	factory                       informers.SharedInformerFactory
	sets, pods, claims, revisions cache.SharedIndexInformer
	// policies is nil if none are looked for.
	policies *policies
	// refused means that something may not be read, and unfilled that work began elsewhere before these caches were filled.
	refused, unfilled atomic.Bool
}

// NewInformers makes the caches of a whole cluster. They are empty until they are started.
func NewInformers(client kubernetes.Interface, policies PolicyClient, resync time.Duration) (*Informers, error) {
	return Scope{}.NewInformers(client, policies, resync)
}

// NewInformers makes the caches of what is in the scope. They are empty until they are started.
func (s Scope) NewInformers(client kubernetes.Interface, policies PolicyClient, resync time.Duration) (*Informers, error) {
	i := &Informers{scope: s}
	var err error
	if len(s.Namespaces) == 0 {
		i.all, err = s.newSpace(client, policies, metav1.NamespaceAll, resync)
		return i, err
	}
	i.byNamespace = make(map[string]*space, len(s.Namespaces))
	for _, namespace := range s.Namespaces {
		if i.byNamespace[namespace], err = s.newSpace(client, policies, namespace, resync); err != nil {
			return nil, err
		}
	}
	return i, nil
}

func (s Scope) newSpace(client kubernetes.Interface, policies PolicyClient, namespace string, resync time.Duration) (*space, error) {
	f := informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTransform(s.strip), informers.WithNamespace(namespace), informers.WithTweakListOptions(uptodate))
	i := &space{
		scope:     s,
		namespace: namespace,
		factory:   f,
		sets:      f.Apps().V1().StatefulSets().Informer(),
		pods:      f.Core().V1().Pods().Informer(),
		claims:    f.Core().V1().PersistentVolumeClaims().Informer(),
		revisions: f.Apps().V1().ControllerRevisions().Informer(),
	}
	err := errors.Join(
		i.pods.AddIndexers(cache.Indexers{byOwner: ownerIndex, bySet: setIndex}),
		i.revisions.AddIndexers(cache.Indexers{byOwner: ownerIndex, byOrphan: orphanIndex}),
	)
	for _, informer := range []cache.SharedIndexInformer{i.sets, i.pods, i.claims, i.revisions} {
		err = errors.Join(err, informer.SetWatchErrorHandlerWithContext(i.failed))
	}
	if err != nil {
		return nil, fmt.Errorf("add indexes: %w", err)
	}
	if policies != nil {
		if i.policies, err = newPolicies(policies(namespace), resync); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// uptodate makes a list show all that was written before it. client-go by itself is content with what an API server has cached, which
// may lack what an earlier leader has just done.
func uptodate(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

// failed is told why something cannot be listed or watched; it is then tried again, ever less often. That it may not be read is
// said once.
func (i *space) failed(ctx context.Context, r *cache.Reflector, err error) {
	switch {
	case !apierrors.IsForbidden(err):
		cache.DefaultWatchErrorHandler(ctx, r, err)
	case i.refused.Swap(true):
		klog.FromContext(ctx).V(2).Info("Not all may be read yet", "namespace", i.namespace, "err", err)
	default:
		klog.FromContext(ctx).Error(err, "Not all may be read. It is tried again until it may", "namespace", i.namespace)
	}
}

// in are the caches that show a namespace; nil if none do.
func (i *Informers) in(namespace string) *space {
	if i.all != nil {
		return i.all
	}
	return i.byNamespace[namespace]
}

// spaces are all of them.
func (i *Informers) spaces() []*space {
	if i.all != nil {
		return []*space{i.all}
	}
	all := make([]*space, 0, len(i.byNamespace))
	for _, namespace := range slices.Sorted(maps.Keys(i.byNamespace)) {
		all = append(all, i.byNamespace[namespace])
	}
	return all
}

// Start fills the caches and keeps them up to date until ctx is done. It returns at once.
func (i *Informers) Start(ctx context.Context) {
	for _, s := range i.spaces() {
		s.factory.StartWithContext(ctx)
		if s.policies != nil {
			i.running.Go(func() { s.policies.RunWithContext(ctx) })
		}
	}
}

// WaitForSync waits until the caches are filled; false if stop is closed before. Policies are waited for too if the cluster
// serves them, as one may say that nothing is to be done. Where there are several namespaces, those that may not be read are not
// waited for as long as there is another: their sets are looked at once they can be.
func (i *Informers) WaitForSync(stop <-chan struct{}) bool {
	synced := cache.WaitForCacheSync(stop, func() bool {
		filled, all := 0, i.spaces()
		for _, s := range all {
			switch {
			case s.isFilled():
				filled++
			case !s.refused.Load():
				return false
			}
		}
		return filled > 0
	})
	for _, s := range i.spaces() {
		s.unfilled.Store(!s.isFilled())
	}
	return synced
}

// isFilled tells if all is cached that there is.
func (i *space) isFilled() bool {
	return i.sets.HasSynced() && i.pods.HasSynced() && i.claims.HasSynced() && i.revisions.HasSynced() &&
		(i.policies == nil || i.policies.isKnown())
}

// Filled says what is not cached yet; nil if all is.
func (i *Informers) Filled() error {
	var errs []error
	for _, s := range i.spaces() {
		var missing []string
		for _, kind := range []plan.Kind{plan.KindSet, plan.KindPod, plan.KindClaim, plan.KindRevision} {
			if !s.of(kind).HasSynced() {
				missing = append(missing, string(kind))
			}
		}
		if len(missing) > 0 {
			errs = append(errs, fmt.Errorf("not all is read yet of %s in %s", strings.Join(missing, ", "), cmp.Or(s.namespace, "all namespaces")))
		}
	}
	return errors.Join(errs...)
}

// isUsable tells if snapshots may be taken.
func (i *space) isUsable() bool {
	if !i.unfilled.Load() {
		return true
	}
	if !i.isFilled() {
		return false
	}
	i.unfilled.Store(false)
	return true
}

// Shutdown waits until the caches have stopped. Their context has to be done before.
func (i *Informers) Shutdown() {
	for _, s := range i.spaces() {
		s.factory.Shutdown()
	}
	i.running.Wait()
}

func (i *space) of(k plan.Kind) cache.SharedIndexInformer {
	switch k {
	case plan.KindSet:
		return i.sets
	case plan.KindPod:
		return i.pods
	case plan.KindClaim:
		return i.claims
	case plan.KindRevision:
		return i.revisions
	case KindPolicy:
		if i.policies != nil {
			return i.policies
		}
	}
	return nil
}

// strip drops what planning does not need before an object is cached. Writes are patches, so nothing is lost by it.
func strip(obj any) (any, error) {
	// What is no object is a tombstone, and the object in it has been stripped.
	if accessor, err := meta.Accessor(obj); err == nil {
		fields := accessor.GetManagedFields()
		accessor.SetManagedFields(nil)
		if set, ok := obj.(*appsv1.StatefulSet); ok {
			set.ManagedFields = keepForeignWrite(fields)
		}
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		stripPod(o)
	case *corev1.PersistentVolumeClaim:
		o.Annotations = nil
		o.Spec = corev1.PersistentVolumeClaimSpec{}
		o.Status = corev1.PersistentVolumeClaimStatus{}
	}
	return obj, nil
}

func stripPod(p *corev1.Pod) {
	var told map[string]string
	for _, name := range []string{v1alpha1.StopReasonAnnotation, v1alpha1.StopAtAnnotation} {
		if value, ok := p.Annotations[name]; ok {
			if told == nil {
				told = map[string]string{}
			}
			told[name] = value
		}
	}
	p.Annotations = told
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Volumes: claimVolumes(p.Spec.Volumes)}
	full := p.Status
	p.Status = corev1.PodStatus{Phase: full.Phase, Reason: full.Reason, Conditions: full.Conditions}
	if !podstate.IsReady(p) {
		// They tell what is wrong with the pod.
		p.Status.InitContainerStatuses = stripContainers(full.InitContainerStatuses)
		p.Status.ContainerStatuses = stripContainers(full.ContainerStatuses)
	}
}

// stripContainers leaves of containers what they wait for and how they ended.
func stripContainers(full []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range full {
		s := &full[i]
		kept = append(kept, corev1.ContainerStatus{
			Name:                 s.Name,
			Image:                s.Image,
			Ready:                s.Ready,
			RestartCount:         s.RestartCount,
			State:                stripState(s.State),
			LastTerminationState: stripState(s.LastTerminationState),
		})
	}
	return kept
}

func stripState(full corev1.ContainerState) corev1.ContainerState {
	var kept corev1.ContainerState
	if w := full.Waiting; w != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}
	}
	if t := full.Terminated; t != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, FinishedAt: t.FinishedAt}
	}
	return kept
}

func claimVolumes(volumes []corev1.Volume) []corev1.Volume {
	var kept []corev1.Volume
	for i := range volumes {
		if volumes[i].PersistentVolumeClaim != nil {
			kept = append(kept, volumes[i])
		}
	}
	return kept
}

func ownerIndex(obj any) ([]string, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	owner := metav1.GetControllerOfNoCopy(accessor)
	if owner == nil {
		return nil, nil
	}
	return []string{string(owner.UID)}, nil
}

func setIndex(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	name, ok := ordinal.ParsePod(pod.Name)
	if !ok {
		return nil, nil
	}
	return []string{pod.Namespace + "/" + name.Set}, nil
}

func orphanIndex(obj any) ([]string, error) {
	r, ok := obj.(*appsv1.ControllerRevision)
	if !ok || metav1.GetControllerOfNoCopy(r) != nil {
		return nil, nil
	}
	return []string{r.Namespace}, nil
}
