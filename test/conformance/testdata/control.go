// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statefulset is Kubernetes' package of its StatefulSet controller, in a copy in which this file takes the place of
// stateful_set_control.go. Its tests then find our planner and applier under the names that they use.
package statefulset

import (
	"context"
	"os"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/lru"

	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/test/conformance/control"
)

// MaxBatchSize is how many pods are made or deleted at once at most.
const MaxBatchSize = 500

// maxRevisionEqualityCacheEntries is the size of a cache that ours has no use for.
const maxRevisionEqualityCacheEntries = 1

// StatefulSetControlInterface is what the tests and the controller ask for.
type StatefulSetControlInterface interface {
	UpdateStatefulSet(ctx context.Context, set *apps.StatefulSet, pods []*v1.Pod, now time.Time) (*apps.StatefulSetStatus, error)
	ListRevisions(set *apps.StatefulSet) ([]*apps.ControllerRevision, error)
	AdoptOrphanRevisions(set *apps.StatefulSet, revisions []*apps.ControllerRevision) error
}

// NewDefaultStatefulSetControl is how the tests make a control.
func NewDefaultStatefulSetControl(
	pods *StatefulPodControl, status StatefulSetStatusUpdaterInterface, history history.Interface,
) StatefulSetControlInterface {
	return &defaultStatefulSetControl{pods, status, history, nil}
}

// defaultStatefulSetControl has the fields that the tests fill in.
type defaultStatefulSetControl struct {
	podControl        *StatefulPodControl
	statusUpdater     StatefulSetStatusUpdaterInterface
	controllerHistory history.Interface
	_                 *lru.Cache
}

// ours is our control, with the gates as the test has set them.
func (ssc *defaultStatefulSetControl) ours() *control.Control {
	enabled := utilfeature.DefaultFeatureGate.Enabled
	return &control.Control{
		Objects: ssc.podControl.objectMgr,
		Status:  ssc.statusUpdater,
		History: ssc.controllerHistory,
		Options: plan.Options{
			Defaulter:            func(set *apps.StatefulSet) { legacyscheme.Scheme.Default(set) },
			BytewiseRevisions:    !enabled(features.StatefulSetSemanticRevisionComparison),
			IgnoreMaxUnavailable: !enabled(features.MaxUnavailableStatefulSet),
			Recreate:             enabled(features.StatefulSetRecreateStrategy),
			Strict:               os.Getenv("ORDINAL_STRICT") != "",
		},
	}
}

func (ssc *defaultStatefulSetControl) UpdateStatefulSet(
	ctx context.Context, set *apps.StatefulSet, pods []*v1.Pod, now time.Time,
) (*apps.StatefulSetStatus, error) {
	return ssc.ours().Update(ctx, set, pods, now)
}

func (ssc *defaultStatefulSetControl) ListRevisions(set *apps.StatefulSet) ([]*apps.ControllerRevision, error) {
	return ssc.ours().Revisions(set)
}

func (ssc *defaultStatefulSetControl) AdoptOrphanRevisions(set *apps.StatefulSet, _ []*apps.ControllerRevision) error {
	all, err := ssc.ListRevisions(set)
	if err != nil {
		return err
	}
	_, _, err = ssc.ours().Record(context.Background(), set, all, time.Now())
	return err
}

func (ssc *defaultStatefulSetControl) getStatefulSetRevisions(
	set *apps.StatefulSet, revisions []*apps.ControllerRevision,
) (*apps.ControllerRevision, *apps.ControllerRevision, int32, error) {
	current, update, err := ssc.ours().Record(context.Background(), set, revisions, time.Now())
	return current, update, 0, err
}

// updateStatefulSetAfterInvariantEstablished makes a whole sync, for ours knows no smaller part. The tests give it an update
// revision without a name, which no pod can have; here the template is changed, to the same effect.
func updateStatefulSetAfterInvariantEstablished(
	ctx context.Context, ssc *defaultStatefulSetControl, set *apps.StatefulSet, pods []*v1.Pod,
	_ *apps.ControllerRevision, _ apps.StatefulSetStatus, now time.Time,
) (*apps.StatefulSetStatus, error) {
	set = set.DeepCopy()
	set.Spec.Template.Annotations = map[string]string{"changed": "yes"}
	return ssc.UpdateStatefulSet(ctx, set, pods, now)
}

// updateStatefulSetStatus writes a status as it is.
func (ssc *defaultStatefulSetControl) updateStatefulSetStatus(
	ctx context.Context, set *apps.StatefulSet, status *apps.StatefulSetStatus,
) error {
	return ssc.statusUpdater.UpdateStatefulSetStatus(ctx, set.DeepCopy(), status)
}
