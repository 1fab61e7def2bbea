// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// serviceIP is the address of the API server's Service.
const serviceIP = "10.86.0.1"

// accountDir is where a pod finds its service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount/"

// From a pod's network nobody gets anything of the API server or the kubelet who does not say who they are; and a pod that does, by
// its service account, may do no more than any service account without rights.
func TestPodsGetNothingWithoutCredentials(t *testing.T) {
	s := onShared(t)
	s.asker("sleep 1000001")
	network := networkOf(t, "sleep 1000001")
	token := strings.TrimSpace(s.kubectl("exec", "asker", "--", "cat", accountDir+"token"))
	client := network.client(t, []byte(s.kubectl("exec", "asker", "--", "cat", accountDir+"ca.crt")))
	api := "https://" + net.JoinHostPort(nodeIP, strconv.Itoa(s.cluster.port))
	for _, c := range []struct {
		url       string
		withToken int
	}{
		{api + "/api/v1/namespaces/" + s.name + "/secrets", http.StatusForbidden},
		{api + "/api/v1/namespaces/kube-system/secrets", http.StatusForbidden},
		{api + "/apis/apps/v1/statefulsets", http.StatusForbidden},
		{api + "/api/v1/nodes/ordinal/proxy/pods", http.StatusForbidden},
		{api + "/version", http.StatusOK},
		{"https://" + serviceIP + "/api/v1/pods", http.StatusForbidden},
		{"https://" + serviceIP + "/healthz", http.StatusOK},
		{"https://" + nodeIP + ":10250/pods", http.StatusForbidden},
		{"https://" + nodeIP + ":10250/metrics", http.StatusForbidden},
		{"https://" + nodeIP + ":10250/run/" + s.name + "/asker/asker?cmd=id", http.StatusForbidden},
	} {
		for sent, want := range map[string]int{"": http.StatusUnauthorized, "made up": http.StatusUnauthorized, token: c.withToken} {
			if got, err := ask(t.Context(), client, c.url, sent); err != nil || got != want {
				t.Errorf("%s with the token %.10q answers %d, want %d (%v)", c.url, sent, got, want, err)
			}
		}
	}
}

// From a pod's network, of the cluster's parts only API server, kubelet and DNS can be reached, by TCP or by what lies in its files.
func TestPodsReachNoOtherPart(t *testing.T) {
	s := onShared(t)
	s.asker("sleep 1000002")
	network := networkOf(t, "sleep 1000002")
	open := []uint16{53, 10250, uint16(s.cluster.port)} //nolint:gosec // It is a port.
	tried := 0
	for _, part := range hostSockets(t) {
		if part.protocol != "tcp" {
			continue
		}
		tried++
		to := netip.AddrPortFrom(netip.MustParseAddr(nodeIP), part.address.Port())
		conn, err := network.dial(t.Context(), to.String())
		if err == nil {
			conn.Close()
		}
		if want := slices.Contains(open, to.Port()); (err == nil) != want {
			t.Errorf("%s is reached at %s: %v, want %t", part.owner, to, err, want)
		}
	}
	// Those three, of which the API server has two sockets, and the two that serve on loopback alone.
	if tried < 6 {
		t.Errorf("only %d sockets were tried", tried)
	}
	if out := s.try("exec", "asker", "--", "ls", "/run/ordinal", s.cluster.data); !strings.Contains(out.stderr, "No such file") || out.stdout != "" {
		t.Errorf("a pod sees the cluster's files: %s", said(out))
	}
}

// Secrets are encrypted in the files of the datastore.
func TestSecretsAreEncrypted(t *testing.T) {
	s := onShared(t)
	s.kubectl("create", "secret", "generic", "word", "--from-literal=word=behind-the-seal")
	s.kubectl("create", "configmap", "word", "--from-literal=word=in-everybodys-view")
	for word, want := range map[string]bool{"behind-the-seal": false, "in-everybodys-view": true} {
		if got := holds(t, filepath.Join(s.cluster.data, "etcd"), word); got != want {
			t.Errorf("the datastore's files hold %s: %t, want %t", word, got, want)
		}
	}
	if out := s.kubectl("get", "secret", "word", "-o", "go-template={{.data.word|base64decode}}"); out != "behind-the-seal" {
		t.Errorf("the Secret reads %q", out)
	}
	for _, file := range []string{"pki/secrets.key", "config/encryption.yaml"} {
		if info, err := os.Stat(filepath.Join(s.cluster.data, file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is not for root alone: %v, %v", file, info, err)
		}
	}
}

// Where Pod Security admission refuses the pods of a template, no pod is made and the set tells why.
func TestPrivilegedPodsAreRefused(t *testing.T) {
	s := onShared(t)
	s.kubectl("label", "namespace", s.name, "pod-security.kubernetes.io/enforce=baseline")
	privileged := func(is bool) func(*appsv1.StatefulSet) {
		return func(set *appsv1.StatefulSet) {
			set.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &is}
		}
	}
	s.apply(webService())
	s.apply(s.webSet(replicas(1), withoutClaims, privileged(true)))
	s.eventually(patience, "the refusal is told", func() error {
		events := s.kubectl("get", "events", "--field-selector=reason=FailedCreate")
		why := s.cluster.run(t.Context(), "why", "-n", s.name, "web")
		for _, told := range []string{events, said(why)} {
			if !strings.Contains(told, "violates PodSecurity") || !strings.Contains(told, "privileged") {
				return errors.New(told)
			}
		}
		return nil
	})
	if pods := s.pods(); len(pods) != 0 {
		t.Errorf("there are pods: %v", names(pods))
	}
	s.apply(s.webSet(replicas(1), withoutClaims, privileged(false)))
	s.awaitReady(1)
}

// holds tells whether a word is in any file of a directory.
func holds(t *testing.T, dir, word string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(word))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// podNetwork is the network of a pod, as a file of the kernel's.
type podNetwork string

// networkOf finds the network of the pod in which a command line runs.
func networkOf(t *testing.T, line string) podNetwork {
	t.Helper()
	for _, p := range processes() {
		if strings.Join(p.args, " ") == line || slices.Contains(p.args, line) {
			return podNetwork(filepath.Join("/proc", strconv.Itoa(p.pid), "ns", "net"))
		}
	}
	t.Fatalf("no pod runs %q", line)
	return ""
}

// dial connects to an address, which must be a number, from the pod's network.
func (n podNetwork) dial(ctx context.Context, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The thread ends with the goroutine, as it is not unlocked: nobody else is ever in this network.
		runtime.LockOSThread()
		conn, err := n.dialHere(ctx, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// dialHere moves this thread to the pod's network and connects from there.
func (n podNetwork) dialHere(ctx context.Context, address string) (net.Conn, error) {
	file, err := os.Open(string(n))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the pod's network: %w", err)
	}
	inside := false
	dialer := net.Dialer{Timeout: 5 * time.Second, Control: func(string, string, syscall.RawConn) error {
		here, err := os.Readlink("/proc/thread-self/ns/net")
		there, thereErr := os.Readlink(string(n))
		inside = here == there
		return errors.Join(err, thereErr)
	}}
	conn, err := dialer.DialContext(ctx, "tcp4", address)
	if err == nil && !inside {
		conn.Close()
		return nil, errors.New("connected from another network than the pod's")
	}
	return conn, err
}

// client speaks HTTP from the pod's network to whom an authority vouches for.
func (n podNetwork) client(t *testing.T, authority []byte) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		t.Fatalf("no certificate: %q", authority)
	}
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return n.dial(ctx, address) },
	}}
}

// ask gives the status code of an answer.
func ask(ctx context.Context, client *http.Client, url, token string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
