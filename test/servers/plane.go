// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers starts etcd and the API server of bin/ordinal for tests, on loopback, in a directory of their own.
package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
	"github.com/ordinal-dev/ordinal/internal/controller"
	"github.com/ordinal-dev/ordinal/test/ports"
)

const (
	loopback = "127.0.0.1"
	// starting is how long a part may take until it is ready, also on a machine with much other work.
	starting = 2 * time.Minute
)

// Plane is a control plane. Its fields are not to be changed.
type Plane struct {
	// Binary is bin/ordinal, and Dir what all files are in; logs are in its folder log.
	Binary, Dir string
	CA          *pki.Authority
	// Config and Client are the administrator's.
	Config     *rest.Config
	Client     kubernetes.Interface
	supervisor *supervise.Supervisor
}

// Prepare makes what a control plane needs below a directory, which exists. The directory of the test is two below the root.
func Prepare(dir string) (*Plane, error) {
	binary, err := filepath.Abs("../../bin/ordinal")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("bin/ordinal is missing: run make build first")
	}
	p := &Plane{Binary: binary, Dir: dir, supervisor: supervise.New(nil)}
	if err := os.Mkdir(p.File("log"), 0o700); err != nil {
		return nil, err
	}
	if p.CA, err = pki.LoadAuthority(p.File("ca"), time.Now()); err != nil {
		return nil, err
	}
	return p, nil
}

// Start starts etcd and the API server, whose flags may be added to, and returns when they are ready.
func (p *Plane) Start(ctx context.Context, flags ...string) error {
	port, err := ports.Any(ctx)
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://%s:%d", loopback, port)
	if err := p.issue(server); err != nil {
		return err
	}
	for _, part := range []supervise.Process{p.etcd(), p.apiServer(port, flags)} {
		if err := p.Supervise(ctx, p.supervisor, part); err != nil {
			return err
		}
	}
	return nil
}

// issue makes certificates, the key of service accounts, and the administrator's client.
func (p *Plane) issue(server string) error {
	serving, err := p.CA.Issue(pki.Subject{User: "apiserver", IPs: []net.IP{net.ParseIP(loopback)}}, time.Now())
	if err != nil {
		return err
	}
	_, keyErr := pki.LoadOrMakeKey(p.File("service-account.key"))
	manager, managerErr := p.CA.Issue(pki.Subject{User: "system:kube-controller-manager"}, time.Now())
	if err := errors.Join(keyErr, managerErr, serving.Write(p.File("apiserver"))); err != nil {
		return err
	}
	if err := pki.WriteKubeconfig(p.ManagerKubeconfig(), server, p.CA, manager); err != nil {
		return err
	}
	p.Config = &rest.Config{Host: server}
	if p.Config, err = p.As(pki.Subject{User: "admin", Groups: []string{"system:masters"}}); err != nil {
		return err
	}
	p.Config.QPS = -1
	p.Client, err = kubernetes.NewForConfig(p.Config)
	return err
}

// Stop stops what runs: the parts that are named, and then what they need.
func (p *Plane) Stop(others ...string) {
	for _, name := range append(others, "kube-apiserver", "etcd") {
		p.supervisor.Stop(name)
	}
}

// Add starts another part, which Stop stops if it is named.
func (p *Plane) Add(ctx context.Context, part supervise.Process) error {
	return p.Supervise(ctx, p.supervisor, part)
}

// Supervise starts a part, and returns when it is ready.
func (p *Plane) Supervise(ctx context.Context, s *supervise.Supervisor, part supervise.Process) error {
	ctx, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	if err := s.Start(ctx, part); err != nil {
		return fmt.Errorf("start %s: %w", part.Name, err)
	}
	return nil
}

// File is a file of the control plane.
func (p *Plane) File(name string) string { return filepath.Join(p.Dir, name) }

// Log is the file into which a part logs.
func (p *Plane) Log(name string) string { return filepath.Join(p.Dir, "log", name+".log") }

// ManagerKubeconfig is that of kube-controller-manager.
func (p *Plane) ManagerKubeconfig() string { return p.File("manager.kubeconfig") }

// Process is a part of bin/ordinal.
func (p *Plane) Process(name string, ready func(context.Context) error, flags ...string) supervise.Process {
	return supervise.Process{
		Name: name, Path: p.Binary, Args: append([]string{"component", name}, flags...),
		Log: NewLogFile(p.Log(name)), LogFile: p.Log(name), Ready: ready, Grace: 10 * time.Second,
	}
}

func (p *Plane) etcd() supervise.Process {
	socket := p.File("etcd.sock")
	ready := func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return p.Process("etcd", ready, "--data-dir="+p.File("etcd"), "--socket="+socket)
}

func (p *Plane) apiServer(port int, flags []string) supervise.Process {
	ready := func(ctx context.Context) error {
		return p.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	return p.Process("kube-apiserver", ready, append([]string{
		"--listen=" + loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--endpoint-reconciler-type=none",
		"--etcd-servers=unix://" + p.File("etcd.sock"),
		"--service-cluster-ip-range=10.86.0.0/16",
		"--tls-cert-file=" + p.File("apiserver.crt"),
		"--tls-private-key-file=" + p.File("apiserver.key"),
		"--client-ca-file=" + p.File("ca.crt"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.File("service-account.key"),
		"--service-account-signing-key-file=" + p.File("service-account.key"),
	}, flags...)...)
}

// As is the configuration of a client of a user.
func (p *Plane) As(s pki.Subject) (*rest.Config, error) {
	pair, err := p.CA.Issue(s, time.Now())
	if err != nil {
		return nil, err
	}
	tls := rest.TLSClientConfig{CAData: p.CA.PEM(), CertData: pair.Certificate, KeyData: pair.Key}
	return &rest.Config{Host: p.Config.Host, TLSClientConfig: tls}, nil
}

// GiveRights lets the controller's user do what it may do in any cluster, and no more.
func (p *Plane) GiveRights(ctx context.Context) error {
	role := controller.ClusterRole()
	_, roleErr := p.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	_, bindingErr := p.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: controller.User}},
	}, metav1.CreateOptions{})
	return errors.Join(roleErr, bindingErr)
}
