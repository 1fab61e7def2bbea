// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage gives claims directories of this machine's disk: the volume provisioner of the one-machine cluster.
//
// Every volume is one directory and one PersistentVolume of type local, tied to the one node. The protocol of dynamic
// provisioning (which claims to serve, when a volume may be deleted, retries) is that of
// sig-storage-lib-external-provisioner; this package adds the directories, claims that name a class nobody defined, and
// the growing of claims.
//
// Nothing is remembered outside the API server and the directory itself, and the process may be killed at any moment:
// a directory is named after its claim's UID, so that a retry finds it again, and a deletion starts with a rename that a
// later start recognises and finishes.
package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// ProvisionerName is what a StorageClass names to have its claims served by this package.
const ProvisionerName = "ordinal.dev/local"

// Retries start soon, because most failures are a cache that is a moment behind, and settle at a pace that costs
// nothing and yet heals within a minute of the cause (a full disk) being removed.
const (
	retryFirst = 250 * time.Millisecond
	retryMost  = time.Minute
)

// Options configures Run. Dir and NodeName are required.
type Options struct {
	// Dir holds the volumes, one directory each. It is an absolute path, made if missing and closed to other users.
	Dir string
	// NodeName is the node that the volumes are tied to.
	NodeName string
	// Simulated makes volumes that hold nothing and that every node reaches, for nodes that run nothing.
	Simulated bool
	// Strict leaves claims alone that name a StorageClass which does not exist, as Kubernetes does everywhere else.
	Strict bool
	// Ready, if set, is called once, when claims are being served.
	Ready func()
}

func (o Options) validate() error {
	var errs []error
	if !filepath.IsAbs(o.Dir) {
		errs = append(errs, fmt.Errorf("volumes directory %q is not an absolute path", o.Dir))
	}
	if o.NodeName == "" {
		errs = append(errs, errors.New("node name is empty"))
	}
	return errors.Join(errs...)
}

// Run serves claims until ctx is done. It returns an error only if it cannot begin; what goes wrong later becomes an
// event on the claim or the volume and is retried.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "ordinal-storage"
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// A volume's object must not queue behind events; the API server's own priority and fairness is the limit.
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make API client: %w", err)
	}
	return run(ctx, client, o)
}

func run(ctx context.Context, client kubernetes.Interface, o Options) error {
	dirs, err := openDirectories(o.Dir)
	if err != nil {
		return err
	}
	defer dirs.close()

	// No resync: everything that can change the outcome is watched or retried, and an idle cluster stays idle.
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(dropManagedFields))
	defer factory.Shutdown()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	recorder := newRecorder(ctx, client)
	source := &provisioner{dirs: dirs, node: o.NodeName, isSimulated: o.Simulated, recorder: recorder}
	var workers sync.WaitGroup
	loops := []func(context.Context){
		newDefinedClasses(ctx, client, source, factory, &workers).Run,
		newExpander(client, recorder, factory).run,
		dirs.emptyTrash,
	}
	if !o.Strict {
		loops = append(loops, newUndefinedClasses(client, recorder, source, factory).run)
	}

	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if ctx.Err() != nil {
		return nil
	}
	if err := dropUnused(dirs, factory.Core().V1()); err != nil {
		klog.FromContext(ctx).Error(err, "Look for unused volume directories")
	}
	for _, loop := range loops {
		workers.Go(func() { loop(ctx) })
	}
	if o.Ready != nil {
		o.Ready()
	}
	<-ctx.Done()
	workers.Wait()
	return nil
}

// newDefinedClasses serves claims of classes that name our provisioner, and deletes volumes. Its workers are counted.
func newDefinedClasses(ctx context.Context, client kubernetes.Interface, source *provisioner,
	factory informers.SharedInformerFactory, workers *sync.WaitGroup,
) *controller.ProvisionController {
	c := controller.NewProvisionController(ctx, client, ProvisionerName, source,
		controller.ClaimsInformer(factory.Core().V1().PersistentVolumeClaims().Informer()),
		controller.VolumesInformer(factory.Core().V1().PersistentVolumes().Informer()),
		controller.ClassesInformer(factory.Storage().V1().StorageClasses().Informer()),
		controller.ResyncPeriod(0),
		controller.LeaderElection(false),
		// With its finalizer a volume that is deleted before its claim still takes its directory along.
		controller.AddFinalizer(true),
		controller.RateLimiter(newRateLimiter[string]()),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		// Saving the object is repeated for ever; the alternatives delete the directory after some failures.
		controller.CreateProvisionedPVLimiter(newRateLimiter[string]()),
	)
	c.ControllerWaitGroup(workers)
	return c
}

// dropUnused compares the directories with the volumes that exist and those that claims may still get.
func dropUnused(dirs *directories, known coreinformers.Interface) error {
	wanted := sets.New[string]()
	claims, err := known.PersistentVolumeClaims().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	for _, claim := range claims {
		wanted.Insert(volumeName(claim))
	}
	volumes, err := known.PersistentVolumes().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		wanted.Insert(volume.Name)
	}
	return dirs.dropUnused(wanted.Has)
}

// work does what is queued, one after the other, until ctx is done. What fails is queued again, later each time.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], do func(context.Context, T) error) {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := do(ctx, key); err != nil {
			klog.FromContext(ctx).Error(err, "Try again later")
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

func newRateLimiter[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, retryMost)
}

func newRecorder(ctx context.Context, client kubernetes.Interface) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: ProvisionerName})
}

// dropManagedFields keeps the caches small: nobody here reads who owns which field.
func dropManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
