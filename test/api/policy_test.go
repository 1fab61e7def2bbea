// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/install"
	"github.com/ordinal-dev/ordinal/internal/policy"
)

// policies is a client for the policies of a namespace.
func policies(t *testing.T, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(env.config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(v1alpha1.GroupVersion().WithResource(v1alpha1.Resource)).Namespace(namespace)
}

// newPolicy is a policy with a spec that is given as JSON.
func newPolicy(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	policy := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`,
		v1alpha1.GroupVersion(), v1alpha1.Kind, name, spec)
	if err := policy.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return policy
}

// tryPolicy lets the API server check a policy, and gives what it would store.
func tryPolicy(t *testing.T, spec string) (*unstructured.Unstructured, error) {
	t.Helper()
	o := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	return policies(t, metav1.NamespaceDefault).Create(t.Context(), newPolicy(t, "try", spec), o)
}

const (
	rolloutOf  = `{"targetRef":{"name":"db"},"rollout":%s}`
	reservedOf = `{"targetRef":{"name":"db"},"scaling":{"reservedOrdinals":%s}}`
)

// What cannot be obeyed is refused, by the name of the field and with what to do. That this can be done at all shows that the
// rules keep within the API server's limits of cost.
func TestPoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	rollout := func(s string) string { return fmt.Sprintf(rolloutOf, s) }
	reserved := func(s string) string { return fmt.Sprintf(reservedOf, s) }
	const (
		field   = "spec.rollout."
		ordinal = `spec.scaling.reservedOrdinals[0]: Invalid value: `
		whole   = `must be an ordinal such as 3, or a range of ordinals such as "5-7"`
	)
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"no target":         {`{}`, []string{"spec.targetRef: Required value"}},
		"target, no name":   {`{"targetRef":{}}`, []string{"spec.targetRef.name: Required value"}},
		"target, empty":     {`{"targetRef":{"name":""}}`, []string{"spec.targetRef.name: ", "must be the name of a StatefulSet"}},
		"target with kind":  {`{"targetRef":{"name":"statefulset/web"}}`, []string{"spec.targetRef.name: ", "web, not statefulset/web"}},
		"target too long":   {fmt.Sprintf(`{"targetRef":{"name":%q}}`, strings.Repeat("a", 254)), []string{"spec.targetRef.name: Too long", "253"}},
		"target Deployment": {`{"targetRef":{"name":"db","kind":"Deployment"}}`, []string{"spec.targetRef.kind: Unsupported value", `"StatefulSet"`}},
		"target apps/v2":    {`{"targetRef":{"name":"db","apiVersion":"apps/v2"}}`, []string{"spec.targetRef.apiVersion: Unsupported value", `"apps/v1"`}},
		"slip of the pen":   {rollout(`{"pause":true}`), []string{`unknown field "spec.rollout.pause"`}},

		"no time":     {rollout(`{"progressDeadlineSeconds":0}`), []string{field + "progressDeadlineSeconds: ", "greater than or equal to 1"}},
		"no deadline": {rollout(`{"onDeadline":"RollBack"}`), []string{field + "progressDeadlineSeconds: Required value", "say after how many seconds"}},
		"rollback":    {rollout(`{"onDeadline":"Rollback"}`), []string{field + "onDeadline: Unsupported value", `"Hold", "RollBack"`}},
		"disruption":  {rollout(`{"disruption":"Drain"}`), []string{field + "disruption: Unsupported value", `"Delete", "Evict"`}},
		"order":       {rollout(`{"order":"LowestFirst"}`), []string{field + "order: Unsupported value", `"HighestFirst", "LeaderLast"`}},

		"no leader":      {rollout(`{"order":"LeaderLast"}`), []string{field + "leaderSelector: Required value", "give labels that only the leading pod has"}},
		"no order":       {rollout(`{"leaderSelector":{"matchLabels":{"role":"primary"}}}`), []string{field + "order: ", "set that order, or leave out leaderSelector"}},
		"another order":  {rollout(`{"order":"HighestFirst","leaderSelector":{"matchLabels":{"role":"primary"}}}`), []string{field + "order: ", "set that order"}},
		"empty selector": {rollout(`{"order":"LeaderLast","leaderSelector":{}}`), []string{field + "leaderSelector: ", "must have matchLabels or matchExpressions"}},
		"empty labels":   {rollout(`{"order":"LeaderLast","leaderSelector":{"matchLabels":{},"matchExpressions":[]}}`), []string{field + "leaderSelector: ", "must have matchLabels"}},
		"operator":       {rollout(leader(`{"key":"role","operator":"Is","values":["primary"]}`)), []string{field + "leaderSelector.matchExpressions: ", "In, NotIn, Exists and DoesNotExist"}},
		"no values":      {rollout(leader(`{"key":"role","operator":"In"}`)), []string{field + "leaderSelector.matchExpressions: ", "must have values"}},
		"empty values":   {rollout(leader(`{"key":"role","operator":"NotIn","values":[]}`)), []string{field + "leaderSelector.matchExpressions: ", "must have values"}},
		"vain values":    {rollout(leader(`{"key":"role","operator":"Exists","values":["primary"]}`)), []string{field + "leaderSelector.matchExpressions: ", "none with Exists"}},

		"empty batch":   {rollout(`{"pauseAfter":{}}`), []string{field + "pauseAfter: ", "give ordinals or percent"}},
		"time only":     {rollout(`{"pauseAfter":{"seconds":60}}`), []string{field + "pauseAfter: ", "give ordinals or percent"}},
		"two sizes":     {rollout(`{"pauseAfter":{"ordinals":1,"percent":10}}`), []string{field + "pauseAfter: ", "leave out one"}},
		"no pods":       {rollout(`{"pauseAfter":{"ordinals":0}}`), []string{field + "pauseAfter.ordinals: ", "greater than or equal to 1"}},
		"no percent":    {rollout(`{"pauseAfter":{"percent":0}}`), []string{field + "pauseAfter.percent: ", "greater than or equal to 1"}},
		"too many":      {rollout(`{"pauseAfter":{"percent":101}}`), []string{field + "pauseAfter.percent: ", "less than or equal to 100"}},
		"percent sign":  {rollout(`{"pauseAfter":{"percent":"10%"}}`), []string{field + "pauseAfter.percent: ", "must be of type integer"}},
		"pause of zero": {rollout(`{"pauseAfter":{"ordinals":1,"seconds":0}}`), []string{field + "pauseAfter.seconds: ", "greater than or equal to 1"}},

		"negative ordinal": {reserved(`[-1]`), []string{ordinal, whole}},
		"negative text":    {reserved(`["-1"]`), []string{ordinal, whole}},
		"large ordinal":    {reserved(`[1000000000]`), []string{ordinal, whole}},
		"large text":       {reserved(`["1000000000"]`), []string{ordinal, whole}},
		"word":             {reserved(`["x"]`), []string{ordinal, whole}},
		"nothing":          {reserved(`[""]`), []string{ordinal, whole}},
		"leading zero":     {reserved(`["05"]`), []string{ordinal, whole}},
		"open range":       {reserved(`["5-"]`), []string{ordinal, whole}},
		"zero in range":    {reserved(`["5-07"]`), []string{ordinal, whole}},
		"three ends":       {reserved(`["1-2-3"]`), []string{ordinal, whole}},
		"spaces":           {reserved(`["5 - 7"]`), []string{ordinal, whole}},
		"backwards":        {reserved(`["7-5"]`), []string{ordinal, `must have its lower end first: "5-7", not "7-5"`}},
		"backwards, long":  {reserved(`["10-9"]`), []string{ordinal, "must have its lower end first"}},
		"the second":       {reserved(`[3,"7-5"]`), []string{"spec.scaling.reservedOrdinals[1]: ", "must have its lower end first"}},
		"fraction":         {reserved(`[1.5]`), []string{"spec.scaling.reservedOrdinals[0]: "}},
		"yes":              {reserved(`[true]`), []string{"spec.scaling.reservedOrdinals[0]: "}},
		"very many":        {reserved("[" + strings.Repeat("1,", 100) + "1]"), []string{"spec.scaling.reservedOrdinals: Too many", "100"}},
		"negative drain": {`{"targetRef":{"name":"db"},"scaling":{"scaleDown":{"drainSeconds":-1}}}`, []string{
			"spec.scaling.scaleDown.drainSeconds: ", "greater than or equal to 0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tryPolicy(t, c.spec)
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				t.Fatalf("%s is answered with %v", c.spec, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error is %v, want %q in it", c.spec, err, want)
				}
			}
		})
	}
}

// leader is a rollout whose leader is selected by an expression.
func leader(expression string) string {
	return fmt.Sprintf(`{"order":"LeaderLast","leaderSelector":{"matchExpressions":[%s]}}`, expression)
}

// What the API server accepts, the controller can read. It is stored as it was given, and with the defaults.
func TestPoliciesThatAreAccepted(t *testing.T) {
	t.Parallel()
	rollout := func(s string) string { return fmt.Sprintf(rolloutOf, s) }
	reserved := func(s string) string { return fmt.Sprintf(reservedOf, s) }
	for name, given := range map[string]string{
		"target":       `{"targetRef":{"name":"db"}}`,
		"full target":  `{"targetRef":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db"}}`,
		"with dots":    `{"targetRef":{"name":"0.a-b.c"}}`,
		"longest name": fmt.Sprintf(`{"targetRef":{"name":%q}}`, strings.Repeat("a", 253)),
		"nothing":      rollout(`{}`),
		"deadline":     rollout(`{"progressDeadlineSeconds":60}`),
		"hold":         rollout(`{"onDeadline":"Hold"}`),
		"back":         rollout(`{"progressDeadlineSeconds":1,"onDeadline":"RollBack"}`),
		"evict":        rollout(`{"disruption":"Evict","paused":true}`),
		"by number":    rollout(`{"pauseAfter":{"ordinals":1}}`),
		"by share":     rollout(`{"pauseAfter":{"percent":100,"seconds":1}}`),
		"order":        rollout(`{"order":"HighestFirst"}`),
		"leader":       rollout(`{"order":"LeaderLast","leaderSelector":{"matchLabels":{"role":"primary"}}}`),
		"one of some":  rollout(leader(`{"key":"role","operator":"In","values":["a","b"]}`)),
		"none of some": rollout(leader(`{"key":"role","operator":"NotIn","values":["a"]}`)),
		"is there":     rollout(leader(`{"key":"role","operator":"Exists"},{"key":"old","operator":"DoesNotExist"}`)),
		"ordinals":     reserved(`[0,3,"5-7","9","4-4",999999999,"0-999999999"]`),
		"none":         reserved(`[]`),
		"many":         reserved("[" + strings.Repeat("1,", 99) + "1]"),
		"long drain":   `{"targetRef":{"name":"db"},"scaling":{"scaleDown":{"drainSeconds":3600}}}`,
		"told":         `{"targetRef":{"name":"db"},"scaling":{"scaleDown":{"drainSeconds":0,"reasonAnnotation":true}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, err := tryPolicy(t, given)
			if err != nil {
				t.Fatal(err)
			}
			want := newPolicy(t, "try", given)
			complete(t, want)
			if !reflect.DeepEqual(stored.Object["spec"], want.Object["spec"]) {
				t.Errorf("stored is %s, want %s", specOf(t, stored), specOf(t, want))
			}
			var typed v1alpha1.StatefulSetPolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &typed); err != nil {
				t.Fatal(err)
			}
			if err := policy.Check(&typed); err != nil {
				t.Error(err)
			}
		})
	}
}

// complete fills in defaults.
func complete(t *testing.T, p *unstructured.Unstructured) {
	t.Helper()
	_, hasRollout, _ := unstructured.NestedMap(p.Object, "spec", "rollout")
	for field, value := range map[string]string{
		"targetRef.apiVersion": "apps/v1", "targetRef.kind": "StatefulSet",
		"rollout.onDeadline": "Hold", "rollout.order": "HighestFirst", "rollout.disruption": "Delete",
	} {
		path := append([]string{"spec"}, strings.Split(field, ".")...)
		_, isSet, _ := unstructured.NestedFieldNoCopy(p.Object, path...)
		if isSet || (path[1] == "rollout" && !hasRollout) {
			continue
		}
		if err := unstructured.SetNestedField(p.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
}

func specOf(t *testing.T, policy *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(policy.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Who may edit a policy cannot write its status, and the controller, which writes the status, cannot change the policy.
func TestStatusOfPolicyIsApart(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	client := policies(t, s.name)
	policy := newPolicy(t, "db", `{"targetRef":{"name":"db"}}`)
	policy.Object["status"] = map[string]any{"failedRevision": "db-1"}
	created, err := client.Create(t.Context(), policy, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.Object["status"] != nil {
		t.Errorf("a creation writes the status %v", created.Object["status"])
	}
	failed := func(p *unstructured.Unstructured) string {
		name, _, _ := unstructured.NestedString(p.Object, "status", "failedRevision")
		return name
	}
	patch := func(text string, subresources ...string) *unstructured.Unstructured {
		t.Helper()
		got, err := client.Patch(t.Context(), "db", types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := patch(`{"status":{"failedRevision":"db-2"}}`); failed(got) == "db-2" {
		t.Error("an edit writes the status")
	}
	got := patch(`{"spec":{"targetRef":{"name":"other"}},"status":{"failedRevision":"db-3"}}`, "status")
	if failed(got) != "db-3" || specOf(t, got) != specOf(t, created) || got.GetGeneration() != created.GetGeneration() {
		t.Errorf("a write of the status leads to %v", got.Object)
	}
}

func TestPolicyIsShownInColumns(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	policy := newPolicy(t, "db", `{"targetRef":{"name":"web"},"rollout":{"paused":true}}`)
	if _, err := policies(t, s.name).Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body, err := env.client.Discovery().RESTClient().Get().
		AbsPath("/apis", v1alpha1.GroupVersion().String(), "namespaces", s.name, v1alpha1.Resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	if want := []string{"Name", "Target", "Accepted", "Paused", "Revision", "Phase", "Age"}; !slices.Equal(names, want) {
		t.Fatalf("columns are %v, want %v", names, want)
	}
	if cells := table.Rows[0].Cells; cells[0] != "db" || cells[1] != "web" || cells[3] != true {
		t.Errorf("cells are %v", cells)
	}
}

// kubectl finds policies under a short name, and explains each of their fields.
func TestPolicyIsExplained(t *testing.T) {
	t.Parallel()
	resources, err := env.client.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion().String())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == v1alpha1.Resource })
	if r := resources.APIResources[at]; !slices.Equal(r.ShortNames, []string{"stspolicy"}) || !slices.Equal(r.Categories, []string{"all"}) || !r.Namespaced {
		t.Errorf("the resource is %+v", r)
	}
	poll(t, "policies are explained", func(ctx context.Context) string {
		_, err := policyDocs(ctx)
		return text(err)
	})
	docs, err := policyDocs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		"spec.targetRef.name", "spec.rollout.progressDeadlineSeconds", "spec.rollout.pauseAfter.percent",
		"spec.scaling.reservedOrdinals", "spec.scaling.scaleDown.drainSeconds", "status.conditions", "status.rollout.phase",
	} {
		if docs[field] == "" {
			t.Errorf("there is no text for the field %s", field)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(docs)) {
		if !strings.HasSuffix(docs[field], ".") || strings.Contains(docs[field], "\n") {
			t.Errorf("field %q is explained by %q, which is not a row of sentences that kubectl can wrap", field, docs[field])
		}
	}
	if doc := docs["spec.rollout.onDeadline"]; !strings.Contains(doc, "Hold") || !strings.Contains(doc, "RollBack") {
		t.Errorf("onDeadline is explained by %q", doc)
	}
}

// policyDocs gives the text that kubectl explain shows for each field of ours.
func policyDocs(ctx context.Context) (map[string]string, error) {
	body, err := env.client.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis", v1alpha1.GroupVersion().String()).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var served spec3.OpenAPI
	if err := json.Unmarshal(body, &served); err != nil {
		return nil, err
	}
	schema := served.Components.Schemas["dev.ordinal.v1alpha1."+v1alpha1.Kind]
	if schema == nil {
		return nil, fmt.Errorf("%s is not among %v", v1alpha1.Kind, slices.Sorted(maps.Keys(served.Components.Schemas)))
	}
	docs := map[string]string{"": schema.Description}
	for _, part := range []string{"spec", "status"} {
		field := schema.Properties[part]
		explain(&field, part, docs)
	}
	return docs, nil
}

// explain collects the texts of a field and of those below it, but for types that are not ours.
func explain(schema *spec.Schema, path string, docs map[string]string) {
	docs[path] = schema.Description
	if strings.HasSuffix(path, "leaderSelector") {
		return
	}
	for name := range schema.Properties {
		field := schema.Properties[name]
		explain(&field, path+"."+name, docs)
	}
}

// A later version finds what an earlier one has installed. This runs before the tests that run in parallel.
func TestDefinitionIsBroughtUpToDate(t *testing.T) {
	client, err := apiextensionsclient.NewForConfig(env.config)
	if err != nil {
		t.Fatal(err)
	}
	crds := client.CustomResourceDefinitions()
	get := func() (columns, generation int, version string) {
		t.Helper()
		crd, err := crds.Get(t.Context(), v1alpha1.DefinitionName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(crd.Spec.Versions[0].AdditionalPrinterColumns), int(crd.Generation), crd.ResourceVersion
	}
	installAgain := func() {
		t.Helper()
		if err := install.Policies(t.Context(), env.config); err != nil {
			t.Fatal(err)
		}
	}
	columns, generation, version := get()
	installAgain()
	if _, g, v := get(); g != generation || v != version {
		t.Errorf("what is up to date was written again: generation %d, version %s", g, v)
	}
	const old = `[{"op":"replace","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"Old","type":"string","jsonPath":".spec.old"}]}]`
	if _, err := crds.Patch(t.Context(), v1alpha1.DefinitionName, types.JSONPatchType, []byte(old), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if c, _, _ := get(); c != 1 {
		t.Fatalf("the old definition has %d columns", c)
	}
	installAgain()
	if c, _, _ := get(); c != columns {
		t.Errorf("there are %d columns, want %d", c, columns)
	}
}

// Who has the built-in roles has rights on policies too.
func TestRightsOnPolicies(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	for _, role := range []string{"view", "edit", "admin"} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "with-" + role}},
		}
		if _, err := env.client.RbacV1().RoleBindings(s.name).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		verb, subresource string
		allowed           []string
	}{
		{"watch", "", []string{"view", "edit", "admin"}},
		{"create", "", []string{"edit", "admin"}},
		{"patch", "", []string{"edit", "admin"}},
		{"deletecollection", "", []string{"edit", "admin"}},
		{"patch", "status", nil},
	} {
		poll(t, fmt.Sprintf("%s %s is allowed to %v", c.verb, c.subresource, c.allowed), func(ctx context.Context) string {
			var got []string
			for _, role := range []string{"view", "edit", "admin"} {
				if s.allows(ctx, "with-"+role, c.verb, c.subresource) {
					got = append(got, role)
				}
			}
			if !slices.Equal(got, c.allowed) {
				return fmt.Sprintf("it is allowed to %v", got)
			}
			return ""
		})
	}
}

// allows tells if a user may do something with policies.
func (s *space) allows(ctx context.Context, user, verb, subresource string) bool {
	s.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: s.name, Verb: verb, Group: v1alpha1.Group, Resource: v1alpha1.Resource, Subresource: subresource,
		},
	}}
	got, err := env.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		s.t.Error(err)
		return false
	}
	return got.Status.Allowed
}
