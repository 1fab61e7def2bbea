// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

// workers is how many pods are written at a time.
const workers = 16

// pods leads every pod of the nodes through its stages.
type pods struct {
	client    kubernetes.Interface
	nodes     []string
	cache     cache.SharedIndexInformer
	stages    lifecycle.Lifecycle
	renderer  gotpl.Renderer
	recorder  record.EventRecorder
	addresses *addresses
	queue     workqueue.TypedRateLimitingInterface[string]

	mu   sync.Mutex
	next map[string]moment
}

// moment is when a pod enters its next stage.
type moment struct {
	pod   types.UID
	stage string
	at    time.Time
	// done is the pod's version that the stage has been played for. Until a newer one is seen, there is nothing to do.
	done string
}

func newPods(ctx context.Context, client kubernetes.Interface, nodes []string, delay time.Duration) (*pods, error) {
	ways, err := lifecycle.NewLifecycle(stages(delay))
	if err != nil {
		return nil, fmt.Errorf("read stages: %w", err)
	}
	// Stages are compiled at their first use, which must not be by several workers at once.
	if _, err := ways.ListAllPossible(ctx, &lifecycle.Event{Data: &corev1.Pod{}}); err != nil {
		return nil, fmt.Errorf("compile stages: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	p := &pods{
		client: client, nodes: nodes, stages: ways,
		recorder:  broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "ordinal-nodes"}),
		addresses: newAddresses(netip.MustParsePrefix(podNetwork)),
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		next:      map[string]moment{},
	}
	p.renderer = gotpl.NewRenderer(gotpl.FuncMap{"PodIP": p.address})
	if err := p.watch(); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return p, nil
}

// watch has every pod of our nodes in the cache, and each change of one in the queue.
func (p *pods) watch() error {
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithTransform(strip),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))
	p.cache = factory.Core().V1().Pods().Informer()
	_, err := p.cache.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool {
			pod, ok := podOf(obj)
			return ok && slices.Contains(p.nodes, pod.Spec.NodeName)
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: p.enqueue, UpdateFunc: func(_, pod any) { p.enqueue(pod) }, DeleteFunc: p.forget,
		},
	})
	return err
}

func podOf(obj any) (*corev1.Pod, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	return pod, ok
}

func strip(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

func (p *pods) enqueue(obj any) {
	pod, ok := podOf(obj)
	if !ok {
		return
	}
	if pod.Status.PodIP != "" {
		p.addresses.keep(pod.UID, pod.Status.PodIP)
	}
	p.queue.Add(cache.MetaObjectToName(pod).String())
}

func (p *pods) forget(obj any) {
	if pod, ok := podOf(obj); ok {
		p.addresses.release(pod.UID)
		p.settle(cache.MetaObjectToName(pod).String())
	}
}

// settle forgets what was to happen to a pod.
func (p *pods) settle(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.next, key)
}

// run looks after the pods until ctx is done.
func (p *pods) run(ctx context.Context, ready func()) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.cache.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), p.cache.HasSynced) {
		return nil
	}
	for range workers {
		running.Go(func() {
			for p.work(ctx) {
			}
		})
	}
	if ready != nil {
		ready()
	}
	<-ctx.Done()
	p.queue.ShutDown()
	return nil
}

// work takes one pod from the queue. It gives false when no more will come.
func (p *pods) work(ctx context.Context) bool {
	key, stopped := p.queue.Get()
	if stopped {
		return false
	}
	defer p.queue.Done(key)
	if err := p.visit(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "Lead pod", "pod", key)
		p.queue.AddRateLimited(key)
		return true
	}
	p.queue.Forget(key)
	return true
}

// visit plays the stage that a pod is due for, or comes back when it is.
func (p *pods) visit(ctx context.Context, key string) error {
	object, ok, err := p.cache.GetIndexer().GetByKey(key)
	pod, isPod := object.(*corev1.Pod)
	if err != nil || !ok || !isPod {
		return err
	}
	event := &lifecycle.Event{Labels: pod.Labels, Annotations: pod.Annotations, Data: pod}
	stage, err := p.stages.Match(ctx, event)
	if err != nil {
		return fmt.Errorf("find stage: %w", err)
	}
	if stage == nil {
		p.settle(key)
		return nil
	}
	now := time.Now()
	due, err := p.due(ctx, key, stage, event, now)
	if err != nil || due.done == pod.ResourceVersion {
		return err
	}
	if wait := due.at.Sub(now); wait > 0 {
		p.queue.AddAfter(key, wait)
		return nil
	}
	if err := p.play(ctx, pod, stage); err != nil {
		return fmt.Errorf("play stage %s: %w", stage.Name(), err)
	}
	due.done = pod.ResourceVersion
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[key] = due
	return nil
}

// due is when the pod enters a stage: a delay after this was first found to be its next.
func (p *pods) due(ctx context.Context, key string, stage *lifecycle.Stage, event *lifecycle.Event, now time.Time) (moment, error) {
	pod, _ := podOf(event.Data)
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.next[key]; ok && known.pod == pod.UID && known.stage == stage.Name() {
		return known, nil
	}
	delay, _, err := stage.Delay(ctx, event, now)
	if err != nil {
		return moment{}, fmt.Errorf("find delay: %w", err)
	}
	p.next[key] = moment{pod: pod.UID, stage: stage.Name(), at: now.Add(delay)}
	return p.next[key], nil
}

// play does what a stage asks for. A pod that is gone, or another of the same name, needs nothing done.
func (p *pods) play(ctx context.Context, pod *corev1.Pod, stage *lifecycle.Stage) error {
	client := p.client.CoreV1().Pods(pod.Namespace)
	_, err := stage.DoSteps(0, pod.Finalizers, pod, p.renderer,
		func(e *internalversion.StageEvent) error {
			p.recorder.Event(pod, e.Type, e.Reason, e.Message)
			return nil
		},
		func() error {
			return client.Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			})
		},
		func(patch *lifecycle.Patch) error {
			_, err := client.Patch(ctx, pod.Name, patch.Type, patch.Data, metav1.PatchOptions{}, patch.Subresource)
			return err
		},
		func(*lifecycle.Apply) error {
			return fmt.Errorf("stage %s applies objects, and none here may", stage.Name())
		},
	)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// address is the pod's address as templates ask for it, empty when there is none left.
func (p *pods) address(pod string) string {
	if address := p.addresses.of(types.UID(pod)); address.IsValid() {
		return address.String()
	}
	return ""
}
