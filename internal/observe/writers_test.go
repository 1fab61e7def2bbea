// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/telemetry"
)

// Fields of a status as the API server keeps them.
const (
	counters   = `{"f:status":{"f:conditions":{},"f:replicas":{}}}`
	conditions = `{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"Synced\"}":{}}}}`
)

// wrote is what the API server keeps of a write.
func wrote(manager, subresource, fields string, second int64) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1", Subresource: subresource,
		Time: new(metav1.Unix(second, 0)), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func TestForeignWrite(t *testing.T) {
	const kcm = "kube-controller-manager"
	for name, test := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   string
	}{
		"nobody":                   {nil, ""},
		"the incumbent":            {[]metav1.ManagedFieldsEntry{wrote(kcm, "status", counters, 5)}, kcm},
		"by another name":          {[]metav1.ManagedFieldsEntry{wrote("k3s", "status", counters, 5)}, "k3s"},
		"ours":                     {[]metav1.ManagedFieldsEntry{wrote(telemetry.Manager, "status", counters, 5)}, ""},
		"the autoscaler":           {[]metav1.ManagedFieldsEntry{wrote(kcm, "scale", `{"f:spec":{"f:replicas":{}}}`, 5)}, ""},
		"the garbage collector":    {[]metav1.ManagedFieldsEntry{wrote(kcm, "", `{"f:metadata":{"f:ownerReferences":{}}}`, 5)}, ""},
		"not as a status":          {[]metav1.ManagedFieldsEntry{wrote(kcm, "", counters, 5)}, ""},
		"a person's edit":          {[]metav1.ManagedFieldsEntry{wrote("kubectl-edit", "", `{"f:spec":{"f:replicas":{}}}`, 5)}, ""},
		"a person's edit of these": {[]metav1.ManagedFieldsEntry{wrote("kubectl-edit", "status", counters, 5)}, ""},
		"a condition of others":    {[]metav1.ManagedFieldsEntry{wrote("operator", "status", conditions, 5)}, ""},
		"no fields":                {[]metav1.ManagedFieldsEntry{wrote(kcm, "status", "nonsense", 5)}, ""},
		"no time":                  {[]metav1.ManagedFieldsEntry{{Manager: kcm, Subresource: "status", FieldsV1: metav1.NewFieldsV1(counters)}}, ""},
		"the last of several": {[]metav1.ManagedFieldsEntry{
			wrote("a", "status", counters, 5), wrote("b", "status", counters, 7), wrote("c", "status", counters, 6),
		}, "b"},
	} {
		got := ForeignWrite(test.fields)
		if (got == nil) != (test.want == "") || (got != nil && got.Manager != test.want) {
			t.Errorf("%s: the foreign write is %+v, want one of %q", name, got, test.want)
		}
		// What is kept tells the same, and again when it is kept again.
		kept := keepForeignWrite(keepForeignWrite(test.fields))
		if again := ForeignWrite(kept); (again == nil) != (got == nil) || (got != nil && !again.Time.Equal(got.Time)) {
			t.Errorf("%s: kept is %+v of %+v", name, kept, got)
		}
		if len(kept) == 1 && kept[0].FieldsV1 != nil {
			t.Errorf("%s: more is kept than is needed", name)
		}
	}
}

// A write is told of when it is seen to come, and not when it was there before, is another's, or is of an object of that name.
func TestOnForeignWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		stream := watch.NewRaceFreeFake()
		first := set("web")
		first.ManagedFields = []metav1.ManagedFieldsEntry{wrote("kube-controller-manager", "status", counters, 5)}
		client.PrependReactor("list", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &appsv1.StatefulSetList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []appsv1.StatefulSet{*first}}, nil
		})
		client.PrependWatchReactor("statefulsets", clienttesting.DefaultWatchReactor(stream, nil))
		i, err := NewInformers(client, nil, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var told []string
		if err := i.OnForeignWrite(func(set *appsv1.StatefulSet, writer string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, set.ResourceVersion+" "+writer)
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		i.Start(ctx)
		defer i.Shutdown()
		defer cancel()
		send := func(version string, fields ...metav1.ManagedFieldsEntry) {
			next := first.DeepCopy()
			next.ResourceVersion, next.ManagedFields = version, fields
			stream.Modify(next)
			synctest.Wait()
		}
		synctest.Wait()
		old := first.ManagedFields[0]
		send("2", old)
		send("3", old, wrote(telemetry.Manager, "status", counters, 8))
		send("4", wrote("kube-controller-manager", "status", counters, 9))
		send("5", wrote("kube-controller-manager", "status", counters, 9), wrote("k3s", "status", counters, 10))
		// All is handed out again.
		<-time.After(2 * time.Minute)
		synctest.Wait()
		other := first.DeepCopy()
		other.UID, other.ResourceVersion = "another", "6"
		other.ManagedFields = []metav1.ManagedFieldsEntry{wrote("kube-controller-manager", "status", counters, 20)}
		stream.Modify(other)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"4 kube-controller-manager", "5 k3s"}; !slices.Equal(told, want) {
			t.Errorf("told is %q, want %q", told, want)
		}
	})
}
