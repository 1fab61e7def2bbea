// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
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
	"github.com/ordinal-dev/ordinal/internal/install"
	"github.com/ordinal-dev/ordinal/test/ports"
)

const (
	// patience is how long anything may take that should come soon.
	patience = 60 * time.Second
	loopback = "127.0.0.1"
	// keepLogs, in the environment, is a directory in which a run that fails leaves its logs.
	keepLogs = "ORDINAL_TEST_LOGS"
)

// env is what all tests share: one control plane, one kubelet, one controller.
var env struct {
	dir        string
	ca         *pki.Authority
	config     *rest.Config // the administrator's
	client     kubernetes.Interface
	kubelet    *kubelet
	controller *controllerRun
	denials    *denials
	supervisor *supervise.Supervisor
}

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	broken := context.AfterFunc(ctx, func() {
		tearDown(true)
		os.Exit(1)
	})
	code := 1
	if err := setUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "test/api cannot run:", err)
	} else {
		// The tests wait more than they work.
		flag.Parse()
		if err := flag.Set("test.parallel", "12"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		code = m.Run()
		if err := env.denials.check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	broken()
	stop()
	tearDown(code != 0)
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
	if env.dir, err = os.MkdirTemp("", "ordinal-api-"); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(env.dir, "log"), 0o700); err != nil {
		return err
	}
	if err := logTo("controller.log"); err != nil {
		return err
	}
	if env.ca, err = pki.LoadAuthority(filepath.Join(env.dir, "ca"), time.Now()); err != nil {
		return err
	}
	c := components{binary: binary}
	if err := c.start(ctx); err != nil {
		return err
	}
	if err := giveRights(ctx); err != nil {
		return err
	}
	if err := install.Policies(ctx, env.config); err != nil {
		return err
	}
	if env.kubelet, err = startKubelet(env.client); err != nil {
		return err
	}
	env.denials = &denials{}
	env.controller = &controllerRun{}
	return env.controller.start()
}

func tearDown(failed bool) {
	if env.controller != nil {
		_ = env.controller.stop()
	}
	if env.kubelet != nil {
		env.kubelet.stop()
	}
	if env.supervisor != nil {
		for _, name := range []string{"kube-controller-manager", "kube-apiserver", "etcd"} {
			env.supervisor.Stop(name)
		}
	}
	klog.Flush()
	if dir := os.Getenv(keepLogs); failed && dir != "" {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(env.dir, "log"))); err != nil {
			fmt.Fprintln(os.Stderr, "keep logs:", err)
		}
	}
	if env.dir != "" {
		_ = os.RemoveAll(env.dir)
	}
}

// logTo puts what this process logs into a file.
func logTo(name string) error {
	file, err := os.Create(filepath.Join(env.dir, "log", name))
	if err != nil {
		return err
	}
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(file))))
	return nil
}

// components are Kubernetes' own processes.
type components struct {
	binary string
}

func (c components) start(ctx context.Context) error {
	if err := c.issue(); err != nil {
		return err
	}
	port, err := ports.Any(ctx)
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://%s:%d", loopback, port)
	if env.config, err = clientConfig(server, pki.Subject{User: "admin", Groups: []string{"system:masters"}}); err != nil {
		return err
	}
	env.config.QPS = -1
	if env.client, err = kubernetes.NewForConfig(env.config); err != nil {
		return err
	}
	managerConfig := filepath.Join(env.dir, "manager.kubeconfig")
	pair, err := env.ca.Issue(pki.Subject{User: "system:kube-controller-manager"}, time.Now())
	if err != nil {
		return err
	}
	if err := pki.WriteKubeconfig(managerConfig, server, env.ca, pair); err != nil {
		return err
	}
	env.supervisor = supervise.New(nil)
	for _, p := range []supervise.Process{c.etcd(), c.apiServer(port), c.controllerManager(managerConfig)} {
		ctx, cancel := context.WithTimeout(ctx, 2*patience)
		err := env.supervisor.Start(ctx, p)
		cancel()
		if err != nil {
			return fmt.Errorf("start %s: %w", p.Name, err)
		}
	}
	return nil
}

// issue makes the server's certificate and the key of service accounts.
func (c components) issue() error {
	pair, err := env.ca.Issue(pki.Subject{User: "apiserver", IPs: []net.IP{net.ParseIP(loopback)}}, time.Now())
	if err != nil {
		return err
	}
	_, keyErr := pki.LoadOrMakeKey(filepath.Join(env.dir, "service-account.key"))
	return errors.Join(keyErr, pair.Write(filepath.Join(env.dir, "apiserver")))
}

