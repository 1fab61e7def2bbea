// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// runAPIServer is kube-apiserver with one flag more, --listen: it serves on several addresses, where the original serves
// either on one or on all. Users reach it on loopback, pods on the bridge, nobody from outside.
func runAPIServer(args []string) int {
	ctx := genericapiserver.SetupSignalContext()
	server := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	named := server.Flags()
	for _, set := range named.FlagSets {
		flags.AddFlagSet(set)
	}
	addresses := flags.StringSlice("listen", nil, "addresses to serve on, all at --secure-port")
	if err := flags.Parse(args); err != nil {
		return exitCode(err)
	}
	logs.InitLogs()
	return exitCode(serveAPI(ctx, server, *addresses))
}

func serveAPI(ctx context.Context, server *options.ServerRunOptions, addresses []string) error {
	registry := server.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	if err := logsapi.ValidateAndApply(server.Logs, registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return err
	}
	listener, err := listenAll(addresses, server.SecureServing.BindPort)
	if err != nil {
		return err
	}
	server.SecureServing.Listener = listener
	completed, err := server.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	registry.AddMetrics()
	return app.Run(ctx, completed)
}

// acceptPause is waited after a connection could not be accepted.
const acceptPause = 50 * time.Millisecond

// joined accepts from several listeners as one.
type joined struct {
	listeners []net.Listener
	accepted  chan net.Conn
	closed    chan struct{}
	close     func() error
}

// listenAll listens on all addresses at one port.
func listenAll(addresses []string, port int) (net.Listener, error) {
	j := &joined{accepted: make(chan net.Conn), closed: make(chan struct{})}
	for _, address := range addresses {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
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
