// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func TestAuthorityOutlivesItsProcess(t *testing.T) {
	base := filepath.Join(t.TempDir(), "ca")
	now := time.Now()
	made, err := LoadAuthority(base, now)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadAuthority(base, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if !made.Certificate.Equal(loaded.Certificate) {
		t.Error("a second load made another authority")
	}
	pair, err := loaded.Issue(Subject{User: "u", Groups: []string{"g"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf := parse(t, pair.Certificate)
	if leaf.Subject.CommonName != "u" || leaf.Subject.Organization[0] != "g" {
		t.Errorf("subject is %v", leaf.Subject)
	}
	verify(t, made, leaf, x509.ExtKeyUsageClientAuth)
}

func TestSecretsAreForRootAlone(t *testing.T) {
	dir := t.TempDir()
	ca, err := LoadAuthority(filepath.Join(dir, "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Subject{User: "u"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		pair.Write(filepath.Join(dir, "leaf")),
		WriteKubeconfig(filepath.Join(dir, "kubeconfig"), "https://127.0.0.1:1", ca, pair),
	); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 5 {
		t.Fatalf("found %d files, want 5 (error %v)", len(entries), err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", entry.Name(), info.Mode())
		}
	}
}

func TestServerCertificateServesItsNames(t *testing.T) {
	ca, err := LoadAuthority(filepath.Join(t.TempDir(), "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Subject{User: "s", Names: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		t.Fatal(err)
	}
	leaf := parse(t, pair.Certificate)
	verify(t, ca, leaf, x509.ExtKeyUsageServerAuth)
	if err := errors.Join(leaf.VerifyHostname("localhost"), leaf.VerifyHostname("127.0.0.1")); err != nil {
		t.Error(err)
	}
	if leaf.VerifyHostname("example.org") == nil {
		t.Error("the certificate serves a name that it was not issued for")
	}
}

func TestDamagedAuthorityIsKept(t *testing.T) {
	for name, damage := range map[string]struct{ file, content string }{
		"certificate cut off": {"ca.crt", "-----BEGIN CERTIFICATE-----\nMIIB"},
		"certificate empty":   {"ca.crt", ""},
		"key is garbage":      {"ca.key", "garbage"},
	} {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join(t.TempDir(), "ca")
			if _, err := LoadAuthority(base, time.Now()); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(filepath.Dir(base), damage.file)
			if err := os.WriteFile(file, []byte(damage.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := LoadAuthority(base, time.Now())
			if found, ok := errors.AsType[*DamagedError](err); !ok || found.File != file {
				t.Fatalf("error is %v, want one that names %s", err, file)
			}
			if content, _ := os.ReadFile(file); string(content) != damage.content {
				t.Error("the damaged file was replaced")
			}
		})
	}
}

func TestForeignKeyIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if _, err := LoadAuthority(filepath.Join(dir, name), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "b.key"), filepath.Join(dir, "a.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadAuthority(filepath.Join(dir, "a"), time.Now()); err == nil || !strings.Contains(err.Error(), "a.key is damaged") {
		t.Errorf("error is %v", err)
	}
}

func TestHalfMadeAuthorityIsMadeAgain(t *testing.T) {
	base := filepath.Join(t.TempDir(), "ca")
	if _, err := LoadAuthority(base, time.Now()); err != nil {
		t.Fatal(err)
	}
	// A crash between the key and the certificate, which is written last.
	if err := os.Remove(base + ".crt"); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadAuthority(base, time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := LoadAuthority(base, time.Now()); err != nil {
		t.Error(err)
	}
}

// A certificate lasts for five years from the start that issued it, however old its authority is: one that would end earlier is
// replaced.
func TestCertificatesAreRenewedBeforeTheyExpire(t *testing.T) {
	const year = 365 * 24 * time.Hour
	base := filepath.Join(t.TempDir(), "ca")
	made := time.Now()
	first, err := LoadAuthority(base, made)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age     time.Duration
		renewed bool
	}{{year, false}, {15*year - time.Hour, false}, {15*year + time.Hour, true}, {30 * year, true}, {100 * year, true}} {
		now := made.Add(c.age)
		ca, err := LoadAuthority(base, now)
		if err != nil {
			t.Fatal(err)
		}
		if renewed := !ca.Certificate.Equal(first.Certificate); renewed != c.renewed {
			t.Errorf("after %s, the authority is another: %t", c.age, renewed)
		}
		pair, err := ca.Issue(Subject{User: "u"}, now)
		if err != nil {
			t.Fatal(err)
		}
		leaf := parse(t, pair.Certificate)
		for _, at := range []time.Time{now, now.Add(5*year - time.Minute)} {
			roots := x509.NewCertPool()
			roots.AddCert(ca.Certificate)
			o := x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
			if _, err := leaf.Verify(o); err != nil {
				t.Errorf("issued after %s, it does not hold at %s: %v", c.age, at, err)
			}
		}
		again, err := LoadAuthority(base, now)
		if err != nil || !again.Certificate.Equal(ca.Certificate) {
			t.Errorf("after %s, the authority is not kept: %v", c.age, err)
		}
	}
}

func TestKubeconfigWorksAndIsKnownAsOurs(t *testing.T) {
	dir := t.TempDir()
	ca, err := LoadAuthority(filepath.Join(dir, "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Subject{User: "u"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kubeconfig")
	if err := WriteKubeconfig(file, "https://127.0.0.1:6443", ca, pair); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:6443" || !bytes.Equal(config.CAData, ca.PEM()) {
		t.Errorf("config is for %s", config.Host)
	}
	if ours, err := IsOurs(file); err != nil || !ours {
		t.Errorf("IsOurs gives %t, %v", ours, err)
	}
	foreign := filepath.Join(dir, "foreign")
	content, _ := os.ReadFile(file)
	if err := os.WriteFile(foreign, []byte(strings.ReplaceAll(string(content), "ordinal", "production")), 0o600); err != nil {
		t.Fatal(err)
	}
	if ours, err := IsOurs(foreign); err != nil || ours {
		t.Errorf("IsOurs of somebody's own kubeconfig gives %t, %v", ours, err)
	}
}

func parse(t *testing.T, certificate []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certificate)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func verify(t *testing.T, ca *Authority, leaf *x509.Certificate, usage x509.ExtKeyUsage) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		t.Error(err)
	}
}
