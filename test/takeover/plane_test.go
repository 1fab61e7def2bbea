// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/internal/telemetry"
	"github.com/ordinal-dev/ordinal/test/ports"
)

const (
	// patience is how long anything may take that should come soon.
	patience = 90 * time.Second
	loopback = "127.0.0.1"
	builtIn  = "kube-controller-manager"
)

// plane is the control plane that all tests share. Which StatefulSet controller works in it is up to them.
var plane struct {
	dir        string
	ca         *pki.Authority
	config     *rest.Config // the administrator's
	client     kubernetes.Interface
	supervisor *supervise.Supervisor
	logs       []io.Closer
	// manager supervises kube-controller-manager; nil while it does not run.
	manager *supervise.Supervisor
	ours    *ours
}

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	broken := context.AfterFunc(ctx, func() {
		tearDown()
		os.Exit(1)
	})
	code := 1
	if err := setUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "test/takeover cannot run:", err)
	} else {
		code = m.Run()
	}
	broken()
	stop()
	tearDown()
	os.Exit(code)
}

func setUp(ctx context.Context) error {
	binary, err := filepath.Abs("../../bin/ordinal")
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return errors.New("bin/ordinal is missing: run make build first")
	}
	if plane.dir, err = os.MkdirTemp("", "ordinal-takeover-"); err != nil {
		return err
	}
	// The API server knows a client by the name of its program, and so do people.
	if err := os.Symlink(binary, file(builtIn)); err != nil {
		return err
	}
	log, err := os.Create(file("ours.log"))
	if err != nil {
		return err
	}
	plane.logs = append(plane.logs, log)
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))
	if plane.ca, err = pki.LoadAuthority(file("ca"), time.Now()); err != nil {
		return err
	}
	if err := startServers(ctx, binary); err != nil {
		return err
	}
	return giveRights(ctx)
}

func tearDown() {
	if plane.ours != nil {
		_ = plane.ours.stop()
	}
	stopManager()
	if plane.supervisor != nil {
		for _, name := range []string{"kube-apiserver", "etcd"} {
			plane.supervisor.Stop(name)
		}
	}
	klog.Flush()
	for _, log := range plane.logs {
		_ = log.Close()
	}
	if plane.dir != "" {
		_ = os.RemoveAll(plane.dir)
	}
}

func file(name string) string { return filepath.Join(plane.dir, name) }

// startServers starts etcd and the API server.
func startServers(ctx context.Context, binary string) error {
	port, err := ports.Any(ctx)
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://%s:%d", loopback, port)
	if plane.config, err = as(server, pki.Subject{User: "admin", Groups: []string{"system:masters"}}); err != nil {
		return err
	}
	plane.config.QPS = -1
	if plane.client, err = kubernetes.NewForConfig(plane.config); err != nil {
		return err
	}
	serving, err := plane.ca.Issue(pki.Subject{User: "apiserver", IPs: []net.IP{net.ParseIP(loopback)}}, time.Now())
	if err == nil {
		err = serving.Write(file("apiserver"))
	}
	_, keyErr := pki.LoadOrMakeKey(file("service-account.key"))
	manager, managerErr := plane.ca.Issue(pki.Subject{User: "system:kube-controller-manager"}, time.Now())
	if err := errors.Join(err, keyErr, managerErr); err != nil {
		return err
	}
	if err := pki.WriteKubeconfig(file("manager.kubeconfig"), server, plane.ca, manager); err != nil {
		return err
	}
	plane.supervisor = supervise.New(nil)
	socket := file("etcd.sock")
	listens := func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	answers := func(ctx context.Context) error {
		return plane.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	return errors.Join(
		start(ctx, plane.supervisor, binary, "etcd", listens, "--data-dir="+file("etcd"), "--socket="+socket),
		start(ctx, plane.supervisor, binary, "kube-apiserver", answers,
			"--listen="+loopback,
			fmt.Sprintf("--secure-port=%d", port),
			"--endpoint-reconciler-type=none",
			"--etcd-servers=unix://"+socket,
			"--service-cluster-ip-range=10.86.0.0/16",
			"--tls-cert-file="+file("apiserver.crt"),
			"--tls-private-key-file="+file("apiserver.key"),
			"--client-ca-file="+file("ca.crt"),
			"--authorization-mode=RBAC",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file="+file("service-account.key"),
			"--service-account-signing-key-file="+file("service-account.key"),
		),
	)
}

// start starts a component, and returns when it is ready.
func start(
	ctx context.Context, s *supervise.Supervisor, binary, name string, ready func(context.Context) error, flags ...string,
) error {
	log, err := os.OpenFile(file(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	plane.logs = append(plane.logs, log)
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	return s.Start(ctx, supervise.Process{
		Name: name, Path: binary, Args: append([]string{"component", name}, flags...),
		Log: log, LogFile: log.Name(), Ready: ready, Grace: 10 * time.Second,
	})
}

func as(server string, s pki.Subject) (*rest.Config, error) {
	pair, err := plane.ca.Issue(s, time.Now())
	if err != nil {
		return nil, err
	}
	tls := rest.TLSClientConfig{CAData: plane.ca.PEM(), CertData: pair.Certificate, KeyData: pair.Key}
	return &rest.Config{Host: server, TLSClientConfig: tls}, nil
}

// giveRights lets the controller's user do what it may do in any cluster, and no more.
func giveRights(ctx context.Context) error {
	role := controller.ClusterRole()
	_, roleErr := plane.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	_, err := plane.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: controller.User}},
	}, metav1.CreateOptions{})
	return errors.Join(roleErr, err)
}

