// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/ordinal-dev/ordinal/internal/nodes"
)

const (
	// simulated labels the nodes on which no containers run, and taints them for all but the sets.
	simulated     = "ordinal.dev/simulated"
	provisionerID = "foreign.example/disk"
	// onNode is the class of disks that are in one node, inZone that of those which every node of a zone reaches.
	onNode = "on-node"
	inZone = "in-zone"

	fleetSize = 6
	podDelay  = 500 * time.Millisecond
)

// zoneOf is the zone of a simulated node. Each zone has two.
func zoneOf(node string) string {
	number, err := strconv.Atoi(strings.TrimPrefix(node, "node-"))
	if err != nil {
		return ""
	}
	return "zone-" + string(rune('a'+number%3))
}

// startFleet gives the control plane simulated nodes in three zones, and disks of two kinds.
func (p *plane) startFleet(t *testing.T) {
	t.Helper()
	capacity, err := nodes.ParseCapacity("")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	o := nodes.Options{Count: fleetSize, Capacity: capacity, PodDelay: podDelay, Ready: func() { close(ready) }}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	ctx := t.Context()
	running.Go(func() {
		if err := nodes.Run(ctx, p.config, o); err != nil {
			t.Errorf("simulate nodes: %v", err)
		}
	})
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the simulated nodes do not start")
	}
	for i := range fleetSize {
		p.furnish(t, nodes.Name(i))
	}
	for _, class := range []string{onNode, inZone} {
		late := new(storagev1.VolumeBindingWaitForFirstConsumer)
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: provisionerID, VolumeBindingMode: late,
		}
		if _, err := p.client.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	provisioner := controller.NewProvisionController(ctx, p.client, provisionerID, disks{}, controller.LeaderElection(false))
	running.Go(func() { provisioner.Run(ctx) })
}

// furnish puts a node into its zone, and keeps others than sets off it.
func (p *plane) furnish(t *testing.T, node string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{corev1.LabelTopologyZone: zoneOf(node)}},
		"spec":     map[string]any{"taints": []corev1.Taint{{Key: simulated, Effect: corev1.TaintEffectNoSchedule}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// disks provisions volumes that may be used where their class says, and hold nothing.
type disks struct{}

// Provision makes a disk for the node that the scheduler has chosen.
func (disks) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	key, value := corev1.LabelHostname, o.SelectedNodeName
	if o.StorageClass.Name == inZone {
		key, value = corev1.LabelTopologyZone, zoneOf(o.SelectedNodeName)
	}
	if value == "" {
		return nil, controller.ProvisioningFinished, fmt.Errorf("node %q has no disks", o.SelectedNodeName)
	}
	where := corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      o.PVC.Spec.Resources.Requests,
			AccessModes:                   o.PVC.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/disks/" + o.PVName}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{where}}},
			}},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete has nothing to remove.
func (disks) Delete(context.Context, *corev1.PersistentVolume) error { return nil }
