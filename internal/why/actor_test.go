// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/why"
)

func TestActor(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	wrote := func(manager, subresource string, at *metav1.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: at}
	}
	lease := func(holder string, acquired, renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder,
			AcquireTime:    &metav1.MicroTime{Time: now.Add(-acquired)},
			RenewTime:      &metav1.MicroTime{Time: now.Add(-renewed)},
		}}
	}
	const minute = time.Minute
	incumbent := wrote("kube-controller-manager", "status", ago(10*minute))
	for name, tt := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		lease  *coordinationv1.Lease
		want   why.Actor
	}{
		"nothing":                         {nil, nil, why.Unknown},
		"ours by its status":              {[]metav1.ManagedFieldsEntry{wrote("ordinal", "status", ago(minute))}, nil, why.Ordinal},
		"ours by a longer name":           {[]metav1.ManagedFieldsEntry{wrote("ordinal-controller", "status", ago(minute))}, nil, why.Ordinal},
		"the incumbent":                   {[]metav1.ManagedFieldsEntry{incumbent}, nil, why.Incumbent},
		"ours after the incumbent":        {[]metav1.ManagedFieldsEntry{incumbent, wrote("ordinal", "status", ago(minute))}, nil, why.Ordinal},
		"the incumbent after ours":        {[]metav1.ManagedFieldsEntry{wrote("ordinal", "status", ago(20*minute)), incumbent}, nil, why.Incumbent},
		"somebody else's status":          {[]metav1.ManagedFieldsEntry{wrote("kubectl-edit", "status", ago(minute))}, nil, why.Unknown},
		"the spec was written by ours":    {[]metav1.ManagedFieldsEntry{wrote("ordinal", "", ago(minute))}, nil, why.Unknown},
		"fresh, and ours leads":           {nil, lease("a", 30*minute, time.Second), why.Ordinal},
		"fresh, and ours led once":        {nil, lease("a", 30*minute, 5*minute), why.Unknown},
		"fresh, and the lease was given":  {nil, lease("", 30*minute, time.Second), why.Unknown},
		"ours has taken over since":       {[]metav1.ManagedFieldsEntry{incumbent}, lease("a", minute, time.Second), why.Ordinal},
		"the incumbent though ours leads": {[]metav1.ManagedFieldsEntry{incumbent}, lease("a", 30*minute, time.Second), why.Incumbent},
	} {
		t.Run(name, func(t *testing.T) {
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tt.fields}}
			if got := why.ActorOf(set, tt.lease, now); got != tt.want {
				t.Errorf("it is %q, want %q", got, tt.want)
			}
		})
	}
}
