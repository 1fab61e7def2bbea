// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"flag"
	"math/rand"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/ordinal-dev/ordinal/internal/sim"
)

var templates = flag.Int("templates", 500, "how many random templates to compare")

// TestTemplates compares the revision, the pod and the claim that are made from templates with every field that there is.
func TestTemplates(t *testing.T) {
	silence()
	for n := range *templates {
		filler := randfill.NewWithSeed(int64(*seed)+int64(n)).NilChance(0.5).NumElements(1, 2).MaxDepth(12).Funcs(
			func(q *resource.Quantity, c randfill.Continue) {
				*q = *resource.NewMilliQuantity(c.Int63n(1e6), resource.DecimalSI)
			},
			func(x *intstr.IntOrString, c randfill.Continue) { *x = intstr.FromInt32(c.Int31()) },
			func(x *metav1.Time, c randfill.Continue) { *x = metav1.NewTime(time.Unix(c.Int63n(1e9), 0)) },
			func(x *metav1.FieldsV1, _ randfill.Continue) { *x = metav1.FieldsV1{} },
			func(x *string, c randfill.Continue) { *x = word(c.Rand) },
		)
		set := sim.NewSet("web", 1)
		filler.Fill(&set.Spec.Template)
		filler.Fill(&set.Annotations)
		set.Spec.Template.Labels = map[string]string{"app": "web", "more": word(rand.New(rand.NewSource(int64(n))))}
		claimTemplate := &corev1.PersistentVolumeClaim{}
		filler.Fill(&claimTemplate.Spec)
		filler.Fill(&claimTemplate.Annotations)
		filler.Fill(&claimTemplate.Labels)
		claimTemplate.Name = "data"
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{*claimTemplate}
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}

		ours, theirs := sim.New(set), sim.New(set)
		ours.Sync()
		if err := newIncumbent(theirs).sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, b := describe(ours), describe(theirs)
		compared.templates++
		if len(a) != 3 || !slices.Equal(a, b) {
			t.Fatalf("seed %d template %d: ours is\n%q, theirs is\n%q", *seed, n, a, b)
		}
	}
}

// word is a short text with what JSON treats in its own way.
func word(r *rand.Rand) string {
	alphabet := []rune("abc<>&\"\\/\u2028\u00e9 $")
	text := make([]rune, r.Intn(6))
	for i := range text {
		text[i] = alphabet[r.Intn(len(alphabet))]
	}
	return string(text)
}