// manage runs kube-controller-manager, with or without its StatefulSet controller, in the place of the one that runs. There are
// no nodes, so those that act on nodes are off.
func manage(t *testing.T, withSets bool) {
	t.Helper()
	stopManager()
	controllers := "*,-node-lifecycle-controller,-pod-garbage-collector-controller"
	if !withSets {
		controllers += ",-statefulset-controller"
	}
	port, err := ports.Any(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ready := func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", loopback, port))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	plane.manager = supervise.New(nil)
	if err := start(t.Context(), plane.manager, file(builtIn), builtIn, ready,
		"--controllers="+controllers,
		"--kubeconfig="+file("manager.kubeconfig"),
		"--bind-address="+loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir="+file("manager"),
		"--authentication-skip-lookup=true",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--root-ca-file="+file("ca.crt"),
		"--kube-api-qps=500", "--kube-api-burst=500",
		"--service-account-private-key-file="+file("service-account.key"),
	); err != nil {
		t.Fatal(err)
	}
}

func stopManager() {
	if plane.manager != nil {
		plane.manager.Stop(builtIn)
		plane.manager = nil
	}
}

// ours is Ordinal's controller in this process.
type ours struct {
	metrics *telemetry.Metrics
	cancel  context.CancelFunc
	ended   chan error
}

// control runs our controller until it is stopped, by stopOurs or at the end of the test.
func control(t *testing.T) *ours {
	t.Helper()
	cfg, err := as(plane.config.Host, pki.Subject{User: controller.User})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	o := &ours{metrics: telemetry.New(), cancel: cancel, ended: make(chan error, 1)}
	plane.ours = o
	t.Cleanup(func() { stopOurs(t) })
	options := controller.Options{
		Defaulter: appsdefaults.SetObjectDefaults_StatefulSet, LeaderElect: true, Metrics: o.metrics, Ready: func() { close(ready) },
	}
	go func() { o.ended <- controller.Run(ctx, cfg, options) }()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ready:
	case err := <-o.ended:
		o.ended <- err
		t.Fatalf("run the controller: %v", err)
	case <-late.C:
		t.Fatal("the controller does not start")
	}
	return o
}

func (o *ours) stop() error {
	o.cancel()
	return <-o.ended
}

func stopOurs(t *testing.T) {
	t.Helper()
	if plane.ours == nil {
		return
	}
	if err := plane.ours.stop(); err != nil {
		t.Error(err)
	}
	plane.ours = nil
}

// yields tells if our controller has stopped for another.
func (o *ours) yields(t *testing.T) bool {
	t.Helper()
	families, err := o.metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "ordinal_yields" {
			return f.GetMetric()[0].GetGauge().GetValue() == 1
		}
	}
	t.Fatal("there is no metric ordinal_yields")
	return false
}

// poll asks until the answer is empty.
func poll(t *testing.T, what string, unmet func(context.Context) string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = unmet(ctx)
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("wait until %s: %s", what, last)
	}
}
