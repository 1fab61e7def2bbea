// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

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
	"github.com/ordinal-dev/ordinal/test/servers"
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
	*servers.Plane

	dir        string
	config     *rest.Config // the administrator's
	client     kubernetes.Interface
	kubelet    *kubelet
	controller *controllerRun
	denials    *denials
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
	var err error
	if env.dir, err = os.MkdirTemp("", "ordinal-api-"); err != nil {
		return err
	}
	if env.Plane, err = servers.Prepare(env.dir); err != nil {
		return err
	}
	if err := logTo("controller"); err != nil {
		return err
	}
	// Some clusters have it, and it shows whether the controller may name the owners that it names.
	if err := env.Start(ctx, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"); err != nil {
		return err
	}
	env.config, env.client = env.Config, env.Client
	if err := env.Add(ctx, controllerManager()); err != nil {
		return err
	}
	if err := env.GiveRights(ctx); err != nil {
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
	if env.Plane != nil {
		env.Stop("kube-controller-manager")
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
	file, err := os.Create(env.Log(name))
	if err != nil {
		return err
	}
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(file))))
	return nil
}

// controllerManager runs Kubernetes' other controllers, but for those that act on nodes that do not report: there are no
// nodes.
func controllerManager() supervise.Process {
	ready := func(ctx context.Context) error {
		_, err := env.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	return env.Process("kube-controller-manager", ready,
		"--controllers=*,-statefulset-controller,-node-lifecycle-controller,-pod-garbage-collector-controller",
		"--kubeconfig="+env.ManagerKubeconfig(),
		"--secure-port=0",
		"--authentication-skip-lookup=true",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--root-ca-file="+env.File("ca.crt"),
		"--service-account-private-key-file="+env.File("service-account.key"),
		"--kube-api-qps=1000", "--kube-api-burst=1000",
	)
}

// controllerRun is the controller in this process, which can be stopped and started again.
type controllerRun struct {
	cancel context.CancelFunc
	ended  chan error
}

// start runs the controller as its user, and returns when it works.
func (r *controllerRun) start() error {
	cfg, err := env.As(pki.Subject{User: controller.User})
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
