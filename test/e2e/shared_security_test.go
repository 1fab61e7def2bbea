// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// nodeIP is the address of the pod bridge.
const nodeIP = "10.85.0.1"

// Nothing of the cluster can be reached from another machine.
func TestListensOnlyLocally(t *testing.T) {
	c := sharedCluster(t)
	var owned int
	for _, s := range hostSockets(t) {
		owned++
		if ip := s.address.Addr(); !ip.IsLoopback() && ip != netip.MustParseAddr(nodeIP) {
			t.Errorf("%s listens on %s %s", s.owner, s.protocol, s.address)
		}
	}
	// API server twice, kubelet, DNS on two protocols.
	if owned < 5 {
		t.Errorf("only %d sockets were found", owned)
	}
	for _, path := range []string{"/run/ordinal", c.data} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700: %v", path, info.Mode().Perm(), err)
		}
	}
}

// Whoever does not say who they are is refused, on every port that speaks HTTP.
func TestAnonymousIsRefused(t *testing.T) {
	c := sharedCluster(t)
	pool := x509.NewCertPool()
	authority, err := os.ReadFile(filepath.Join(c.data, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(authority)
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	api := strconv.Itoa(c.port)
	for _, url := range []string{
		"https://127.0.0.1:" + api + "/api", "https://127.0.0.1:" + api + "/version", "https://127.0.0.1:" + api + "/healthz",
		"https://127.0.0.1:" + api + "/apis/apps/v1/statefulsets", "https://" + nodeIP + ":" + api + "/api/v1/secrets",
		"https://" + nodeIP + ":10250/pods", "https://" + nodeIP + ":10250/metrics", "https://" + nodeIP + ":10250/healthz",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s answers a stranger with %s", url, response.Status)
		}
	}
}

// No TCP port of the host's parts speaks without TLS, but for DNS and health.
func TestSpeaksTLS(t *testing.T) {
	sharedCluster(t)
	for _, s := range hostSockets(t) {
		if s.protocol != "tcp" || s.address.Port() == 53 {
			continue
		}
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // any certificate will do: is it TLS at all?
		connection, err := dialer.DialContext(t.Context(), "tcp", s.address.String())
		if err == nil {
			connection.Close()
			continue
		}
		if !tellsOnlyHealth(t, s.address) {
			t.Errorf("%s serves %s without TLS: %v", s.owner, s.address, err)
		}
	}
}

// tellsOnlyHealth tells whether a port without TLS is a health check: it knows /healthz and neither metrics nor profiles.
func tellsOnlyHealth(t *testing.T, address netip.AddrPort) bool {
	t.Helper()
	code := func(path string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	return address.Addr().IsLoopback() && code("/healthz") == http.StatusOK && code("/metrics") == http.StatusNotFound && code("/debug/pprof/") == http.StatusNotFound
}

// Keys and what else gives power over the cluster can be read by root alone.
func TestSecretsArePrivate(t *testing.T) {
	c := sharedCluster(t)
	secret := regexp.MustCompile(`PRIVATE KEY|client-key-data`)
	var found []string
	err := filepath.WalkDir(c.data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // files come and go under the walk
		}
		if entry.IsDir() && slices.Contains([]string{"containerd", "volumes", "pods", "log", "etcd"}, entry.Name()) {
			return fs.SkipDir
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil || !secret.Match(content) {
			return err
		}
		found = append(found, path)
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600: %v", path, info.Mode().Perm(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(found, c.kubeconfig) || len(found) < 5 {
		t.Errorf("only these secrets were found: %v", found)
	}
	if info, err := os.Stat(filepath.Join(c.data, "etcd")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the datastore has mode %v, want 0700: %v", info.Mode().Perm(), err)
	}
}

// socket is one on which a process of the cluster takes what comes.
type socket struct {
	protocol string
	address  netip.AddrPort
	owner    string
}

// hostSockets are the sockets in the host's network on which the cluster's processes listen.
func hostSockets(t *testing.T) []socket {
	t.Helper()
	owners := map[string]string{}
	for _, p := range processes() {
		fds := fmt.Sprintf("/proc/%d/fd", p.pid)
		for _, fd := range children(fds) {
			if target, err := os.Readlink(filepath.Join(fds, fd)); err == nil {
				owners[target] = strings.Join(p.args, " ")
			}
		}
	}
	var found []socket
	for file, listening := range map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"} {
		table, err := os.ReadFile("/proc/self/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			fields := strings.Fields(line)
			owner, ours := owners["socket:["+fields[min(9, len(fields)-1)]+"]"]
			if !ours || fields[3] != listening {
				continue
			}
			found = append(found, socket{protocol: strings.TrimSuffix(file, "6"), address: parseAddress(t, fields[1]), owner: owner})
		}
	}
	return found
}

// parseAddress reads ADDRESS:PORT as the kernel writes it: words of four bytes in the byte order of the machine.
func parseAddress(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	address, port, _ := strings.Cut(text, ":")
	words, err := hex.DecodeString(address)
	if err != nil {
		t.Fatal(err)
	}
	ip := make(net.IP, 0, len(words))
	for word := range slices.Chunk(words, 4) {
		ip = binary.BigEndian.AppendUint32(ip, binary.NativeEndian.Uint32(word))
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), uint16(number))
}
