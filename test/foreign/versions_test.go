// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

const (
	// quickly is how long a pod takes to become ready where nothing is to happen meanwhile.
	quickly = 500 * time.Millisecond

	ordered, parallel, governed = "ordered", "parallel", "governed"
)

// emulated are the older versions that the newest Kubernetes can do as.
func emulated() []string { return []string{"1.34", "1.35", "1.36"} }

// TestVersions goes through the life of some sets at every version of Kubernetes: programs that are of it, and those of the newest doing
// as if they were.
func TestVersions(t *testing.T) {
	versions := built(t)
	if len(versions) < 2 {
		t.Error("no older Kubernetes was built: run make test-foreign")
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { live(t, version, "") })
	}
	for _, version := range emulated() {
		t.Run("as "+version, func(t *testing.T) { live(t, newest(t), version) })
	}
}

// live is the life of some sets at a control plane without containers.
func live(t *testing.T, version, emulated string) {
	t.Helper()
	p := startPlane(t, version, emulated)
	p.manage(t, withoutIncumbent)
	p.startFleet(t)
	p.makeNamespace(t)
	p.mustBeOf(t, version, emulated)
	p.startController(t)
	p.makeSet(t, newSet(ordered, inZone))
	atOnce := newSet(parallel, onNode)
	atOnce.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	// Where its feature is off, the API server drops this field.
	atOnce.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: new(intstr.FromInt32(2))}
	p.makeSet(t, atOnce)
	p.govern(t, map[string]any{"scaling": map[string]any{"reservedOrdinals": []any{int64(1)}}, "rollout": map[string]any{"paused": true}})
	p.makeSet(t, newSet(governed, inZone))
	p.awaitSets(t)
	p.mustBeAt(t, governed, "0 2 3")

	for _, name := range []string{ordered, parallel, governed} {
		p.patchSet(t, name, toImage("db:2", quickly))
	}
	p.awaitSet(t, ordered)
	p.awaitSet(t, parallel)
	if set := p.set(t.Context(), t, governed); set.Status.UpdatedReplicas != 0 {
		t.Errorf("%d pods were replaced although the rollout is paused", set.Status.UpdatedReplicas)
	}
	p.patchPolicy(t, `{"spec": {"rollout": {"paused": false}}}`)
	p.awaitSets(t)

	p.patchSet(t, ordered, toReplicas(5))
	p.patchSet(t, parallel, toReplicas(1))
	p.awaitSets(t)
	p.patchSet(t, ordered, toReplicas(2))
	p.awaitSets(t)
	p.mustBeAt(t, ordered, "0 1")
	p.mustBeAt(t, parallel, "0")
	p.mustBeAt(t, governed, "0 2 3")
	p.kubectl(t, "--namespace="+namespace, "wait", "--for=condition=Available", "--timeout=30s", "statefulset", "--all")
	if emulated != "" {
		version += " as " + emulated
	}
	tell(t, "Kubernetes %s", version)
}

// mustBeOf checks which version the API server gives itself for.
func (p *plane) mustBeOf(t *testing.T, version, emulated string) {
	t.Helper()
	info, err := p.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if emulated == "" {
		emulated = strings.Join(strings.Split(strings.TrimPrefix(version, "v"), ".")[:2], ".")
	}
	if got := info.EmulationMajor + "." + info.EmulationMinor; got != emulated {
		t.Fatalf("the API server is of version %s, not of %s", got, emulated)
	}
}

// startController installs the chart, and runs the controller as the account that the chart has made for it: there is no node that
// runs the image.
func (p *plane) startController(t *testing.T) {
	t.Helper()
	p.must(t, "helm", onChart("install", "--create-namespace")...)
	hour := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	token, err := p.client.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), deployment, hour, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[release] = &clientcmdapi.Cluster{Server: apiURL, CertificateAuthority: p.file("ca.crt")}
	config.AuthInfos[release] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[release] = &clientcmdapi.Context{Cluster: release, AuthInfo: release}
	config.CurrentContext = release
	if err := clientcmd.WriteToFile(*config, p.kubeconfig(release)); err != nil {
		t.Fatal(err)
	}
	const health = "127.0.0.1:8081"
	ready := func(ctx context.Context) error { return p.answers(ctx, "http://"+health+"/readyz", "") }
	p.start(t, p.process(deployment, filepath.Join(home.bin, deployment), ready,
		"--kubeconfig="+p.kubeconfig(release), "--health-bind-address="+health))
	t.Cleanup(func() { p.mustNotHaveRestarted(t) })
}

// mustNotHaveRestarted checks that no process of the cluster has ended.
func (p *plane) mustNotHaveRestarted(t *testing.T) {
	t.Helper()
	for _, status := range p.supervisor.Statuses() {
		if status.State == supervise.Running && status.Restarts > 0 {
			t.Errorf("%s ended: %s", status.Name, status.LastExit)
		}
	}
}

// policies is how the policies of the namespace are reached.
func (p *plane) policies(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(p.config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(v1alpha1.GroupVersion().WithResource(v1alpha1.Resource)).Namespace(namespace)
}

// govern makes a policy for the governed set.
func (p *plane) govern(t *testing.T, spec map[string]any) {
	t.Helper()
	spec["targetRef"] = map[string]any{"name": governed}
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": governed}, "spec": spec,
	}}
	if _, err := p.policies(t).Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (p *plane) patchPolicy(t *testing.T, patch string) {
	t.Helper()
	if _, err := p.policies(t).Patch(t.Context(), governed, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (p *plane) set(ctx context.Context, t *testing.T, name string) *appsv1.StatefulSet {
	t.Helper()
	set, err := p.client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// awaitSet waits until a set is as its spec wants it.
func (p *plane) awaitSet(t *testing.T, name string) {
	t.Helper()
	await(t, name+" is complete", func(ctx context.Context) (string, error) {
		set, err := p.client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return unfinished(set), nil
	})
}

// mustBeAt checks which ordinals of a set have pods.
func (p *plane) mustBeAt(t *testing.T, set, want string) {
	t.Helper()
	pods := p.podsOf(t, set)
	var got []string
	for i := range 10 {
		if _, ok := pods[fmt.Sprintf("%s-%d", set, i)]; ok {
			got = append(got, strconv.Itoa(i))
		}
	}
	if at := strings.Join(got, " "); at != want {
		t.Errorf("%s has pods at %s, not at %s", set, at, want)
	}
}
