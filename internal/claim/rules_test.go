// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A pod that is not there cannot own its claims, although it would if it were.
func TestMissingPodOwnsNothing(t *testing.T) {
	v := Owners(newSet("Delete", "Retain"), Holder{Name: "web-0", Condemned: true}, &corev1.PersistentVolumeClaim{})
	if v.Change || len(v.Refs) > 0 {
		t.Errorf("owners become %q", names(v.Refs))
	}
}
