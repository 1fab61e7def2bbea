// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

var (
	claimsResource  = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	volumesResource = corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	classesResource = storagev1.SchemeGroupVersion.WithResource("storageclasses")
)

func TestMain(m *testing.M) {
	// The second handler slows errors down by when the last one was, which may have been in another test's time.
	utilruntime.ErrorHandlers[1] = func(context.Context, error, string, ...any) {}
	os.Exit(m.Run())
}

// world is an API server with the objects of a test, and a volumes directory. The test plays the other controllers.
type world struct {
	*testing.T
	client *fake.Clientset
	dir    string
	stop   func()

	failures atomic.Int32 // So many of the next attempts to create a volume fail.
	mu       sync.Mutex
	recorded []corev1.Event
}

// inWorld runs a test under a clock of its own, on which nothing takes time but waiting.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, client: fake.NewClientset(), dir: t.TempDir() + "/volumes", stop: func() {}}
		w.client.PrependReactor("create", "persistentvolumes", w.failCreate)
		w.client.PrependReactor("create", "events", w.record)
		test(w)
		w.stop()
		w.checkRights()
	})
}

// start runs the component until the test stops it or ends.
func (w *world) start(options ...func(*Options)) {
	w.Helper()
	var ready atomic.Bool
	o := Options{Dir: w.dir, NodeName: "ordinal", Ready: func() { ready.Store(true) }}
	for _, option := range options {
		option(&o)
	}
	_, ctx := ktesting.NewTestContext(w.T)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- run(ctx, w.client, o) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("run: %v", err)
		}
		w.stop = func() {}
	}
	w.pass(time.Second)
	if !ready.Load() {
		w.Fatal("not ready after a second")
	}
}

// pass lets time go by, and everything be done that falls due.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// checkRights checks that the ClusterRole allows what was done. The tests' own doings go by the tracker and do not count.
func (w *world) checkRights() {
	w.Helper()
	for _, action := range w.client.Actions() {
		name := action.GetResource().Resource
		if action.GetSubresource() != "" {
			name += "/" + action.GetSubresource()
		}
		allows := func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, action.GetResource().Group) && slices.Contains(r.Resources, name) && slices.Contains(r.Verbs, action.GetVerb())
		}
		if !slices.ContainsFunc(ClusterRole().Rules, allows) {
			w.Errorf("%s of %s was done, and the ClusterRole does not allow it", action.GetVerb(), name)
		}
	}
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) addClass(class *storagev1.StorageClass) {
	w.Helper()
	w.check(w.client.Tracker().Create(classesResource, class, ""))
	// A claim that comes next must not overtake it: they are watched apart, and who is late is tried again much later.
	synctest.Wait()
}

func (w *world) addVolume(volume *corev1.PersistentVolume) {
	w.Helper()
	w.check(w.client.Tracker().Create(volumesResource, volume, ""))
}

func (w *world) setVolume(volume *corev1.PersistentVolume) {
	w.Helper()
	w.check(w.client.Tracker().Update(volumesResource, volume, ""))
	synctest.Wait()
}

func (w *world) setClaim(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	w.check(w.client.Tracker().Update(claimsResource, claim, claim.Namespace))
	synctest.Wait()
}

// addClaim makes shop/data-db-0 or what changes make of it. Its UID is its name, so that its volume is pvc-data-db-0.
func (w *world) addClaim(class string, changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-db-0"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:       new(corev1.PersistentVolumeFilesystem),
			Resources:        corev1.VolumeResourceRequirements{Requests: storageOf("1Ki")},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for _, change := range changes {
		change(claim)
	}
	claim.UID = types.UID(claim.Name)
	w.check(w.client.Tracker().Create(claimsResource, claim, claim.Namespace))
	synctest.Wait()
	return claim
}

// provisionedByUs is what kube-controller-manager does to a claim of a class that is ours.
func provisionedByUs(claim *corev1.PersistentVolumeClaim) {
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "volume.kubernetes.io/storage-provisioner", ProvisionerName)
}

func named(name string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Name = name }
}

func asking(size string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.Resources.Requests = storageOf(size) }
}

func asBlock(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
}

func selecting(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
}

func cloning(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
	claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
}

func populated(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("example.com"), Kind: "Backup", Name: "monday"}
}

