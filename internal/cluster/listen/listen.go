// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package listen accepts connections on several addresses as one listener.
package listen

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"
)

// acceptPause is waited after a connection could not be accepted.
const acceptPause = 50 * time.Millisecond

// joined accepts from several listeners as one.
type joined struct {
	listeners []net.Listener
	accepted  chan net.Conn
	closed    chan struct{}
	close     func() error
}

// All listens on all addresses at one port.
func All(ctx context.Context, addresses []string, port int) (net.Listener, error) {
	j := &joined{accepted: make(chan net.Conn), closed: make(chan struct{})}
	for _, address := range addresses {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			return nil, errors.Join(err, closeAll(j.listeners))
		}
		j.listeners = append(j.listeners, listener)
	}
	if len(j.listeners) == 0 {
		return nil, errors.New("no address to listen on: give --listen")
	}
	j.close = sync.OnceValue(func() error {
		close(j.closed)
		return closeAll(j.listeners)
	})
	for _, listener := range j.listeners {
		go j.serve(listener)
	}
	return j, nil
}

func (j *joined) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Too many open files, say: it passes, and until then there is no point in asking again at once.
			select {
			case <-time.After(acceptPause):
				continue
			case <-j.closed:
				return
			}
		}
		select {
		case j.accepted <- conn:
		case <-j.closed:
			_ = conn.Close()
			return
		}
	}
}

// Accept waits for the next connection on any of the addresses.
func (j *joined) Accept() (net.Conn, error) {
	select {
	case conn := <-j.accepted:
		return conn, nil
	case <-j.closed:
		return nil, net.ErrClosed
	}
}

// Close stops listening on all addresses.
func (j *joined) Close() error { return j.close() }

// Addr is the first address.
func (j *joined) Addr() net.Addr { return j.listeners[0].Addr() }

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, listener := range listeners {
		errs = append(errs, listener.Close())
	}
	return errors.Join(errs...)
}