func (c components) process(name string, ready func(context.Context) error, flags ...string) supervise.Process {
	file := filepath.Join(env.dir, "log", name+".log")
	return supervise.Process{
		Name: name, Path: c.binary, Args: append([]string{"component", name}, flags...),
		Log: &logFile{path: file}, LogFile: file, Ready: ready, Grace: 10 * time.Second,
	}
}

func (c components) etcd() supervise.Process {
	socket := filepath.Join(env.dir, "etcd.sock")
	ready := func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return c.process("etcd", ready, "--data-dir="+filepath.Join(env.dir, "etcd"), "--socket="+socket)
}

func (c components) apiServer(port int) supervise.Process {
	file := func(name string) string { return filepath.Join(env.dir, name) }
	ready := func(ctx context.Context) error {
		return env.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	return c.process("kube-apiserver", ready,
		"--listen="+loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--endpoint-reconciler-type=none",
		"--etcd-servers=unix://"+file("etcd.sock"),
		"--service-cluster-ip-range=10.86.0.0/16",
		"--tls-cert-file="+file("apiserver.crt"),
		"--tls-private-key-file="+file("apiserver.key"),
		"--client-ca-file="+file("ca.crt"),
		"--authorization-mode=RBAC",
		// Some clusters have it, and it shows whether the controller may name the owners that it names.
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+file("service-account.key"),
		"--service-account-signing-key-file="+file("service-account.key"),
	)
}

// controllerManager runs Kubernetes' other controllers, but for those that act on nodes that do not report: there are no
// nodes.
func (c components) controllerManager(kubeconfig string) supervise.Process {
	ready := func(ctx context.Context) error {
		_, err := env.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	return c.process("kube-controller-manager", ready,
		"--controllers=*,-statefulset-controller,-node-lifecycle-controller,-pod-garbage-collector-controller",
		"--kubeconfig="+kubeconfig,
		"--secure-port=0",
		"--authentication-skip-lookup=true",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--root-ca-file="+filepath.Join(env.dir, "ca.crt"),
		"--service-account-private-key-file="+filepath.Join(env.dir, "service-account.key"),
		"--kube-api-qps=1000", "--kube-api-burst=1000",
	)
}

// logFile opens its file at the first write.
type logFile struct {
	path string
	file *os.File
}

func (l *logFile) Write(b []byte) (int, error) {
	if l.file == nil {
		file, err := os.Create(l.path)
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	return l.file.Write(b)
}

func clientConfig(server string, s pki.Subject) (*rest.Config, error) {
	pair, err := env.ca.Issue(s, time.Now())
	if err != nil {
		return nil, err
	}
	tls := rest.TLSClientConfig{CAData: env.ca.PEM(), CertData: pair.Certificate, KeyData: pair.Key}
	return &rest.Config{Host: server, TLSClientConfig: tls}, nil
}

// giveRights lets the controller's user do what it may do in a cluster of our own, and no more.
func giveRights(ctx context.Context) error {
	role := controller.ClusterRole()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: controller.User}},
	}
	_, roleErr := env.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	_, bindingErr := env.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return errors.Join(roleErr, bindingErr)
}

// controllerRun is the controller in this process, which can be stopped and started again.
type controllerRun struct {
	cancel context.CancelFunc
	ended  chan error
}

// start runs the controller as its user, and returns when it works.
func (r *controllerRun) start() error {
	cfg, err := clientConfig(env.config.Host, pki.Subject{User: controller.User})
	if err != nil {
		return err
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return denialTransport{next, env.denials} })
	ready := make(chan struct{})
	o := controller.Options{
		Defaulter: appsdefaults.SetObjectDefaults_StatefulSet, LeaderElect: true,
		Ready: func() { close(ready) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- controller.Run(ctx, cfg, o) }()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case <-ready:
		return nil
	case err := <-r.ended:
		r.ended <- err
		return fmt.Errorf("run the controller: %w", err)
	case <-deadline.C:
		return errors.New("the controller does not start; it may lack rights")
	}
}

// stop ends the controller and waits for it.
func (r *controllerRun) stop() error {
	r.cancel()
	return <-r.ended
}

// restartController is for tests that run alone.
func restartController(t *testing.T) {
	t.Helper()
	if err := env.controller.stop(); err != nil {
		t.Fatal(err)
	}
	if err := env.controller.start(); err != nil {
		t.Fatal(err)
	}
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