func storageOf(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// volume is the volume of that name, or nil.
func (w *world) volume(name string) *corev1.PersistentVolume {
	w.Helper()
	obj, err := w.client.Tracker().Get(volumesResource, "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.check(err)
	return obj.(*corev1.PersistentVolume).DeepCopy()
}

func (w *world) wantVolume(name string) *corev1.PersistentVolume {
	w.Helper()
	volume := w.volume(name)
	if volume == nil {
		w.Fatalf("there is no volume %s; events: %q", name, w.events(""))
	}
	return volume
}

func (w *world) wantNoVolume(name string) {
	w.Helper()
	if volume := w.volume(name); volume != nil {
		w.Errorf("there is a volume %s: %+v", name, volume.Spec)
	}
}

// events are those of one object, or all.
func (w *world) events(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for _, e := range w.recorded {
		if name == "" || e.InvolvedObject.Name == name {
			lines = append(lines, strings.Join([]string{e.Type, e.Reason, e.Message}, " "))
		}
	}
	return lines
}

func (w *world) wantEvent(name, want string) {
	w.Helper()
	events := w.events(name)
	if !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, want) }) {
		w.Errorf("events of %s are %q, want one with %q", name, events, want)
	}
}

func (w *world) wantNoEvent(name, unwanted string) {
	w.Helper()
	events := w.events(name)
	if slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, unwanted) }) {
		w.Errorf("events of %s are %q, want none with %q", name, events, unwanted)
	}
}

// bind does what kube-controller-manager does when a claim gets its volume.
func (w *world) bind(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	w.Helper()
	volume := w.wantVolume(volumeName(claim))
	volume.Status.Phase = corev1.VolumeBound
	w.setVolume(volume)
	claim = claim.DeepCopy()
	claim.Spec.VolumeName = volume.Name
	claim.Status.Phase = corev1.ClaimBound
	claim.Status.Capacity = volume.Spec.Capacity
	w.setClaim(claim)
	return w.wantVolume(volume.Name)
}

// release does what kube-controller-manager does when the claim of a volume is gone.
func (w *world) release(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	w.check(w.client.Tracker().Delete(claimsResource, claim.Namespace, claim.Name))
	volume := w.wantVolume(volumeName(claim))
	volume.Status.Phase = corev1.VolumeReleased
	w.setVolume(volume)
}

func (w *world) failCreate(clienttesting.Action) (bool, runtime.Object, error) {
	if w.failures.Add(-1) >= 0 {
		return true, nil, errors.New("connection refused")
	}
	w.failures.Store(0)
	return false, nil, nil
}

// record keeps events by itself: their names are made of the time, which two of them may well have in common here.
func (w *world) record(action clienttesting.Action) (bool, runtime.Object, error) {
	event := action.(clienttesting.CreateAction).GetObject().(*corev1.Event)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorded = append(w.recorded, *event)
	return true, event, nil
}

func TestProvision(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.addClass(Class("local", true))
		claim := w.addClaim("local", provisionedByUs, asking("5Gi"), func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadOnlyMany}
		})
		volume := w.wantVolume("pvc-data-db-0")
		spec := volume.Spec
		if got := spec.Capacity.Storage().String(); got != "5Gi" {
			t.Errorf("capacity %s, want 5Gi", got)
		}
		if !slices.Equal(spec.AccessModes, claim.Spec.AccessModes) || *spec.VolumeMode != corev1.PersistentVolumeFilesystem {
			t.Errorf("access modes %v, mode %s", spec.AccessModes, *spec.VolumeMode)
		}
		if spec.StorageClassName != "local" || spec.ClaimRef.UID != claim.UID || spec.ClaimRef.Namespace != "shop" {
			t.Errorf("class %q, claim %v", spec.StorageClassName, spec.ClaimRef)
		}
		if spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			t.Errorf("reclaim policy %s, want Delete", spec.PersistentVolumeReclaimPolicy)
		}
		term := spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
		if term.Key != "kubernetes.io/hostname" || term.Operator != corev1.NodeSelectorOpIn || !slices.Equal(term.Values, []string{"ordinal"}) {
			t.Errorf("node affinity %v", term)
		}
		if !isOurs(volume) || !slices.Contains(volume.Finalizers, finalizer) {
			t.Errorf("annotations %v, finalizers %v", volume.Annotations, volume.Finalizers)
		}
		if spec.Local.Path != w.dir+"/shop_data-db-0_pvc-data-db-0" {
			t.Errorf("path %s", spec.Local.Path)
		}
		wantMode(t, spec.Local.Path, fs.ModeDir|0o777)
		w.wantEvent("data-db-0", "Normal ProvisioningSucceeded")
	})
}

