// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of revisions with one number, the one that was created earlier is older, whatever they are called.
func TestAgeComesBeforeName(t *testing.T) {
	at := func(seconds int64, name string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(seconds, 0)}, Revision: 1}
	}
	younger, older := at(2, "a"), at(1, "b")
	if got := Sorted([]*appsv1.ControllerRevision{younger, older}); got[0] != older {
		t.Errorf("the oldest is %s, created at %s", got[0].Name, got[0].CreationTimestamp.Format(time.TimeOnly))
	}
}
