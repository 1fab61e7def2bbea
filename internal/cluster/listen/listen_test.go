// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"errors"
	"io"
	"net"
	"testing"
)

func TestAcceptsOnEveryAddress(t *testing.T) {
	listener, err := All(t.Context(), []string{"127.0.0.1", "127.0.0.2"}, freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, conn.LocalAddr().String())
			_ = conn.Close()
		}
	}()
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		address := net.JoinHostPort(host, port)
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(conn); err != nil || string(answer) != address {
			t.Errorf("%s answered %q, %v", address, answer, err)
		}
	}
	if conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.3", port)); err == nil {
		_ = conn.Close()
		t.Error("an address that was not asked for accepts connections")
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close gives %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Errorf("a second Close gives %v", err)
	}
}

func TestTakenAddressLeavesNothingOpen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	if _, err := All(t.Context(), []string{"127.0.0.1", "127.0.0.2"}, port); err == nil {
		t.Fatal("listening on a taken address went well")
	}
	if again, err := All(t.Context(), []string{"127.0.0.1"}, port); err != nil {
		t.Errorf("the other address is still open: %v", err)
	} else {
		_ = again.Close()
	}
}

func TestNoAddressIsRefused(t *testing.T) {
	if _, err := All(t.Context(), nil, 0); err == nil {
		t.Error("listening nowhere went well")
	}
}

// freePort is a port that nobody has on any of the addresses, as far as one can tell.
func freePort(t *testing.T) int {
	t.Helper()
	probe, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = probe.Close() }()
	return probe.Addr().(*net.TCPAddr).Port
}
