// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/controller/config"
)

// everything sets each value to something else than its default.
func everything() values {
	return values{
		"replicas":         3,
		"image":            values{"repository": "registry.example:5000/db/controller", "tag": "v1", "pullPolicy": "Always"},
		"imagePullSecrets": []values{{"name": "pull"}},
		"config": values{
			"workers": 25, "namespaces": []string{"databases", "queues"}, "selector": "controller=ordinal,tier!=test",
			"recreateStrategy": true, "strictUpstream": true,
			"clientConnection": values{"qps": 0.5, "burst": 2},
			"leaderElection": values{
				"leaderElect": true, "resourceNamespace": "databases", "resourceName": "ordinal-databases",
				"leaseDuration": "30s", "renewDeadline": "20s", "retryPeriod": "1.5s",
			},
			"metrics": values{"pprof": true},
			"logging": values{"format": "json", "verbosity": 2},
			"tracing": values{"endpoint": "http://collector.tracing:4318"},
		},
		"policies": values{"install": false},
		"metrics": values{"enabled": true, "port": 9443, "certificateSecret": "cert", "serviceMonitor": values{
			"enabled": true, "labels": values{"release": "prometheus"}, "interval": "30s", "tlsConfig": values{"serverName": "x"},
		}},
		"alerts":    values{"enabled": true, "labels": values{"role": "alerts"}},
		"dashboard": values{"enabled": true, "labels": values{"grafana": "yes"}},
		"networkPolicy": values{
			"metricsFrom": []values{{"podSelector": values{"matchLabels": values{"app": "prometheus"}}}},
			"egress":      []values{{"to": []values{{"ipBlock": values{"cidr": "10.0.0.1/32"}}}}},
		},
		"serviceAccount":            values{"name": "account", "annotations": values{"a": "b"}},
		"resources":                 values{"requests": values{"cpu": 1, "memory": "1Gi"}, "limits": values{"memory": "1.5Gi"}},
		"priorityClassName":         "",
		"nodeSelector":              values{"disk": "ssd"},
		"tolerations":               []values{{"operator": "Exists"}},
		"affinity":                  values{"nodeAffinity": values{}},
		"topologySpreadConstraints": []values{{"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}},
		"env":                       []values{{"name": "OTEL_TRACES_SAMPLER", "value": "always_off"}},
		"podLabels":                 values{"team": "db"},
		"podAnnotations":            values{"note": "x"},
		"nameOverride":              "stateful",
	}
}

func TestLint(t *testing.T) {
	for _, v := range []values{nil, everything()} {
		if out, err := helm(t.Context(), t, v, "lint", "--strict", "chart/ordinal"); err != nil {
			t.Errorf("%v: %v\n%s", v, err, out)
		}
	}
}

// Whatever is set, every object is one that its type allows, is in a place of ours, and says whose it is.
func TestObjectsAreWellFormed(t *testing.T) {
	for name, v := range map[string]values{
		"defaults":   nil,
		"everything": everything(),
		"no account": {"serviceAccount": values{"create": false, "name": "theirs"}},
		"no network": {"networkPolicy": values{"enabled": false}},
		"as a part":  {"enabled": true, "global": values{"storageClass": "x"}},
		"no extras":  {"resources": nil, "nodeSelector": nil, "topologySpreadConstraints": nil},
	} {
		all := render(t, v)
		for _, o := range all {
			if got := o.GetLabels()["app.kubernetes.io/instance"]; got != "ordinal" {
				t.Errorf("%s: %T %s is of the instance %q", name, o, o.GetName(), got)
			}
		}
		pods, account := one[*appsv1.Deployment](t, all), of[*corev1.ServiceAccount](all)
		if name == "no account" {
			if len(account) != 0 || pods.Spec.Template.Spec.ServiceAccountName != "theirs" {
				t.Errorf("%s: there is %v", name, account)
			}
		} else if account[0].Name != pods.Spec.Template.Spec.ServiceAccountName {
			t.Errorf("%s: pods are of the account %s", name, pods.Spec.Template.Spec.ServiceAccountName)
		}
	}
}

// What selects the controller's pods selects them, and not the pod of helm test.
func TestSelectorsMeetThePods(t *testing.T) {
	for _, v := range []values{everything(), {"podLabels": values{"app.kubernetes.io/name": "mine"}}} {
		all := render(t, v)
		pods := one[*appsv1.Deployment](t, all)
		template, test := pods.Spec.Template, one[*corev1.Pod](t, all)
		selectors := []*metav1.LabelSelector{
			pods.Spec.Selector,
			one[*policyv1.PodDisruptionBudget](t, all).Spec.Selector,
			&one[*networkingv1.NetworkPolicy](t, all).Spec.PodSelector,
		}
		for _, c := range template.Spec.TopologySpreadConstraints {
			selectors = append(selectors, c.LabelSelector)
		}
		for _, s := range of[*corev1.Service](all) {
			selectors = append(selectors, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
			for _, m := range of[*ServiceMonitor](all) {
				meets(t, &m.Spec.Selector, s.Labels, true)
			}
		}
		for _, s := range selectors {
			meets(t, s, template.Labels, true)
			meets(t, s, test.Labels, false)
		}
	}
}

func meets(t *testing.T, selector *metav1.LabelSelector, have map[string]string, want bool) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	if s.Empty() || s.Matches(labels.Set(have)) != want {
		t.Errorf("%s and %v", s, have)
	}
}

// The pods may run in a namespace that enforces the level restricted.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, v := range []values{nil, everything()} {
		all := render(t, v)
		controller, test := one[*appsv1.Deployment](t, all).Spec.Template, one[*corev1.Pod](t, all)
		for _, pod := range []struct {
			*metav1.ObjectMeta
			*corev1.PodSpec
		}{{&controller.ObjectMeta, &controller.Spec}, {&test.ObjectMeta, &test.Spec}} {
			if result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, pod.ObjectMeta, pod.PodSpec)); !result.Allowed {
				t.Errorf("a pod is refused: %s", result.ForbiddenDetail())
			}
			c := pod.PodSpec.Containers[0]
			if s := c.SecurityContext; s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Error("a pod may write its root file system")
			}
			if len(c.Resources.Requests) == 0 {
				t.Error("a pod requests nothing")
			}
		}
	}
}