// Where nodes are simulated, so are volumes: bound and released like others, and nothing on the disk.
func TestProvisionSimulated(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", true))
		w.start(func(o *Options) { o.Simulated = true })
		claim := w.addClaim("local", provisionedByUs)
		spec := w.bind(claim).Spec
		if spec.Local != nil || spec.NodeAffinity != nil || spec.HostPath == nil {
			t.Fatalf("volume is %+v, want one of every node", spec)
		}
		if _, err := os.Lstat(spec.HostPath.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made: %v", spec.HostPath.Path, err)
		}
		w.release(claim)
		w.pass(time.Second)
		w.wantNoVolume("pvc-data-db-0")
	})
}

func TestProvisionTakesOverFromClass(t *testing.T) {
	inWorld(t, func(w *world) {
		class := Class("kept", false)
		class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
		class.MountOptions = []string{"noatime"}
		w.addClass(class)
		w.start()
		w.addClaim("kept", provisionedByUs)
		spec := w.wantVolume("pvc-data-db-0").Spec
		if spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || !slices.Equal(spec.MountOptions, class.MountOptions) {
			t.Errorf("reclaim policy %s, mount options %q", spec.PersistentVolumeReclaimPolicy, spec.MountOptions)
		}
	})
}

// Nothing is served that kube-controller-manager has not told us to: it decides whose claim it is.
func TestProvisionOnlyOurClaims(t *testing.T) {
	inWorld(t, func(w *world) {
		other := Class("fast", false)
		other.Provisioner = "example.com/fast"
		w.addClass(other)
		w.addClass(Class("local", false))
		w.start()
		w.addClaim("fast")
		w.addClaim("fast", named("told"), func(c *corev1.PersistentVolumeClaim) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, "volume.kubernetes.io/storage-provisioner", "example.com/fast")
		})
		w.addClaim("local", named("untold"))
		w.pass(time.Minute)
		for _, name := range []string{"pvc-data-db-0", "pvc-told", "pvc-untold"} {
			w.wantNoVolume(name)
		}
		wantListing(t, w.dir)
	})
}

func TestProvisionRefuses(t *testing.T) {
	tests := map[string]struct {
		claim func(*corev1.PersistentVolumeClaim)
		class func(*storagev1.StorageClass)
		event string // Empty: none is due.
	}{
		"block":     {claim: asBlock, event: "not block devices"},
		"selector":  {claim: selecting, event: "make the claim anew without one"},
		"clone":     {claim: cloning, event: "clone volumes"},
		"populator": {claim: populated},
		"parameters": {
			class: func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"pathPattern": "x"} },
			event: "has parameters",
		},
		"topology": {
			class: func(c *storagev1.StorageClass) { c.AllowedTopologies = topology("elsewhere") },
			event: "allows no topology",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				class := Class("local", false)
				if tt.class != nil {
					tt.class(class)
				}
				w.addClass(class)
				w.start()
				claim := tt.claim
				if claim == nil {
					claim = func(*corev1.PersistentVolumeClaim) {}
				}
				w.addClaim("local", provisionedByUs, claim)
				w.pass(10 * time.Minute)
				w.wantNoVolume("pvc-data-db-0")
				wantListing(t, w.dir)
				if tt.event == "" {
					w.wantNoEvent("data-db-0", "Warning")
					return
				}
				w.wantEvent("data-db-0", tt.event)
				w.wantEvent("data-db-0", "Warning ProvisioningFailed")
			})
		})
	}
}

func topology(host string) []corev1.TopologySelectorTerm {
	return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
		{Key: "kubernetes.io/hostname", Values: []string{host}},
	}}}
}

