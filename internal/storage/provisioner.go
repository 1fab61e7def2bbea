// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Reasons of events.
const (
	reasonProvisioningFailed = "ProvisioningFailed"
	reasonLowDiskSpace       = "LowDiskSpace"
	reasonClassNotDefined    = "ClassNotDefined"
	reasonResized            = "VolumeResizeSuccessful"
)

// provisionedBy marks a volume whose directory is ours to delete.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// finalizer keeps a deleted volume until its directory is gone. It is the name that the provisioner library looks for.
const finalizer = "external-provisioner.volume.kubernetes.io/finalizer"

const snapshotGroup = "snapshot.storage.k8s.io"

// provisioner makes and deletes volumes. It is the part that the library calls.
type provisioner struct {
	dirs     *directories
	node     string
	recorder record.EventRecorder
	// isSimulated makes objects only: nothing on the disk, and for every node.
	isSimulated bool
}

var _ controller.BlockProvisioner = (*provisioner)(nil)

// SupportsBlock claims that block devices are served, which gets such a claim to Provision, to be refused there with
// what to do instead.
func (p *provisioner) SupportsBlock(context.Context) bool { return true }

// Provision makes the directory for a claim of a defined class, and returns the volume that leads to it.
func (p *provisioner) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if o.SelectedNodeName != "" && o.SelectedNodeName != p.node && !p.isSimulated {
		return nil, controller.ProvisioningReschedule, fmt.Errorf("node %s was chosen, but local volumes are on node %s", o.SelectedNodeName, p.node)
	}
	if err := p.checkClass(o.StorageClass); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if ignore := p.checkClaim(o.PVC); ignore != nil {
		return nil, controller.ProvisioningFinished, ignore
	}
	volume, err := p.volumeFor(o.PVC, o.PVName)
	if err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if o.StorageClass.ReclaimPolicy != nil {
		volume.Spec.PersistentVolumeReclaimPolicy = *o.StorageClass.ReclaimPolicy
	}
	volume.Spec.MountOptions = o.StorageClass.MountOptions
	return volume, controller.ProvisioningFinished, nil
}

// Delete removes the directory of a volume. The library has made sure that the volume is released, is to be deleted,
// and carries our annotation.
func (p *provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if volume.Annotations[provisionedBy] != ProvisionerName {
		return &controller.IgnoredError{Reason: "the volume was not made by " + ProvisionerName}
	}
	if p.isSimulated {
		return nil
	}
	if volume.Spec.Local == nil {
		return fmt.Errorf("volume %s is not a local volume any more", volume.Name)
	}
	directory, err := p.dirs.directoryOf(volume.Spec.Local.Path, volume.Name)
	if err != nil {
		return err
	}
	return p.dirs.remove(directory)
}

// checkClass refuses what a class asks for and would not get. It is repeated, as a class can be made anew.
func (p *provisioner) checkClass(class *storagev1.StorageClass) error {
	if len(class.Parameters) > 0 {
		return fmt.Errorf("StorageClass %q has parameters, and %s knows none: make the class anew without them", class.Name, ProvisionerName)
	}
	if len(class.AllowedTopologies) > 0 && !slices.ContainsFunc(class.AllowedTopologies, p.isHere) {
		return fmt.Errorf("StorageClass %q allows no topology that %s=%s is in", class.Name, corev1.LabelHostname, p.node)
	}
	return nil
}

func (p *provisioner) isHere(term corev1.TopologySelectorTerm) bool {
	for _, e := range term.MatchLabelExpressions {
		if e.Key != corev1.LabelHostname || !slices.Contains(e.Values, p.node) {
			return false
		}
	}
	return true
}

// checkClaim refuses what cannot be done. A claim cannot be mended, so that an event has to do, and no repetition.
func (p *provisioner) checkClaim(claim *corev1.PersistentVolumeClaim) *controller.IgnoredError {
	refuse := func(reason string) *controller.IgnoredError {
		p.recorder.Event(claim, corev1.EventTypeWarning, reasonProvisioningFailed, reason)
		return &controller.IgnoredError{Reason: reason}
	}
	if claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		return refuse("local storage has directories, not block devices: make the claim anew with volumeMode Filesystem")
	}
	if claim.Spec.Selector != nil {
		return refuse("a selector chooses among existing volumes, and no volume can be made to fit it: make the claim anew without one")
	}
	ref := claim.Spec.DataSourceRef
	if ref == nil && claim.Spec.DataSource == nil {
		return nil
	}
	if ref != nil && ref.APIGroup != nil && *ref.APIGroup != "" && *ref.APIGroup != snapshotGroup {
		return &controller.IgnoredError{Reason: "a volume populator serves the claim"}
	}
	return refuse("local storage can neither clone volumes nor restore snapshots: make the claim anew without a data source")
}

// volumeFor makes the directory for a claim, unless a former attempt has, and returns the volume that leads to it.
func (p *provisioner) volumeFor(claim *corev1.PersistentVolumeClaim, name string) (*corev1.PersistentVolume, error) {
	directory, err := directoryName(claim.Namespace, claim.Name, name)
	if err != nil {
		return nil, err
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	volume := newVolume(claim, name, size)
	if p.isSimulated {
		// Only a local volume has to say which node it is on.
		volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: p.dirs.pathOf(directory)}
		return volume, nil
	}
	made, err := p.dirs.make(directory)
	if err != nil {
		return nil, err
	}
	if made {
		p.warnIfLarge(claim, size)
	}
	volume.Spec.NodeAffinity = onNode(p.node)
	volume.Spec.Local = &corev1.LocalVolumeSource{Path: p.dirs.pathOf(directory)}
	return volume, nil
}

// newVolume is a claim's volume, but for where it is.
func newVolume(claim *corev1.PersistentVolumeClaim, name string, size resource.Quantity) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{provisionedBy: ProvisionerName},
			Finalizers:  []string{finalizer},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: size},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		},
	}
}

// warnIfLarge tells of a claim that cannot be filled. It gets its volume all the same: sizes in manifests are made for
// other machines, and what will be written is usually far less.
func (p *provisioner) warnIfLarge(claim *corev1.PersistentVolumeClaim, size resource.Quantity) {
	free, err := p.dirs.free()
	if err != nil || free.Cmp(size) >= 0 {
		return
	}
	free.Set(free.Value() &^ (1<<20 - 1)) // Whole MiB, to be read.
	p.recorder.Eventf(claim, corev1.EventTypeWarning, reasonLowDiskSpace,
		"the claim asks for %s and the disk of %s has %s free: the volume is made, and can hold what the disk can", size.String(), p.dirs.path, free)
}

func onNode(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}},
		}},
	}}
}

// volumeName is what the library calls the volume of a claim. It names the claim's UID, not the claim, so that it is the
// same on each attempt and never used twice.
func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }
