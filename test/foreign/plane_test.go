// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
	"github.com/ordinal-dev/ordinal/test/servers"
)

const (
	// patience is how long anything may take that should come soon on a busy machine with two cores.
	patience = 90 * time.Second
	loopback = "127.0.0.1"
	apiURL   = "https://" + loopback + ":6443"
	// Ports on which kube-controller-manager and kube-scheduler tell how they are.
	managerPort   = "10257"
	schedulerPort = "10259"
	issuerURL     = "https://kubernetes.default.svc." + layout.Domain

	manager = "kube-controller-manager"
)

// plane is a control plane of Kubernetes' own programs, started as anybody would start them.
type plane struct {
	version    string // that the programs are of
	emulated   string // that they do as if they were of; empty for their own
	dir        string
	ca         *pki.Authority
	supervisor *supervise.Supervisor
	config     *rest.Config
	client     kubernetes.Interface
	managers   int // how many kube-controller-managers there were
}

// startPlane starts a control plane without a StatefulSet controller, which ends with the test.
func startPlane(t *testing.T, version, emulated string) *plane {
	t.Helper()
	dir := filepath.Join(home.dir, strings.ReplaceAll(t.Name(), "/", "-"))
	p := &plane{version: version, emulated: emulated, dir: dir, supervisor: supervise.New(nil)}
	if err := errors.Join(os.Mkdir(p.dir, 0o700), os.MkdirAll(p.log(""), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := p.issue(time.Now()); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	p.config = config
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	for _, process := range []supervise.Process{p.etcd(), p.apiServer(), p.scheduler()} {
		p.start(t, process)
	}
	return p
}

func (p *plane) start(t *testing.T, process supervise.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, fmt.Errorf("it is not ready within %s", patience))
	defer cancel()
	if err := p.supervisor.Start(ctx, process); err != nil {
		t.Fatalf("start %s: %v", process.Name, err)
	}
}

// stop ends all processes, the last to start first.
func (p *plane) stop() {
	for _, status := range slices.Backward(p.supervisor.Statuses()) {
		p.supervisor.Stop(status.Name)
	}
}

// manage starts kube-controller-manager with the controllers that a flag names, in the place of the one that runs.
func (p *plane) manage(t *testing.T, controllers string) {
	t.Helper()
	if p.managers > 0 {
		p.supervisor.Stop(fmt.Sprintf("%s-%d", manager, p.managers))
	}
	p.managers++
	p.start(t, p.controllerManager(controllers))
}

func (p *plane) file(name string) string       { return filepath.Join(p.dir, name) }
func (p *plane) kubeconfig(user string) string { return p.file(user + ".kubeconfig") }
func (p *plane) log(name string) string {
	return filepath.Join(home.dir, "log", filepath.Base(p.dir), name)
}

// issue makes the keys: authorities, what each server shows, and as whom each client comes.
func (p *plane) issue(now time.Time) error {
	ca, err := pki.LoadAuthority(p.file("ca"), now)
	if err != nil {
		return err
	}
	front, err := pki.LoadAuthority(p.file("front-proxy-ca"), now)
	if err != nil {
		return err
	}
	p.ca = ca
	_, err = pki.LoadOrMakeKey(p.file("service-account.key"))
	errs := []error{err}
	pair := func(authority *pki.Authority, name string, s pki.Subject) {
		pair, err := authority.Issue(s, now)
		errs = append(errs, err, pair.Write(p.file(name)))
	}
	here := []net.IP{net.ParseIP(loopback), net.ParseIP(layout.NodeIP)}
	pair(ca, "apiserver", pki.Subject{
		User: "kube-apiserver", Names: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPs: append(here, layout.ServiceIP(1).AsSlice()),
	})
	pair(ca, "server", pki.Subject{User: "server", Names: []string{"localhost", realNode}, IPs: here})
	pair(ca, "etcd-client", pki.Subject{User: "kube-apiserver"})
	pair(ca, "kubelet-client", pki.Subject{User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}})
	pair(front, "front-proxy-client", pki.Subject{User: "front-proxy-client"})
	for name, s := range map[string]pki.Subject{
		"admin":          {User: "platform-team", Groups: []string{"system:masters"}},
		manager:          {User: "system:kube-controller-manager"},
		"kube-scheduler": {User: "system:kube-scheduler"},
		"kube-proxy":     {User: "system:kube-proxy"},
		"kubelet":        {User: "system:node:" + realNode, Groups: []string{"system:nodes"}},
	} {
		pair, err := ca.Issue(s, now)
		errs = append(errs, err, pki.WriteKubeconfig(p.kubeconfig(name), apiURL, ca, pair))
	}
	return errors.Join(errs...)
}

// process is a program of Kubernetes, which logs into a file.
func (p *plane) process(name, program string, ready func(context.Context) error, flags ...string) supervise.Process {
	file := p.log(name + ".log")
	return supervise.Process{
		Name: name, Path: program, Args: flags, Ready: ready, Grace: 10 * time.Second, Log: servers.NewLogFile(file), LogFile: file,
	}
}

func (p *plane) program(name string) string {
	return filepath.Join(home.bin, "foreign", p.version, name)
}

func (p *plane) etcd() supervise.Process {
	const client, peer = "https://" + loopback + ":2379", "http://" + loopback + ":2380"
	ready := func(ctx context.Context) error { return p.answers(ctx, client+"/health", "etcd-client") }
	return p.process("etcd", filepath.Join(home.bin, "foreign", "etcd"), ready,
		"--data-dir="+p.file("etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--cert-file="+p.file("server.crt"), "--key-file="+p.file("server.key"),
		"--client-cert-auth", "--trusted-ca-file="+p.file("ca.crt"),
		// Nobody will look for this data after a power failure.
		"--unsafe-no-fsync",
	)
}

func (p *plane) apiServer() supervise.Process {
	ready := func(ctx context.Context) error {
		return p.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	return p.process("kube-apiserver", p.program("kube-apiserver"), ready, p.emulating(
		"--advertise-address="+layout.NodeIP,
		"--etcd-servers=https://"+loopback+":2379",
		"--etcd-cafile="+p.file("ca.crt"), "--etcd-certfile="+p.file("etcd-client.crt"), "--etcd-keyfile="+p.file("etcd-client.key"),
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--tls-cert-file="+p.file("apiserver.crt"), "--tls-private-key-file="+p.file("apiserver.key"),
		"--client-ca-file="+p.file("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-certificate-authority="+p.file("ca.crt"),
		"--kubelet-client-certificate="+p.file("kubelet-client.crt"), "--kubelet-client-key="+p.file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer="+issuerURL,
		"--service-account-key-file="+p.file("service-account.key"),
		"--service-account-signing-key-file="+p.file("service-account.key"),
		"--requestheader-client-ca-file="+p.file("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+p.file("front-proxy-client.crt"), "--proxy-client-key-file="+p.file("front-proxy-client.key"),
	)...)
}

func (p *plane) controllerManager(controllers string) supervise.Process {
	ready := func(ctx context.Context) error {
		if err := p.answers(ctx, "https://"+loopback+":"+managerPort+"/healthz", ""); err != nil {
			return err
		}
		_, err := p.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	name := fmt.Sprintf("%s-%d", manager, p.managers)
	return p.process(name, p.program(manager), ready, p.emulating(p.serving(manager, managerPort,
		"--controllers="+controllers,
		"--use-service-account-credentials=true",
		"--root-ca-file="+p.file("ca.crt"),
		"--service-account-private-key-file="+p.file("service-account.key"),
		"--cluster-signing-cert-file="+p.file("ca.crt"), "--cluster-signing-key-file="+p.file("ca.key"),
		// By default it binds four claims a second.
		"--kube-api-qps=1000", "--kube-api-burst=1000",
	)...)...)
}

func (p *plane) scheduler() supervise.Process {
	ready := func(ctx context.Context) error {
		return p.answers(ctx, "https://"+loopback+":"+schedulerPort+"/healthz", "")
	}
	return p.process("kube-scheduler", p.program("kube-scheduler"), ready,
		p.emulating(p.serving("kube-scheduler", schedulerPort, "--kube-api-qps=1000", "--kube-api-burst=1000")...)...)
}

// serving adds the flags of a program that works through the API server and tells on a port how it is. There is one of each, which
// need not wait until a lease runs out.
func (p *plane) serving(user, port string, flags ...string) []string {
	kubeconfig := p.kubeconfig(user)
	return append(flags,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--secure-port="+port, "--tls-cert-file="+p.file("server.crt"), "--tls-private-key-file="+p.file("server.key"),
		"--leader-elect=false",
	)
}

// emulating adds the flag that makes a program do as an older one.
func (p *plane) emulating(flags ...string) []string {
	if p.emulated == "" {
		return flags
	}
	return append(flags, "--emulated-version="+p.emulated)
}

// answers tells whether a server of ours says that all is well. It is asked with a client certificate, if one is named.
func (p *plane) answers(ctx context.Context, url, pair string) error {
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(p.ca.Certificate)
	if pair != "" {
		certificate, err := tls.LoadX509KeyPair(p.file(pair+".crt"), p.file(pair+".key"))
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return err
}
