// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

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
	"github.com/ordinal-dev/ordinal/test/servers"
)

const (
	// patience is how long anything may take that should come soon.
	patience = 90 * time.Second
	loopback = "127.0.0.1"
	builtIn  = "kube-controller-manager"
)

// env is the control plane that all tests share. Which StatefulSet controller works in it is up to them.
var env struct {
	*servers.Plane

	dir    string
	config *rest.Config // the administrator's
	client kubernetes.Interface
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
	var err error
	if env.dir, err = os.MkdirTemp("", "ordinal-takeover-"); err != nil {
		return err
	}
	if env.Plane, err = servers.Prepare(env.dir); err != nil {
		return err
	}
	// The API server knows a client by the name of its program, and so do people.
	if err := os.Symlink(env.Binary, env.File(builtIn)); err != nil {
		return err
	}
	log, err := os.Create(env.Log("ours"))
	if err != nil {
		return err
	}
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))
	if err := env.Start(ctx); err != nil {
		return err
	}
	env.config, env.client = env.Config, env.Client
	return env.GiveRights(ctx)
}

func tearDown() {
	if env.ours != nil {
		_ = env.ours.stop()
	}
	stopManager()
	if env.Plane != nil {
		env.Stop()
	}
	klog.Flush()
	if env.dir != "" {
		_ = os.RemoveAll(env.dir)
	}
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
	env.manager = supervise.New(nil)
	part := env.Process(builtIn, ready,
		"--controllers="+controllers,
		"--kubeconfig="+env.ManagerKubeconfig(),
		"--bind-address="+loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir="+env.File("manager"),
		"--authentication-skip-lookup=true",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--root-ca-file="+env.File("ca.crt"),
		"--kube-api-qps=500", "--kube-api-burst=500",
		"--service-account-private-key-file="+env.File("service-account.key"),
	)
	part.Path = env.File(builtIn)
	if err := env.Supervise(t.Context(), env.manager, part); err != nil {
		t.Fatal(err)
	}
}

func stopManager() {
	if env.manager != nil {
		env.manager.Stop(builtIn)
		env.manager = nil
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
	cfg, err := env.As(pki.Subject{User: controller.User})
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	o := &ours{metrics: telemetry.New(), cancel: cancel, ended: make(chan error, 1)}
	env.ours = o
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
	if env.ours == nil {
		return
	}
	if err := env.ours.stop(); err != nil {
		t.Error(err)
	}
	env.ours = nil
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