func TestProvisionForChosenNode(t *testing.T) {
	const chosen = "volume.kubernetes.io/selected-node"
	inWorld(t, func(w *world) {
		class := Class("lazy", false)
		class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
		class.AllowedTopologies = topology("ordinal")
		w.addClass(class)
		w.start()
		w.addClaim("lazy", provisionedByUs, named("here"), func(c *corev1.PersistentVolumeClaim) { c.Annotations[chosen] = "ordinal" })
		w.addClaim("lazy", provisionedByUs, named("there"), func(c *corev1.PersistentVolumeClaim) { c.Annotations[chosen] = "elsewhere" })
		w.pass(time.Second)
		w.wantVolume("pvc-here")
		w.wantNoVolume("pvc-there")
		obj, err := w.client.Tracker().Get(claimsResource, "shop", "there")
		w.check(err)
		if node, ok := obj.(*corev1.PersistentVolumeClaim).Annotations[chosen]; ok {
			t.Errorf("the claim still wants node %s, so the scheduler will not choose another", node)
		}
	})
}

func TestProvisionWarnsOfSmallDisk(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		w.addClaim("local", provisionedByUs, asking("1Ei"))
		w.wantVolume("pvc-data-db-0")
		w.wantEvent("data-db-0", "Warning LowDiskSpace the claim asks for 1Ei and the disk of "+w.dir+" has ")
		w.addClaim("local", provisionedByUs, named("small"), asking("1"))
		w.wantVolume("pvc-small")
		w.wantNoEvent("small", "Warning")
	})
}

func TestProvisionHealsWhenDiskDoes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		inTheWay := w.dir + "/shop_data-db-0_pvc-data-db-0"
		writeFile(t, inTheWay, "")
		w.addClaim("local", provisionedByUs)
		w.pass(time.Hour)
		w.wantNoVolume("pvc-data-db-0")
		w.wantEvent("data-db-0", "Warning ProvisioningFailed "+inTheWay+" is in the way")
		if n := len(w.client.Actions()); n > 300 {
			t.Errorf("%d calls in an hour of failing", n)
		}
		w.check(os.Remove(inTheWay))
		w.pass(retryMost)
		w.wantVolume("pvc-data-db-0")
	})
}

func TestVolumeIsSavedAfterAPIFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		w.failures.Store(20)
		w.addClaim("local", provisionedByUs)
		w.pass(30 * time.Second)
		w.wantNoVolume("pvc-data-db-0")
		wantListing(t, w.dir, "shop_data-db-0_pvc-data-db-0")
		w.pass(20 * retryMost)
		w.wantVolume("pvc-data-db-0")
	})
}

func TestCrashBeforeVolumeIsSaved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		w.failures.Store(1000)
		w.addClaim("local", provisionedByUs)
		w.stop()
		w.failures.Store(0)
		w.wantNoVolume("pvc-data-db-0")
		writeFile(t, w.dir+"/shop_data-db-0_pvc-data-db-0/row", "precious")
		w.start()
		w.wantVolume("pvc-data-db-0")
		wantContent(t, w.dir+"/shop_data-db-0_pvc-data-db-0/row", "precious")
	})
}

func TestCrashAndClaimGone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		w.failures.Store(1000)
		w.addClaim("local", provisionedByUs)
		w.stop()
		w.failures.Store(0)
		wantListing(t, w.dir, "shop_data-db-0_pvc-data-db-0")
		w.check(w.client.Tracker().Delete(claimsResource, "shop", "data-db-0"))
		w.start()
		wantListing(t, w.dir)
	})
}

func TestDelete(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		claim := w.addClaim("local", provisionedByUs)
		other := w.addClaim("local", provisionedByUs, named("other"))
		volume := w.bind(claim)
		w.bind(other)
		writeFile(t, volume.Spec.Local.Path+"/deep/row", "old")
		writeFile(t, w.dir+"/shop_other_pvc-other/row", "precious")
		w.pass(time.Minute)
		wantContent(t, volume.Spec.Local.Path+"/deep/row", "old")
		w.release(claim)
		w.wantNoVolume("pvc-data-db-0")
		w.wantVolume("pvc-other")
		wantListing(t, w.dir, "shop_other_pvc-other")
		wantContent(t, w.dir+"/shop_other_pvc-other/row", "precious")
	})
}

// A volume may be deleted by name while its claim still exists. It goes when the claim does, and its directory with it.
func TestDeleteVolumeBeforeClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		claim := w.addClaim("local", provisionedByUs)
		volume := w.bind(claim)
		volume.DeletionTimestamp = new(metav1.Now())
		w.setVolume(volume)
		w.pass(time.Minute)
		wantListing(t, w.dir, "shop_data-db-0_pvc-data-db-0")
		w.release(claim)
		w.wantNoVolume("pvc-data-db-0")
		wantListing(t, w.dir)
	})
}

