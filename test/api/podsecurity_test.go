// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ordinal-dev/ordinal/internal/status"
)

// Where Pod Security admission refuses the pods of a template, the set says so and why, and goes on once the template is changed.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	label := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	if _, err := env.client.CoreV1().Namespaces().Patch(t.Context(), s.name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.create(newSet(replicas(2), func(set *appsv1.StatefulSet) {
		set.Spec.Template.Spec.HostPID = true
	}))
	s.told("FailedCreate", "db-0", "violates PodSecurity", `"restricted`, "hostPID=true")
	s.until("the status tells it", func(w world) string {
		tells := slices.ContainsFunc(w.sets["db"].Status.Conditions, func(c appsv1.StatefulSetCondition) bool {
			return c.Type == status.Degraded && c.Status == corev1.ConditionTrue &&
				strings.Contains(c.Message, "PodSecurity") && strings.Contains(c.Message, "hostPID=true")
		})
		return unless(tells, "it does not")
	})
	s.quiet(time.Second, "there is a pod", func(c change) bool { return c.pod() != nil })

	s.patch("db", `{"spec":{"template":{"spec":{"hostPID":null}}}}`)
	s.patch("db", containerPatch(`{"name":"main","securityContext":{"allowPrivilegeEscalation":false,"runAsNonRoot":true,`+
		`"capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}}`))
	s.settled("db")
}
