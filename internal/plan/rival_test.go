// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/claim"
	"github.com/ordinal-dev/ordinal/internal/plan"
	"github.com/ordinal-dev/ordinal/internal/sim"
)

// A claim that is gone is made again for the pod that waits for it, and not left to an older set that has no such pod.
func TestLostClaimOfTheSetThatHasThePod(t *testing.T) {
	w := sim.New(sim.NewSet("web", 1, func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates[0].Name = "data-a" }))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	older := sim.NewSet("a-web", 2)
	older.CreationTimestamp = metav1.NewTime(w.Now.Add(-time.Hour))
	w.Rivals = []claim.Rival{{Set: older, Template: "data-a"}}
	w.Change("web-0", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
	delete(w.Claims, "data-a-web-0")
	if p := plan.Make(w.Snapshot()); len(of[plan.CreateClaim](p)) != 1 {
		t.Errorf("the plan is\n%s", p.String(w.Now))
	}
}
