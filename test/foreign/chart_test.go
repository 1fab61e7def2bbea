// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	release       = "ordinal"
	system        = "ordinal-system"
	deployment    = "ordinal-controller"
	chart         = "../../install/chart/ordinal"
	leaseSpace    = metav1.NamespaceSystem
	firstBuild    = "foreign-1"
	secondBuild   = "foreign-2"
	controllerApp = "app.kubernetes.io/name=ordinal-controller"
)

// archive is the file with the image of a build of the controller.
func archive(build string) string {
	return filepath.Join(home.bin, "foreign", "controller-"+build+".tar")
}

// try runs a built program as the platform team, and gives all that it prints.
func (p *plane) try(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(home.bin, program), args...)
	cmd.Env = append(os.Environ(), "HOME="+p.dir, "KUBECONFIG="+p.kubeconfig("admin"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// must runs a built program, which has to succeed.
func (p *plane) must(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := p.try(t.Context(), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (p *plane) kubectl(t *testing.T, args ...string) {
	t.Helper()
	p.must(t, "ordinal", append([]string{"kubectl", "--kubeconfig=" + p.kubeconfig("admin")}, args...)...)
}

// onChart is a helm command on the release, with more arguments.
func onChart(verb string, args ...string) []string {
	return append([]string{verb, release, chart, "--namespace=" + system}, args...)
}

// controllers gives the pods of the controller that run.
func (p *plane) controllers(ctx context.Context) ([]corev1.Pod, error) {
	list, err := p.client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: controllerApp})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// leader gives who holds the controllers' lease, empty if nobody.
func (p *plane) leader(ctx context.Context) (string, error) {
	lease, err := p.client.CoordinationV1().Leases(leaseSpace).Get(ctx, deployment, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

// awaitLeader waits until one leads who did not before, and gives it.
func (p *plane) awaitLeader(t *testing.T, before string) string {
	t.Helper()
	now := ""
	await(t, "another controller leads than "+before, func(ctx context.Context) (string, error) {
		var err error
		now, err = p.leader(ctx)
		if err == nil && (now == "" || now == before) {
			return "the leader is " + now, nil
		}
		return "", err
	})
	return now
}

// awaitBuild waits until a controller of a build leads.
func (p *plane) awaitBuild(t *testing.T, build string) {
	t.Helper()
	await(t, "a controller of "+build+" leads", func(ctx context.Context) (string, error) {
		leader, err := p.leader(ctx)
		if err != nil {
			return "", err
		}
		pod, err := p.client.CoreV1().Pods(system).Get(ctx, podOf(leader), metav1.GetOptions{})
		if err == nil && !strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+build) {
			return fmt.Sprintf("%s leads, of %s", leader, pod.Spec.Containers[0].Image), nil
		}
		return "", err
	})
}

// podOf is the pod of a leader, which bears the name of its pod.
func podOf(leader string) string {
	pod, _, _ := strings.Cut(leader, "_")
	return pod
}

// kill ends the controller in a pod at once, as the kernel does when memory runs out.
func kill(t *testing.T, pod string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range processes {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, []byte("HOSTNAME="+pod+"\x00")) {
			continue
		}
		dir := filepath.Dir(file)
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		pid, numErr := strconv.Atoi(filepath.Base(dir))
		if err != nil || numErr != nil || filepath.Base(exe) != deployment {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no process of %s is found", pod)
}
