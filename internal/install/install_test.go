// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
)

func definition(kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus,
) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefinitionName},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: kind, Status: status, Message: "because"},
		}},
	}
}

// answers is an API server that gives one definition after the other, and the last again and again.
func answers(definitions ...*apiextensionsv1.CustomResourceDefinition) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("get", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
		first := definitions[0]
		if len(definitions) > 1 {
			definitions = definitions[1:]
		}
		return true, first, nil
	})
	return client
}

func TestReturnsWhenPoliciesAreServed(t *testing.T) {
	made := &apiextensionsv1.CustomResourceDefinition{}
	accepted := definition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue)
	notYet := definition(apiextensionsv1.Established, apiextensionsv1.ConditionFalse)
	established := definition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue)
	synctest.Test(t, func(t *testing.T) {
		client := answers(accepted, notYet, established)
		began := time.Now()
		if err := awaitEstablished(t.Context(), client.ApiextensionsV1().CustomResourceDefinitions(), made); err != nil {
			t.Fatal(err)
		}
		if got := len(client.Actions()); got != 3 || time.Since(began) > 20*time.Millisecond {
			t.Errorf("asked %d times, waited for %s", got, time.Since(began))
		}
		client.ClearActions()
		if err := awaitEstablished(t.Context(), client.ApiextensionsV1().CustomResourceDefinitions(), established); err != nil {
			t.Fatal(err)
		}
		if got := client.Actions(); len(got) != 0 {
			t.Errorf("asked for what was known: %v", got)
		}
	})
}

func TestSaysWhyPoliciesAreNotServed(t *testing.T) {
	refused := definition(apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := awaitEstablished(t.Context(), answers(refused).ApiextensionsV1().CustomResourceDefinitions(), refused)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "because") {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(began); took != establishing {
			t.Errorf("gave up after %s", took)
		}
	})
}
