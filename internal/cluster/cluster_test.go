// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

func TestOptionsAreCheckedBeforeAnythingHappens(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"root as data directory": {Options{DataDir: "/", APIPort: 6443}, "--data-dir"},
		"port out of range":      {Options{DataDir: "d", APIPort: 70000}, "--api-port: 70000"},
		"port of the kubelet":    {Options{DataDir: "d", APIPort: layout.KubeletPort}, "taken by another part"},
		"no simulated node":      {simulated(func(o *Options) { o.Nodes = 0 }), "--nodes: 0"},
		"negative delay":         {simulated(func(o *Options) { o.PodDelay = -1 }), "--pod-delay"},
		"capacity of nothing":    {simulated(func(o *Options) { o.NodeCapacity = "cpu" }), "--node-capacity"},
		"path beyond a socket's": {simulated(func(o *Options) { o.DataDir = strings.Repeat("/long", 20) }), "by 13 characters"},
		"no port after the last": {simulated(func(o *Options) { o.APIPort = 65534 }), "up to 65533"},
		"class with a capital":   {Options{DataDir: "d", APIPort: 6443, StorageClasses: []string{"Fast"}}, `--storage-class "Fast"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := test.options.Complete(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q in it", err, test.want)
			}
		})
	}
	good := Options{DataDir: "d", APIPort: 6443, StorageClasses: []string{"local", "fast"}}
	if err := good.Complete(); err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(good.DataDir) || good.Kubeconfig != filepath.Join(good.DataDir, "kubeconfig") || len(good.StorageClasses) != 1 {
		t.Errorf("completed to %+v", good)
	}
}

// simulated are options of a simulated cluster that are right but for one change.
func simulated(change func(*Options)) Options {
	o := Options{DataDir: "/d", APIPort: 6443, Simulate: true, Nodes: 2, PodDelay: time.Second}
	change(&o)
	return o
}

func TestSimulatedClusterTouchesNothingOfTheHost(t *testing.T) {
	o := simulated(func(o *Options) { o.DataDir, o.APIPort = filepath.Join(t.TempDir(), "d"), layout.KubeletPort })
	if len(o.DataDir) > 80 {
		o.DataDir = "/d"
	}
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	h := &host{Options: o, data: layout.Data(o.DataDir), self: "ordinal"}
	for _, p := range []supervise.Process{
		h.etcd(), h.apiServer(), h.controllerManager(), h.scheduler(), h.storage(), h.controller(), h.simulator(),
	} {
		line := strings.Join(p.Args, " ")
		for _, foreign := range []string{layout.RunDir + "/", layout.NodeIP, "=10257", "=10259"} {
			if strings.Contains(line, foreign) {
				t.Errorf("%s is told %q: %s", p.Name, foreign, line)
			}
		}
	}
}

func TestDataDirectoryKeepsItsKind(t *testing.T) {
	dir := t.TempDir()
	data := layout.Data(dir)
	newStatePublisher(data.State(), State{PID: 1, Phase: PhaseStopped, Simulated: true})
	for simulate, want := range map[bool]string{true: "", false: "--simulate"} {
		c := &Cluster{host: host{Options: Options{DataDir: dir, Simulate: simulate}, data: data}}
		if err := c.checkKind(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with simulate %t: %v", simulate, err)
		}
	}
}

func TestDataDirIsFoundThroughLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link:                             filepath.Join(dir, "real"),
		filepath.Join(link, "a", "b"):    filepath.Join(dir, "real", "a", "b"),
		filepath.Join(dir, "new", "one"): filepath.Join(dir, "new", "one"),
	} {
		if got, err := ResolveDataDir(path); err != nil || got != want {
			t.Errorf("%s is resolved to %s, %v, want %s", path, got, err, want)
		}
	}
}

func TestKubeconfigBelongsToWhoCalledSudo(t *testing.T) {
	t.Setenv("SUDO_UID", "1234")
	t.Setenv("SUDO_GID", "567")
	h := testHost(t)
	if h.KubeconfigOwner == nil || *h.KubeconfigOwner != (Owner{UID: 1234, GID: 567}) {
		t.Errorf("owner is %+v", h.KubeconfigOwner)
	}
	t.Setenv("SUDO_UID", "")
	if h = testHost(t); h.KubeconfigOwner != nil {
		t.Errorf("without sudo, owner is %+v", h.KubeconfigOwner)
	}
}

func testHost(t *testing.T) *host {
	t.Helper()
	o := Options{DataDir: t.TempDir(), APIPort: 6443}
	if err := o.Complete(); err != nil {
		t.Fatal(err)
	}
	return &host{Options: o, data: layout.Data(o.DataDir), binDir: "/opt/ordinal", self: "/opt/ordinal/ordinal"}
}

func TestCredentialsAreIssuedAnewUnderTheSameAuthority(t *testing.T) {
	h := testHost(t)
	if err := issueCredentials(h.Options, time.Now()); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		content, err := os.ReadFile(h.data.PKI(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	ca, sa, leaf := read("ca.crt"), read("service-account.key"), read("apiserver.crt")
	if err := issueCredentials(h.Options, time.Now()); err != nil {
		t.Fatal(err)
	}
	if read("ca.crt") != ca || read("service-account.key") != sa {
		t.Error("a second start changed what clients and tokens rely on")
	}
	if read("apiserver.crt") == leaf {
		t.Error("a second start did not renew the server's certificate")
	}
}

func TestKubeconfigOfOthersIsLeftAlone(t *testing.T) {
	h := testHost(t)
	h.Kubeconfig = filepath.Join(t.TempDir(), "config")
	foreign := "apiVersion: v1\nkind: Config\nclusters:\n- name: production\n  cluster: {server: 'https://example.org'}\n"
	if err := os.WriteFile(h.Kubeconfig, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	err := issueCredentials(h.Options, time.Now())
	if err == nil || !strings.Contains(err.Error(), "left alone; give --kubeconfig another file") {
		t.Errorf("error is %v", err)
	}
	if content, _ := os.ReadFile(h.Kubeconfig); string(content) != foreign {
		t.Error("somebody's kubeconfig was overwritten")
	}
	if err := os.Remove(h.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := issueCredentials(h.Options, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStateTellsADeadClusterFromALiveOne(t *testing.T) {
	dir := t.TempDir()
	data := layout.Data(dir)
	if _, err := ReadState(dir); !IsNeverStarted(err) {
		t.Fatalf("state of an empty directory: %v", err)
	}
	publisher := newStatePublisher(data.State(), State{PID: 7, Phase: PhaseStarting})
	publisher.components([]supervise.Status{{Name: "etcd", State: supervise.Running, PID: 8}})
	publisher.phase(PhaseReady)
	state, err := ReadState(dir)
	if err != nil || state.Phase != PhaseDead || state.Components[0].PID != 8 {
		t.Errorf("without a lock: %+v, %v", state, err)
	}
	lock, err := takeLock(data.Lock())
	if err != nil {
		t.Fatal(err)
	}
	if state, err = ReadState(dir); err != nil || state.Phase != PhaseReady {
		t.Errorf("with the lock held: %+v, %v", state, err)
	}
	publisher.phase(PhaseStopped)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if state, err = ReadState(dir); err != nil || state.Phase != PhaseStopped {
		t.Errorf("after a stop: %+v, %v", state, err)
	}
	if err := os.WriteFile(data.State(), []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if state, err = ReadState(dir); err != nil || state.Phase != PhaseDead || !strings.Contains(state.Error, "damaged") {
		t.Errorf("with half a file: %+v, %v", state, err)
	}
}

func TestFailureIsTold(t *testing.T) {
	dir := t.TempDir()
	publisher := newStatePublisher(layout.Data(dir).State(), State{Phase: PhaseStarting})
	publisher.phase(PhaseStopping)
	publisher.fail(errors.New("no luck"))
	if state, err := ReadState(dir); err != nil || state.Phase != PhaseFailed || state.Error != "no luck" {
		t.Errorf("state is %+v, %v", state, err)
	}
}

func TestSecondStartIsToldWhoRuns(t *testing.T) {
	h := testHost(t)
	lock, err := takeLock(h.data.Lock())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := writeAt(lock, "42 "+string(h.data)+"\n"); err != nil {
		t.Fatal(err)
	}
	second := &Cluster{host: *h}
	err = second.lock(h.data.Lock())
	want := "a cluster already runs on this host (pid 42, data directory " + string(h.data) + ")"
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "ordinal down --data-dir") {
		t.Errorf("error is %v", err)
	}
}

func TestFailedStartSaysWhatToDo(t *testing.T) {
	c := &Cluster{host: *testHost(t)}
	for _, err := range []error{
		&pki.DamagedError{File: "ca.crt", Cause: errors.New("cut off")},
		&supervise.ExitError{Name: "etcd", Reason: "file is not a database", LogFile: "etcd.log"},
	} {
		got := c.explain(err).Error()
		if !strings.Contains(got, "restore it from a backup") || !strings.Contains(got, "--purge") || strings.Contains(got, "\n") {
			t.Errorf("%v is explained as %q", err, got)
		}
	}
	plain := errors.New("port taken")
	if got := c.explain(plain); !errors.Is(got, plain) {
		t.Errorf("%v is explained as %v", plain, got)
	}
}

func TestOnlyAFreshReportMakesTheNodeReady(t *testing.T) {
	now := time.Now()
	node := func(status corev1.ConditionStatus, heartbeat time.Time) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(heartbeat)},
		}}}
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"ready now":           {node(corev1.ConditionTrue, now), true},
		"same second":         {node(corev1.ConditionTrue, now.Truncate(time.Second)), true},
		"ready before a stop": {node(corev1.ConditionTrue, now.Add(-time.Minute)), false},
		"not ready":           {node(corev1.ConditionFalse, now), false},
		"says nothing":        {&corev1.Node{}, false},
	} {
		if got := isReadySince(test.node, now); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestPodsGetTheirGrace(t *testing.T) {
	for annotation, want := range map[string]time.Duration{
		"": 30 * time.Second, "0": 0, "1800": 30 * time.Minute, "-1": 30 * time.Second, "soon": 30 * time.Second,
	} {
		container := &runtimeapi.Container{Annotations: map[string]string{graceAnnotation: annotation}}
		if got := grace(container); got != want {
			t.Errorf("grace of %q is %s, want %s", annotation, got, want)
		}
	}
}

func TestCorefileForwardsOnlyWhereThereIsAResolver(t *testing.T) {
	h := testHost(t)
	alone, forwarding := h.corefile(nil), h.corefile([]string{"192.0.2.53"})
	if strings.Contains(alone, "forward") || !strings.Contains(forwarding, "forward . 192.0.2.53") {
		t.Errorf("without a resolver:\n%s\nwith one:\n%s", alone, forwarding)
	}
	if strings.Contains(alone, "cache") || !strings.Contains(forwarding, "disable denial "+layout.Domain) {
		t.Errorf("names of the cluster are cached:\n%s", forwarding)
	}
}

func TestLogLinksOfOthersStay(t *testing.T) {
	dir, data := t.TempDir(), layout.Data("/data/ordinal")
	for name, target := range map[string]string{
		"ours": "/data/ordinal/log/pods/web-0/0.log", "near": "/data/ordinal-2/log/0.log", "other": "/var/log/pods/0.log",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeLogLinks(dir, data); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left are %v, %v", entries, err)
	}
	if err := os.Remove(filepath.Join(dir, "near")); err != nil {
		t.Fatal(err)
	}
	if err := removeLogLinks(filepath.Join(dir, "missing"), data); err != nil {
		t.Error(err)
	}
}

func TestProcessTableKnowsOurParent(t *testing.T) {
	if parent := processParents()[os.Getpid()]; parent != os.Getppid() {
		t.Errorf("our parent is %d, the table says %d", os.Getppid(), parent)
	}
}