// configOf gives the configuration that pods read, as the controller itself reads it.
func configOf(t *testing.T, all objects) *config.File {
	t.Helper()
	mounted := one[*appsv1.Deployment](t, all).Spec.Template.Spec.Volumes[0].ConfigMap.Name
	maps := of[*corev1.ConfigMap](all)
	at := slices.IndexFunc(maps, func(c *corev1.ConfigMap) bool { return c.Name == mounted })
	if at < 0 {
		t.Fatalf("there is no ConfigMap %s", mounted)
	}
	file, err := config.Parse("config.yaml", []byte(maps[at].Data["config.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A configuration that the schema lets through is one that the controller takes, and says the same.
func TestControllerTakesTheConfiguration(t *testing.T) {
	for _, v := range []values{nil, everything()} {
		file := configOf(t, render(t, v))
		// The certificate is in the pod.
		if problems := config.Validate(&file.ControllerConfiguration); problems != nil {
			t.Errorf("%v has the problems %v", v, problems)
		}
	}
	got := configOf(t, render(t, everything())).ControllerConfiguration
	want := config.Default()
	want.Metrics = v1alpha1.Metrics{BindAddress: ":9443", CertFile: "/etc/ordinal/tls/tls.crt", KeyFile: "/etc/ordinal/tls/tls.key"}
	want.Health.BindAddress = ":8081"
	text, err := yaml.Marshal(everything()["config"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the configuration is\n%+v\nwant\n%+v", got, want)
	}
}

// What listens is what the pod's ports, its probes, the Service and the network policy name.
func TestPortsAgree(t *testing.T) {
	all := render(t, everything())
	ports := map[string]int32{}
	container := one[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0]
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	if want := map[string]int32{"health": 8081, "metrics": 9443}; !maps.Equal(ports, want) {
		t.Errorf("the pod has the ports %v, want %v", ports, want)
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		if got := probe.HTTPGet.Port.String(); got != "health" {
			t.Errorf("a probe asks %s", got)
		}
	}
	service := one[*corev1.Service](t, all).Spec.Ports[0]
	if service.TargetPort.String() != "metrics" || service.Name != one[*ServiceMonitor](t, all).Spec.Endpoints[0].Port {
		t.Errorf("the service has the port %+v", service)
	}
	if !one[*ServiceMonitor](t, all).Spec.Endpoints[0].HonorLabels {
		t.Error("the namespace of a set becomes that of the controller")
	}
	rules := one[*networkingv1.NetworkPolicy](t, all).Spec
	if got := rules.Ingress[0].Ports[0].Port.IntVal; got != ports["metrics"] || len(rules.Ingress) != 1 || len(rules.PolicyTypes) != 2 {
		t.Errorf("the network policy is %+v", rules)
	}
}

func TestNobodyIsLetInWithoutMetrics(t *testing.T) {
	all := render(t, values{"metrics": values{"enabled": false}})
	if rules := one[*networkingv1.NetworkPolicy](t, all).Spec; len(rules.Ingress) != 0 || !slices.Equal(rules.PolicyTypes, []networkingv1.PolicyType{"Ingress"}) {
		t.Errorf("the network policy is %+v", rules)
	}
	if services := of[*corev1.Service](all); services != nil {
		t.Errorf("there is %v", services)
	}
}

// A changed configuration makes new pods; nothing else about it does.
func TestPodsReadAChangedConfiguration(t *testing.T) {
	sum := func(v values) string {
		return one[*appsv1.Deployment](t, render(t, v)).Spec.Template.Annotations["checksum/config"]
	}
	plain := sum(nil)
	if plain == "" || plain != sum(values{"replicas": 3}) || plain == sum(values{"config": values{"workers": 7}}) {
		t.Errorf("the checksums are %s, %s, %s", plain, sum(values{"replicas": 3}), sum(values{"config": values{"workers": 7}}))
	}
}

// A controller of some namespaces has no rights on sets elsewhere.
func TestRightsInNamespaces(t *testing.T) {
	all := render(t, values{"config": values{"namespaces": []string{"a", "b"}}})
	if got := of[*rbacv1.ClusterRoleBinding](all); got != nil {
		t.Errorf("there is %+v", got)
	}
	var got []string
	for _, b := range of[*rbacv1.RoleBinding](all) {
		got = append(got, b.Namespace+" "+b.RoleRef.Kind)
	}
	slices.Sort(got)
	if want := []string{"a ClusterRole", "b ClusterRole", "kube-system Role"}; !slices.Equal(got, want) {
		t.Errorf("there are roles bound in %v, want %v", got, want)
	}
}

// Two installations in one cluster share no object.
func TestTwoInstallations(t *testing.T) {
	seen := map[string]bool{}
	for _, namespace := range []string{"one", "two"} {
		v := values{"policies": values{"install": false}}
		out, err := helm(t.Context(), t, v, "template", "ordinal", "chart/ordinal", "--namespace", namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range decode(t, out) {
			key := reflect.TypeOf(o).String() + " " + o.GetNamespace() + "/" + o.GetName()
			if seen[key] {
				t.Errorf("both have %s", key)
			}
			seen[key] = true
		}
	}
}

// The notes tell whose sets are kept, and name what is there by its names.
func TestNotes(t *testing.T) {
	for _, c := range []struct {
		v    values
		want []string
	}{
		{nil, []string{
			"of this cluster.", "--controllers=*,-statefulset-controller",
			"deployment/ordinal-controller\n", "-n kube-system get lease ordinal-controller\n",
		}},
		{everything(), []string{
			"of the namespaces databases, queues that match controller=ordinal,tier!=test.",
			"deployment/stateful\n", "-n databases get lease ordinal-databases\n", "StatefulSetPolicies are left to another",
		}},
		{values{"replicas": 0}, []string{"There are no replicas"}},
		{values{"replicas": 1}, []string{"There is one replica."}},
	} {
		out, err := helm(t.Context(), t, c.v, "install", "ordinal", "chart/ordinal", "--namespace", "databases", "--dry-run=client")
		if err != nil {
			t.Fatal(err)
		}
		_, notes, _ := strings.Cut(out, "NOTES:\n")
		for _, want := range c.want {
			if !strings.Contains(notes, want) {
				t.Errorf("the notes are\n%s\nwant %q in them", notes, want)
			}
		}
	}
}

// Names that are long are cut where they would be too long for what they name.
func TestLongNames(t *testing.T) {
	for _, c := range []struct {
		release string
		v       values
	}{
		{strings.Repeat("r", 53), nil},
		{strings.Repeat("r", 43) + "-" + strings.Repeat("r", 9), nil},
		{"ordinal", values{"nameOverride": strings.Repeat("n", 55)}},
	} {
		out, err := helm(t.Context(), t, c.v, "template", c.release, "chart/ordinal")
		if err != nil {
			t.Fatal(err)
		}
		all := decode(t, out)
		for _, name := range []string{one[*corev1.Service](t, all).Name, one[*corev1.Pod](t, all).Name, one[*appsv1.Deployment](t, all).Name} {
			if wrong := validation.IsDNS1035Label(name); wrong != nil {
				t.Errorf("%s gives the name %s: %v", c.release, name, wrong)
			}
		}
	}
	if _, err := helm(t.Context(), t, values{"nameOverride": strings.Repeat("n", 56)}, "template", "ordinal", "chart/ordinal"); err == nil {
		t.Error("a name of 56 characters is taken")
	}
}

// Helm deletes what its release has, but for what is marked. With the definition all policies would go.
func TestDefinitionIsKept(t *testing.T) {
	if got := one[*apiextensionsv1.CustomResourceDefinition](t, render(t, nil)); got.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Errorf("it has the annotations %v", got.Annotations)
	}
	if got := of[*apiextensionsv1.CustomResourceDefinition](render(t, values{"policies": values{"install": false}})); got != nil {
		t.Error("it is installed all the same")
	}
}

// What is made for others to find has the labels by which they look for it.
func TestObservabilityIsFound(t *testing.T) {
	all := render(t, everything())
	rules := one[*PrometheusRule](t, all)
	if len(rules.Spec.Groups) == 0 || rules.Labels["role"] != "alerts" || one[*ServiceMonitor](t, all).Labels["release"] != "prometheus" {
		t.Errorf("the alerts are %+v", rules)
	}
	dashboard := 0
	for _, c := range of[*corev1.ConfigMap](all) {
		if text := c.Data["ordinal.json"]; text != "" && c.Labels["grafana"] == "yes" && json.Valid([]byte(text)) {
			dashboard++
		}
	}
	if dashboard != 1 {
		t.Errorf("there are %d dashboards", dashboard)
	}
}

func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for _, c := range []struct {
		image values
		want  string
	}{
		{values{}, "ordinal.dev/ordinal-controller:dev"},
		{values{"tag": "v1"}, "ordinal.dev/ordinal-controller:v1"},
		{values{"repository": "example.test/x", "tag": "v1", "digest": digest}, "example.test/x@" + digest},
	} {
		all := render(t, values{"image": c.image})
		images := []string{one[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0].Image, one[*corev1.Pod](t, all).Spec.Containers[0].Image}
		if !slices.Equal(images, []string{c.want, c.want}) {
			t.Errorf("%v gives %v, want %s", c.image, images, c.want)
		}
	}
}

// What makes no sense is refused before anything is installed, and the value is named.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		v    values
		want string
	}{
		"unknown":              {values{"replica": 2}, "replica"},
		"unknown in part":      {values{"image": values{"name": "x"}}, "name"},
		"negative replicas":    {values{"replicas": -1}, "replicas"},
		"replicas in words":    {values{"replicas": "two"}, "replicas"},
		"all work at once":     {values{"config": values{"leaderElection": values{"leaderElect": false}}}, "replicas"},
		"no worker":            {values{"config": values{"workers": 0}}, "workers"},
		"no such field":        {values{"config": values{"worker": 1}}, "worker"},
		"field of the chart":   {values{"config": values{"health": values{"bindAddress": ":1"}}}, "health"},
		"metrics by config":    {values{"config": values{"metrics": values{"bindAddress": ":1"}}}, "bindAddress"},
		"namespace":            {values{"config": values{"namespaces": []string{"A_b"}}}, "namespaces"},
		"namespace twice":      {values{"config": values{"namespaces": []string{"a", "a"}}}, "namespaces"},
		"qps":                  {values{"config": values{"clientConnection": values{"qps": 0}}}, "qps"},
		"duration":             {values{"config": values{"leaderElection": values{"retryPeriod": 2}}}, "retryPeriod"},
		"log format":           {values{"config": values{"logging": values{"format": "xml"}}}, "format"},
		"traces":               {values{"config": values{"tracing": values{"endpoint": "collector:4318"}}}, "endpoint"},
		"port of health":       {values{"metrics": values{"port": 8081}}, "port"},
		"port of root":         {values{"metrics": values{"port": 443}}, "port"},
		"nothing to monitor":   {values{"metrics": values{"enabled": false, "serviceMonitor": values{"enabled": true}}}, "enabled"},
		"profiles for nobody":  {values{"metrics": values{"enabled": false}, "config": values{"metrics": values{"pprof": true}}}, "metrics"},
		"account without name": {values{"serviceAccount": values{"create": false}}, "name"},
		"digest":               {values{"image": values{"digest": "latest"}}, "digest"},
		"tag in the name":      {values{"image": values{"repository": "a/b:1"}}, "repository"},
		"pull policy":          {values{"image": values{"pullPolicy": "Sometimes"}}, "pullPolicy"},
		"quantity":             {values{"resources": values{"limits": values{"memory": "1 GB"}}}, "memory"},
		"label that is none":   {values{"podLabels": values{"a": true}}, "podLabels"},
		"spread without key":   {values{"topologySpreadConstraints": []values{{"maxSkew": 1}}}, "topologyKey"},
		"selector of our own":  {values{"topologySpreadConstraints": []values{{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": values{}}}}, "topologySpreadConstraints"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t.Context(), t, c.v, "template", "ordinal", "chart/ordinal")
			if err == nil {
				t.Fatalf("it is rendered:\n%s", out)
			}
			if text := err.Error(); !strings.Contains(text, "schema") || !strings.Contains(text, c.want) {
				t.Errorf("it is refused with %q, want one that names %s", text, c.want)
			}
		})
	}
}

// properties gives the paths of the properties of a schema that are no objects of ours.
func properties(t *testing.T, schema map[string]any, at string) []string {
	t.Helper()
	below, _ := schema["properties"].(map[string]any)
	if len(below) == 0 {
		return []string{at}
	}
	var all []string
	for name, one := range below {
		all = append(all, properties(t, one.(map[string]any), strings.TrimPrefix(at+"."+name, "."))...)
	}
	return all
}

func schemaOf(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("chart/ordinal/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// fieldsOf gives the paths of the fields of a type as files name them.
func fieldsOf(of reflect.Type, at string) []string {
	var all []string
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		path := strings.TrimPrefix(at+"."+name, ".")
		switch {
		case name == "":
		case f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[metav1.Duration]():
			all = append(all, fieldsOf(f.Type, path)...)
		default:
			all = append(all, path)
		}
	}
	return all
}

// The schema knows each field of the configuration, but for those that the chart sets.
func TestSchemaKnowsTheConfiguration(t *testing.T) {
	want := fieldsOf(reflect.TypeFor[v1alpha1.ControllerConfiguration](), "")
	for _, own := range []string{"health.bindAddress", "metrics.bindAddress", "metrics.certFile", "metrics.keyFile", "clientConnection.kubeconfig"} {
		at := slices.Index(want, own)
		if at < 0 {
			t.Fatalf("there is no field %s", own)
		}
		want = slices.Delete(want, at, at+1)
	}
	got := properties(t, schemaOf(t)["properties"].(map[string]any)["config"].(map[string]any), "")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the schema has\n%v\nthe configuration\n%v", got, want)
	}
}