func TestRetain(t *testing.T) {
	inWorld(t, func(w *world) {
		class := Class("kept", false)
		class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
		w.addClass(class)
		w.start()
		claim := w.addClaim("kept", provisionedByUs)
		volume := w.bind(claim)
		writeFile(t, volume.Spec.Local.Path+"/row", "precious")
		w.release(claim)
		w.pass(time.Minute)
		w.wantVolume("pvc-data-db-0")
		w.check(w.client.Tracker().Delete(volumesResource, "", "pvc-data-db-0"))
		w.pass(time.Minute)
		w.stop()
		w.start()
		wantContent(t, volume.Spec.Local.Path+"/row", "precious")
	})
}

// An empty directory is in use as long as there is a volume that leads to it.
func TestRetainEmpty(t *testing.T) {
	inWorld(t, func(w *world) {
		class := Class("kept", false)
		class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain)
		w.addClass(class)
		w.start()
		claim := w.addClaim("kept", provisionedByUs)
		w.bind(claim)
		w.release(claim)
		w.stop()
		w.start()
		w.wantVolume("pvc-data-db-0")
		wantListing(t, w.dir, "shop_data-db-0_pvc-data-db-0")
	})
}

func TestDeleteResumesAfterCrash(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		claim := w.addClaim("local", provisionedByUs)
		volume := w.bind(claim)
		w.stop()
		// As a process leaves it that dies between the rename and the deletion.
		writeFile(t, w.dir+"/"+trashPrefix+"shop_data-db-0_pvc-data-db-0/row", "old")
		writeFile(t, w.dir+"/"+trashPrefix+"shop_gone_pvc-gone/row", "old")
		w.check(os.RemoveAll(volume.Spec.Local.Path))
		w.release(claim)
		w.start()
		w.wantNoVolume("pvc-data-db-0")
		wantListing(t, w.dir)
	})
}

func TestDeleteRefuses(t *testing.T) {
	tests := map[string]func(w *world, volume *corev1.PersistentVolume){
		"path outside": func(w *world, volume *corev1.PersistentVolume) { volume.Spec.Local.Path = w.dir + "/../outside" },
		"path of all":  func(w *world, volume *corev1.PersistentVolume) { volume.Spec.Local.Path = w.dir },
		"path of another": func(w *world, volume *corev1.PersistentVolume) {
			volume.Spec.Local.Path = w.dir + "/shop_other_pvc-other"
		},
		"other source": func(_ *world, volume *corev1.PersistentVolume) {
			volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: volume.Spec.Local.Path}}
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.addClass(Class("local", false))
				w.start()
				claim := w.addClaim("local", provisionedByUs)
				volume := w.bind(claim)
				files := []string{volume.Spec.Local.Path + "/row", w.dir + "/../outside/row", w.dir + "/shop_other_pvc-other/row"}
				for _, file := range files {
					writeFile(t, file, "precious")
				}
				change(w, volume)
				w.setVolume(volume)
				w.release(claim)
				w.pass(time.Minute)
				w.wantVolume("pvc-data-db-0")
				w.wantEvent("pvc-data-db-0", "Warning VolumeFailedDelete")
				for _, file := range files {
					wantContent(t, file, "precious")
				}
			})
		})
	}
}

func TestDeleteOnlyOurs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		path := w.dir + "/shop_theirs_theirs"
		writeFile(t, path+"/row", "precious")
		for name, annotations := range map[string]map[string]string{"theirs": nil, "fast": {provisionedBy: "example.com/fast"}} {
			w.addVolume(&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
				Spec: corev1.PersistentVolumeSpec{
					PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
					PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
				},
				Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
			})
		}
		w.pass(time.Minute)
		w.wantVolume("theirs")
		w.wantVolume("fast")
		wantContent(t, path+"/row", "precious")
	})
}

// The library asks only for ours. Should it not, their data is still theirs.
func TestDeleteIgnoresOthers(t *testing.T) {
	d := newDirectories(t)
	makeDirectory(t, d, testDirectory)
	p := &provisioner{dirs: d, node: "ordinal"}
	err := p.Delete(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			Local: &corev1.LocalVolumeSource{Path: d.pathOf(testDirectory)},
		}},
	})
	if _, ok := errors.AsType[*controller.IgnoredError](err); !ok {
		t.Errorf("error %v, want IgnoredError", err)
	}
	wantListing(t, d.path, testDirectory)
}

