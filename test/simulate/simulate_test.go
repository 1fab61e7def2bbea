// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ordinal-dev/ordinal/internal/cluster"
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/nodes"
	"github.com/ordinal-dev/ordinal/test/ports"
)

const (
	namespace = "default"
	patience  = time.Minute
	// nobody is the user as whom the cluster runs where the test has root.
	nobody = 65534
)

// home is a simulated cluster and the user whose it is.
type home struct {
	*testing.T
	dir, data, binary string
	port              int
	client            kubernetes.Interface
}

// newHome gives the user a directory, and the binary where that user may execute it.
func newHome(t *testing.T) *home {
	t.Helper()
	built, err := filepath.Abs("../../bin/ordinal")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(built); errors.Is(err, fs.ErrNotExist) {
		t.Fatal("bin/ordinal is missing: run make build first")
	}
	// t.TempDir has a name that is too long for sockets, below a directory that others may not enter.
	dir, err := os.MkdirTemp("", "ordinal-sim-") //nolint:usetesting // For the reasons above.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, err := ports.Three(t.Context(), 21000)
	if err != nil {
		t.Fatal(err)
	}
	h := &home{T: t, dir: dir, data: filepath.Join(dir, "data"), binary: built, port: port}
	if os.Geteuid() == 0 {
		h.binary = filepath.Join(dir, "ordinal")
		copyProgram(t, built, h.binary)
		copyProgram(t, built+"-controller", h.binary+"-controller")
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o755) //nolint:gosec // It is to be executed.
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ordinal runs the binary as its user, and gives all that it prints.
func (h *home) ordinal(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, h.binary, append([]string{"--data-dir", h.data}, args...)...)
	command.Dir = h.dir
	command.Env = append(os.Environ(), "HOME="+h.dir)
	if os.Geteuid() == 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

func (h *home) must(args ...string) string {
	h.Helper()
	out, err := h.ordinal(h.Context(), args...)
	if err != nil {
		h.Fatalf("ordinal %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (h *home) up() {
	h.Helper()
	h.must("up", "--simulate", "--detach", "--nodes", "3", "--node-capacity", "cpu=16", "--pod-delay", "100ms",
		"--api-port", strconv.Itoa(h.port))
	config, err := clientcmd.BuildConfigFromFlags("", layout.Data(h.data).Kubeconfig())
	if err != nil {
		h.Fatal(err)
	}
	config.QPS = -1
	if h.client, err = kubernetes.NewForConfig(config); err != nil {
		h.Fatal(err)
	}
}

// eventually asks again and again, until the answer is yes; what is wanted is named.
func (h *home) eventually(t *testing.T, wanted string, ask func(ctx context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, ask); err != nil {
		status, _ := h.ordinal(t.Context(), "status")
		t.Fatalf("wait for %s: %v\n%s", wanted, err, status)
	}
}

// TestSimulatedCluster goes through the life of one cluster, as starting one is most of the work.
func TestSimulatedCluster(t *testing.T) {
	h := newHome(t)
	t.Cleanup(func() { _, _ = h.ordinal(context.WithoutCancel(t.Context()), "down", "--purge", "--yes") })
	h.up()
	t.Run("nodes", h.testNodes)
	t.Run("set with claims", h.testSetWithClaims)
	t.Run("fates", h.testFates)
	t.Run("thousand pods", h.testThousandPods)
	t.Run("second cluster", h.testSecondCluster)
	t.Run("killed supervisor", h.testKilledSupervisor)
	t.Run("controller alone", h.testControllerAlone)
	t.Run("down", h.testDown)
}

func (h *home) testNodes(t *testing.T) {
	list, err := h.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("nodes are %d, %v", len(list.Items), err)
	}
	if cpu := list.Items[0].Status.Allocatable.Cpu(); cpu.Cmp(resource.MustParse("16")) != 0 {
		t.Errorf("a node has %s CPUs", cpu)
	}
}

func newSet(name string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nowhere.example/none:1"}}},
			},
		},
	}
}

