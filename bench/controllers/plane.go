// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ordinal-dev/ordinal/bench/rig"
	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
	"github.com/ordinal-dev/ordinal/internal/install"
	"github.com/ordinal-dev/ordinal/test/ports"
)

const (
	loopback = "127.0.0.1"
	// patience is how long a process may take to start.
	patience = 2 * time.Minute
	// admins is the group that may do everything. The API server neither looks up its rights nor holds back its requests, so
	// that it treats both contenders alike.
	admins = "system:masters"
)

// plane is a datastore and an API server. No controller runs in it but the one that is measured.
type plane struct {
	dir        string
	ca         *pki.Authority
	config     *rest.Config
	client     kubernetes.Interface
	supervisor *supervise.Supervisor
	audit      *auditLog
	// binaries are the programs of the contenders. Each has a copy of its own, so that it shares no page with another process.
	binaries map[string]string
}

func startPlane(ctx context.Context, dir string, o options) (*plane, error) {
	p := &plane{
		dir: dir, supervisor: supervise.New(nil), audit: &auditLog{path: filepath.Join(dir, "audit.log")},
		binaries: map[string]string{incumbent: filepath.Join(dir, "incumbent"), ours: filepath.Join(dir, "ordinal")},
	}
	binary, err := filepath.Abs(o.ordinal)
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(p.file("audit.yaml"), []byte(auditPolicy), 0o600)
	for _, who := range o.contenders(1) {
		err = errors.Join(err, copyProgram(p.binaries[who], map[string]string{incumbent: o.incumbent, ours: binary + "-controller"}[who]))
	}
	if err != nil {
		return nil, fmt.Errorf("prepare (make build comes first): %w", err)
	}
	port, err := p.identify(ctx)
	if err != nil {
		return nil, err
	}
	for _, process := range []supervise.Process{p.etcd(binary), p.apiServer(binary, port)} {
		if err := startWithin(ctx, p.supervisor, process); err != nil {
			p.stop()
			return nil, err
		}
	}
	if err := install.Policies(ctx, p.config); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// identify makes the keys and the administrator's client, and gives the port that the API server will have.
func (p *plane) identify(ctx context.Context) (int, error) {
	var err error
	if p.ca, err = pki.LoadAuthority(p.file("ca"), time.Now()); err != nil {
		return 0, err
	}
	pair, err := p.ca.Issue(pki.Subject{User: "loopback", IPs: []net.IP{net.ParseIP(loopback)}}, time.Now())
	if err != nil {
		return 0, err
	}
	_, keyErr := pki.LoadOrMakeKey(p.file("service-account.key"))
	if err := errors.Join(keyErr, pair.Write(p.file("loopback"))); err != nil {
		return 0, err
	}
	port, err := ports.Any(ctx)
	if err != nil {
		return 0, err
	}
	admin, err := p.ca.Issue(pki.Subject{User: "bench", Groups: []string{admins}}, time.Now())
	if err != nil {
		return 0, err
	}
	p.config = &rest.Config{
		Host: fmt.Sprintf("https://%s:%d", loopback, port), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.ca.PEM(), CertData: admin.Certificate, KeyData: admin.Key},
	}
	p.client, err = kubernetes.NewForConfig(fast(p.config))
	return port, err
}

// fast is the same configuration for a client that spends less on encoding.
func fast(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

func (p *plane) file(name string) string { return filepath.Join(p.dir, name) }

func (p *plane) stop() {
	for _, name := range []string{"kube-apiserver", "etcd"} {
		p.supervisor.Stop(name)
	}
}

// serverPID is the process ID of the API server.
func (p *plane) serverPID() int {
	for _, s := range p.supervisor.Statuses() {
		if s.Name == "kube-apiserver" {
			return s.PID
		}
	}
	return 0
}

// kubeconfig writes one for a contender, whose name is its user.
func (p *plane) kubeconfig(who string) (string, error) {
	pair, err := p.ca.Issue(pki.Subject{User: who, Groups: []string{admins}}, time.Now())
	if err != nil {
		return "", err
	}
	file := p.file(who + ".kubeconfig")
	return file, pki.WriteKubeconfig(file, p.config.Host, p.ca, pair)
}

// process is a child that logs to a file of its own.
func (p *plane) process(name, binary string, ready func(context.Context) error, args ...string) supervise.Process {
	file := p.file(name + ".log")
	return supervise.Process{
		Name: name, Path: binary, Args: args, Log: &rig.LogFile{Path: file}, LogFile: file, Ready: ready, Grace: 10 * time.Second,
	}
}

func (p *plane) etcd(binary string) supervise.Process {
	socket := p.file("etcd.sock")
	ready := func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return p.process("etcd", binary, ready, "component", "etcd", "--data-dir="+p.file("etcd"), "--socket="+socket)
}

// apiServer leaves out what would need a controller that is not there: service accounts, and the protection of claims.
func (p *plane) apiServer(binary string, port int) supervise.Process {
	ready := func(ctx context.Context) error {
		return p.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	return p.process("kube-apiserver", binary, ready, "component", "kube-apiserver",
		"--listen="+loopback,
		fmt.Sprintf("--secure-port=%d", port),
		"--endpoint-reconciler-type=none",
		"--etcd-servers=unix://"+p.file("etcd.sock"),
		"--service-cluster-ip-range=10.86.0.0/16",
		"--tls-cert-file="+p.file("loopback.crt"),
		"--tls-private-key-file="+p.file("loopback.key"),
		"--client-ca-file="+p.file("ca.crt"),
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.file("service-account.key"),
		"--service-account-signing-key-file="+p.file("service-account.key"),
		"--audit-policy-file="+p.file("audit.yaml"),
		"--audit-log-path="+p.audit.path,
		"--audit-log-maxsize=100000",
		"--delete-collection-workers=8",
	)
}

// startWithin starts a process and waits for it.
func startWithin(ctx context.Context, s *supervise.Supervisor, p supervise.Process) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.Start(ctx, p); err != nil {
		s.Stop(p.Name)
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return nil
}

func copyProgram(to, from string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
