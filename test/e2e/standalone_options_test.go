// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
)

// Names outside the cluster are asked of the host's name server.
func TestForwardsNames(t *testing.T) {
	c := ownCluster(t)
	resolver := filepath.Join(c.dir, "resolv.conf")
	if err := os.WriteFile(resolver, []byte("nameserver "+serveNames(t, "host.test.", "192.0.2.7")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	others := map[string]string{"/etc/resolv.conf": resolver}
	if systemd := "/run/systemd/resolve/resolv.conf"; exists(systemd) {
		others[systemd] = resolver
	}
	if err := finish(c.onChangedHost(t.Context(), others, c.upArgs()...)).err(); err != nil {
		t.Fatal(err)
	}
	if err := c.importImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t, c)
	s.asker("")
	if got, want := s.addresses("host.test"), []string{"192.0.2.7"}; !slices.Equal(got, want) {
		t.Errorf("host.test is at %v, want %v", got, want)
	}
	if got := s.addresses("other.test"); len(got) > 0 {
		t.Errorf("other.test is at %v, and nobody knows it", got)
	}
	if got := s.addresses("kubernetes.default"); len(got) != 1 {
		t.Errorf("kubernetes.default is at %v", got)
	}
}

// serveNames starts a name server that knows one name, and gives its address; its port is 53.
func serveNames(t *testing.T, name, address string) string {
	t.Helper()
	const at = "127.0.5.3"
	server, err := net.ListenPacket("udp", at+":53")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			n, client, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var query dnsmessage.Message
			if query.Unpack(buffer[:n]) != nil || len(query.Questions) != 1 {
				continue
			}
			reply, err := answerTo(query, name, netip.MustParseAddr(address)).Pack()
			if err == nil {
				_, _ = server.WriteTo(reply, client) // who is gone does not want it
			}
		}
	}()
	return at
}

// answerTo answers a query for the one name that is known.
func answerTo(query dnsmessage.Message, name string, address netip.Addr) *dnsmessage.Message {
	question := query.Questions[0]
	reply := &dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, RecursionDesired: query.RecursionDesired, RecursionAvailable: true},
		Questions: query.Questions,
	}
	switch {
	case !strings.EqualFold(question.Name.String(), name):
		reply.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 5},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	return reply
}

// --strict-storage-classes leaves claims pending whose class nobody defined, and --kubeconfig writes the kubeconfig elsewhere.
func TestUpOptions(t *testing.T) {
	c := ownCluster(t)
	c.kubeconfig = filepath.Join(c.dir, "kube", "config")
	foreign := filepath.Join(c.dir, "foreign")
	const others = "apiVersion: v1\nkind: Config\nclusters:\n- name: other\n  cluster: {server: https://other.test}\n"
	if err := os.WriteFile(foreign, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	checkRefusal(t, c.run(t.Context(), c.upArgs("--kubeconfig", foreign)...), `foreign`, `--kubeconfig`)
	if content, err := os.ReadFile(foreign); err != nil || string(content) != others {
		t.Errorf("somebody's kubeconfig was changed to %q: %v", content, err)
	}

	c.mustStart(t, "--strict-storage-classes", "--kubeconfig", c.kubeconfig)
	if err := c.importImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(c.kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %v, want 0600: %v", info.Mode(), err)
	}
	s := newSpace(t, c)
	s.apply(webManifests)
	story := s.watchPods()
	s.eventually(patience, "the first pod waits for its claim", func() error {
		events := s.kubectl("get", "events", "--field-selector=involvedObject.kind=PersistentVolumeClaim")
		if len(s.pods()) != 1 || !strings.Contains(events, className) {
			return fmt.Errorf("pods are %v, the claims' events\n%s", names(s.pods()), events)
		}
		return nil
	})
	s.throughout(3*time.Second, "nobody serves the claim", func() error {
		claim := s.claims()["www-web-0"]
		if claim.Status.Phase != corev1.ClaimPending || *claim.Spec.StorageClassName != className {
			return fmt.Errorf("it is %s, of class %s", claim.Status.Phase, *claim.Spec.StorageClassName)
		}
		return nil
	})
	s.apply(strings.ReplaceAll(missingClass, "NAME", className))
	story.await(0, "web-2", ready)
}

// missingClass is the class that was missing.
const missingClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: NAME
provisioner: ordinal.dev/local
volumeBindingMode: WaitForFirstConsumer
`