func (h *home) create(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	if _, err := h.client.AppsV1().StatefulSets(namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// wantUp waits until all pods of a set are ready at its newest revision.
func (h *home) wantUp(t *testing.T, name string) {
	t.Helper()
	h.eventually(t, name+" to be up", func(ctx context.Context) (bool, error) {
		set, err := h.client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		want := *set.Spec.Replicas
		s := set.Status
		return s.ObservedGeneration == set.Generation && s.ReadyReplicas == want && s.UpdatedReplicas == want &&
			s.CurrentRevision == s.UpdateRevision, nil
	})
}

func (h *home) testSetWithClaims(t *testing.T) {
	set := newSet("db", 3)
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}}
	h.create(t, set)
	h.wantUp(t, "db")
	claims, err := h.client.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) != 3 {
		t.Fatalf("claims are %d, %v", len(claims.Items), err)
	}
	for _, claim := range claims.Items {
		if claim.Status.Phase != corev1.ClaimBound {
			t.Errorf("claim %s is %s", claim.Name, claim.Status.Phase)
		}
	}
	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}`)
	if _, err := h.client.AppsV1().StatefulSets(namespace).Patch(t.Context(), "db", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	h.wantUp(t, "db")
	if out := h.must("why", "db"); !strings.Contains(out, "db is up: 3 of 3") {
		t.Errorf("why tells:\n%s", out)
	}
	if out := h.must("kubectl", "get", "pods", "-o", "name"); strings.Count(out, "pod/db-") != 3 {
		t.Errorf("kubectl tells:\n%s", out)
	}
	if err := h.client.AppsV1().StatefulSets(namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, "the pods to go", func(ctx context.Context) (bool, error) {
		pods, err := h.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=db"})
		return err == nil && len(pods.Items) == 0, err
	})
}

// testFates has one pod of each fate, and then has the failing one mended.
func (h *home) testFates(t *testing.T) {
	pods := h.client.CoreV1().Pods(namespace)
	for _, fate := range []string{nodes.FateFail, nodes.FatePending, nodes.FateEvict} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fate, Annotations: map[string]string{nodes.FateAnnotation: fate}},
			Spec:       newSet(fate, 1).Spec.Template.Spec,
		}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h.wantPod(t, nodes.FateFail, func(s corev1.PodStatus) bool { return waits(s) == "CrashLoopBackOff" })
	h.wantPod(t, nodes.FatePending, func(s corev1.PodStatus) bool {
		return s.Phase == corev1.PodPending && waits(s) == "ContainerCreating"
	})
	h.wantPod(t, nodes.FateEvict, func(s corev1.PodStatus) bool { return s.Phase == corev1.PodFailed && s.Reason == "Evicted" })
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, nodes.FateAnnotation)
	if _, err := pods.Patch(t.Context(), nodes.FateFail, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	h.wantPod(t, nodes.FateFail, func(s corev1.PodStatus) bool {
		return s.Phase == corev1.PodRunning && len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].Ready
	})
}

func (h *home) wantPod(t *testing.T, name string, is func(corev1.PodStatus) bool) {
	t.Helper()
	h.eventually(t, "pod "+name, func(ctx context.Context) (bool, error) {
		pod, err := h.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && is(pod.Status), err
	})
}

// waits is what the pod's container waits for.
func waits(s corev1.PodStatus) string {
	if len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Waiting == nil {
		return ""
	}
	return s.ContainerStatuses[0].State.Waiting.Reason
}

func (h *home) testThousandPods(t *testing.T) {
	set := newSet("big", 1000)
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	h.create(t, set)
	h.wantUp(t, "big")
}

func (h *home) testSecondCluster(t *testing.T) {
	other := *h
	other.data = filepath.Join(h.dir, "other")
	out, err := other.ordinal(t.Context(), "up", "--simulate", "--api-port", strconv.Itoa(h.port+1))
	if err == nil || !strings.Contains(out, "--api-port "+strconv.Itoa(h.port+11)) {
		t.Errorf("a second cluster on taken ports ends with %v and tells:\n%s", err, out)
	}
	if out, err = other.ordinal(t.Context(), "up"); err == nil || !strings.Contains(out, "ordinal up --simulate") {
		t.Errorf("a real cluster without root ends with %v and tells:\n%s", err, out)
	}
}

// testKilledSupervisor kills the supervisor, and has a new one go on from there.
func (h *home) testKilledSupervisor(t *testing.T) {
	state, err := cluster.ReadState(h.data)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if len(state.Components) != 7 {
		t.Errorf("there are %d components", len(state.Components))
	}
	h.eventually(t, "every component to end", func(context.Context) (bool, error) {
		for _, component := range state.Components {
			if isRunning(component.PID) {
				return false, nil
			}
		}
		return true, nil
	})
	h.up()
	if _, err := h.client.AppsV1().StatefulSets(namespace).Get(t.Context(), "big", metav1.GetOptions{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	h.create(t, newSet("after", 1))
	h.wantUp(t, "after")
}

// isRunning tells whether a process runs; one that only waits to be reaped does not.
func isRunning(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(content), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// `ordinal controller` is the program beside it, with its flags and its exit code.
func (h *home) testControllerAlone(t *testing.T) {
	command := exec.CommandContext(t.Context(), h.binary, "controller", "--workers=0")
	out, err := command.CombinedOutput()
	if want := "ordinal-controller: --workers must be at least 1, not 0\n"; err == nil || string(out) != want {
		t.Errorf("it ends with %v and prints %q, want %q", err, out, want)
	}
}

func (h *home) testDown(t *testing.T) {
	state, err := cluster.ReadState(h.data)
	if err != nil || !state.Simulated {
		t.Fatalf("state is %+v, %v", state, err)
	}
	h.must("down")
	for _, component := range state.Components {
		if isRunning(component.PID) {
			t.Errorf("%s still runs", component.Name)
		}
	}
	if _, err := os.Stat(layout.Data(h.data).Run()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the sockets are still there: %v", err)
	}
	if _, err := h.client.Discovery().ServerVersion(); err == nil || apierrors.IsUnauthorized(err) {
		t.Errorf("the API server still answers: %v", err)
	}
	h.must("down", "--purge", "--yes")
	if _, err := os.Stat(h.data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data is still there: %v", err)
	}
}
