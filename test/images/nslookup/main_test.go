// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// zone is what the test's name server knows.
var zone = map[uint16][]string{
	dns.TypeA:   {"web-1.web. 5 IN A 10.0.0.7", "web.test. 5 IN A 10.0.0.7"},
	dns.TypeSRV: {"web.test. 5 IN SRV 0 100 80 web-0.web.test.", "web.test. 5 IN SRV 0 100 80 web-1.web.test."},
	dns.TypePTR: {"7.0.0.10.in-addr.arpa. 5 IN PTR web-1.web.test."},
}

// serve starts a name server and gives its address.
func serve(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(answer)}
	served := make(chan error, 1)
	go func() { served <- server.ActivateAndServe() }()
	t.Cleanup(func() {
		_ = conn.Close()
		if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("name server: %v", err)
		}
	})
	return conn.LocalAddr().String()
}

func answer(w dns.ResponseWriter, request *dns.Msg) {
	reply := new(dns.Msg)
	reply.SetRcode(request, dns.RcodeNameError)
	for kind, records := range zone {
		for _, text := range records {
			record, err := dns.NewRR(text)
			if err != nil {
				panic(err)
			}
			if !strings.EqualFold(record.Header().Name, request.Question[0].Name) {
				continue
			}
			reply.Rcode = dns.RcodeSuccess
			if kind == request.Question[0].Qtype {
				reply.Answer = append(reply.Answer, record)
			}
		}
	}
	_ = w.WriteMsg(reply)
}

func TestLookup(t *testing.T) {
	server := serve(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"addresses":       {[]string{"web-1.web."}, "Name:      web-1.web.\nAddress 1: 10.0.0.7 web-1.web.test\n"},
		"name of address": {[]string{"10.0.0.7"}, "Name:      10.0.0.7\nAddress 1: 10.0.0.7 web-1.web.test\n"},
		"unnamed address": {[]string{"10.0.0.8"}, "Name:      10.0.0.8\nAddress 1: 10.0.0.8\n"},
		"services": {
			[]string{"-type=SRV", "web.test."},
			"web.test.\tservice = 0 100 80 web-0.web.test\nweb.test.\tservice = 0 100 80 web-1.web.test\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := run(t.Context(), &out, append(c.args, server)); err != nil {
				t.Fatal(err)
			}
			_, got, _ := strings.Cut(out.String(), "\n\n")
			if inOrder(got) != inOrder(c.want) {
				t.Errorf("output:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

// inOrder sorts lines of equal priority and weight, which a resolver shuffles.
func inOrder(text string) string {
	lines := strings.Split(text, "\n")
	if len(lines) > 1 && strings.Contains(text, "service") && lines[0] > lines[1] {
		lines[0], lines[1] = lines[1], lines[0]
	}
	return strings.Join(lines, "\n")
}

func TestLookupFails(t *testing.T) {
	server := serve(t)
	for want, args := range map[string][]string{
		"can't resolve 'nope.'":     {"nope.", server},
		"can't resolve 'nope.srv.'": {"-type=srv", "nope.srv.", server},
		`type "mx" is not known`:    {"-type=mx", "web.test.", server},
		"usage":                     {},
	} {
		var out strings.Builder
		if err := run(t.Context(), &out, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("run %q: %v, want %q", args, err, want)
		}
	}
}

func TestConfiguredServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("# first\nsearch a b\nnameserver 10.85.0.1\nnameserver 9.9.9.9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := configuredServer(file); got != "10.85.0.1" {
		t.Errorf("server = %s, want the first", got)
	}
	if got := configuredServer(file + ".missing"); got != "127.0.0.1" {
		t.Errorf("server = %s without a file, want this host", got)
	}
}