func TestExpand(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", false))
		w.start()
		claim := w.addClaim("local", provisionedByUs)
		w.bind(claim)
		claim = claim.DeepCopy()
		claim.Spec.VolumeName, claim.Status.Phase, claim.Status.Capacity = "pvc-data-db-0", corev1.ClaimBound, storageOf("1Ki")
		claim.Spec.Resources.Requests = storageOf("2Ki")
		w.setClaim(claim)
		if got := w.wantVolume("pvc-data-db-0").Spec.Capacity.Storage().String(); got != "2Ki" {
			t.Errorf("the volume has %s, want 2Ki", got)
		}
		obj, err := w.client.Tracker().Get(claimsResource, "shop", "data-db-0")
		w.check(err)
		if got := obj.(*corev1.PersistentVolumeClaim).Status.Capacity.Storage().String(); got != "2Ki" {
			t.Errorf("the claim has %s, want 2Ki", got)
		}
		w.wantEvent("data-db-0", "Normal VolumeResizeSuccessful the volume's size is now 2Ki")
		calls := len(w.client.Actions())
		w.pass(time.Hour)
		if more := len(w.client.Actions()) - calls; more > 0 {
			t.Errorf("%d more calls when all was done", more)
		}
	})
}

func TestExpandOnlyOurs(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolume){
		"not made by us":   func(v *corev1.PersistentVolume) { v.Annotations = nil },
		"of another claim": func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "another" },
		"of no claim":      func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				volume := &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: "named", Annotations: map[string]string{provisionedBy: ProvisionerName}},
					Spec:       corev1.PersistentVolumeSpec{Capacity: storageOf("1Ki"), ClaimRef: &corev1.ObjectReference{UID: "data-db-0"}},
				}
				change(volume)
				w.addVolume(volume)
				w.addClaim("fast", asking("2Ki"), func(c *corev1.PersistentVolumeClaim) {
					c.Spec.VolumeName, c.Status.Phase, c.Status.Capacity = "named", corev1.ClaimBound, storageOf("1Ki")
				})
				w.pass(time.Minute)
				if got := w.wantVolume("named").Spec.Capacity.Storage().String(); got != "1Ki" {
					t.Errorf("the volume has %s, want 1Ki", got)
				}
			})
		})
	}
}

func TestIdleIsQuiet(t *testing.T) {
	inWorld(t, func(w *world) {
		w.addClass(Class("local", true))
		w.start()
		w.bind(w.addClaim("local", provisionedByUs))
		w.bind(w.addClaim("local", provisionedByUs, named("other")))
		w.pass(time.Minute)
		calls := len(w.client.Actions())
		w.pass(24 * time.Hour)
		if more := len(w.client.Actions()) - calls; more > 0 {
			t.Errorf("%d calls in an idle day: %v", more, w.client.Actions()[calls:])
		}
	})
}

func TestRunRefusesOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"not an absolute path": {Dir: "volumes", NodeName: "ordinal"},
		"node name is empty":   {Dir: t.TempDir()},
	} {
		if err := Run(t.Context(), nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run(%+v) = %v, want %q", o, err, want)
		}
	}
	file := t.TempDir() + "/file"
	writeFile(t, file, "")
	if err := run(t.Context(), fake.NewClientset(), Options{Dir: file, NodeName: "ordinal"}); err == nil {
		t.Error("run on a file succeeded")
	}
}

func TestClass(t *testing.T) {
	for name, isDefault := range map[string]bool{"local": true, "other": false} {
		class := Class(name, isDefault)
		if class.Name != name || class.Provisioner != ProvisionerName || (class.Annotations[defaultClassAnnotation] == "true") != isDefault {
			t.Errorf("Class(%q, %t) = %+v", name, isDefault, class)
		}
	}
}

func TestClusterRoleBinding(t *testing.T) {
	binding := ClusterRoleBinding()
	if binding.RoleRef.Name != ClusterRole().Name || len(binding.Subjects) != 1 || binding.Subjects[0].Name != User {
		t.Errorf("binding %+v", binding)
	}
}
