// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// outage is how long the API fails.
const outage = time.Minute

// A minute in which every request fails in one of many ways, some of them after they were carried out.
func TestAPIFails(t *testing.T) {
	seed := newSeed(t)
	c := newCluster(t, "--simulate", "--nodes", "2", "--pod-delay", "200ms")
	c.up()
	p := newProxy(c, seed)
	t.Cleanup(c.freezeController())
	c.runController(p.kubeconfig())
	w := newWalk(c, seed, false)
	w.begin()
	w.pause(5 * time.Second)
	p.breakDown()
	w.pause(outage)
	failed := p.mend()
	t.Logf("%d requests failed in %v", failed, outage)
	if failed < 20 {
		t.Errorf("the controller asked only %d times while the API failed", failed)
	}
	// It may have to wait for the end of a pause between two attempts, but not for long.
	w.settle(30 * time.Second)
	w.checkCalm()
}

// runController runs a controller that takes the place of the cluster's own.
func (c *cluster) runController(kubeconfig string) {
	c.Helper()
	cmd := c.command(c.Context(), layout.Controller, "--kubeconfig="+kubeconfig, "--leader-elect=false")
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		if err := cmd.Wait(); c.Context().Err() == nil {
			c.Errorf("the controller ended: %v", err)
		}
	}()
	c.Cleanup(func() {
		_ = cmd.Process.Kill() // The test's end has killed it before.
		<-exited
	})
}

// proxy is between a controller and the API server, and lets requests fail when it is told to.
type proxy struct {
	*cluster
	server  *httptest.Server
	forward http.Handler

	mu     sync.Mutex
	random *rand.Rand
	broken bool
	failed int
	// cut is closed to end the requests that go on: the watches.
	cut chan struct{}
}

func newProxy(c *cluster, seed uint64) *proxy {
	c.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.data.ComponentKubeconfig(ownController))
	if err != nil {
		c.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		c.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		c.Fatal(err)
	}
	p := &proxy{cluster: c, random: rand.New(rand.NewPCG(seed, 2)), cut: make(chan struct{})}
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the client sees its connection break
		},
	}
	p.server = httptest.NewServer(p)
	c.Cleanup(func() {
		p.breakDown() // it waits for the requests that go on
		p.server.Close()
	})
	return p
}

// kubeconfig is a file with which a client speaks to the proxy.
func (p *proxy) kubeconfig() string {
	p.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	file := filepath.Join(p.T.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		p.Fatal(err)
	}
	return file
}

// breakDown ends what goes on and lets all that follows fail.
func (p *proxy) breakDown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	close(p.cut)
	p.cut = make(chan struct{})
}

// mend lets requests pass again, and gives how many have failed.
func (p *proxy) mend() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = false
	return p.failed
}

// fate is what becomes of a request.
func (p *proxy) fate() (way int, cut <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.broken {
		return -1, p.cut
	}
	p.failed++
	return p.random.IntN(6), p.cut
}

// ServeHTTP passes a request on, or lets it fail.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	way, cut := p.fate()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-cut:
			cancel()
		case <-ctx.Done():
		}
	}()
	r = r.WithContext(ctx)
	switch way {
	case -1:
		p.forward.ServeHTTP(w, r)
	case 0:
		http.Error(w, "the datastore is away", http.StatusInternalServerError)
	case 1:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	case 2:
		http.Error(w, "no server behind the balancer", http.StatusServiceUnavailable)
	case 3:
		panic(http.ErrAbortHandler) // dropped before it was carried out
	case 4:
		if r.Method != http.MethodGet {
			p.forward.ServeHTTP(httptest.NewRecorder(), r)
		}
		panic(http.ErrAbortHandler) // the answer is lost
	default:
		select { // slow, and an error at last
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
		http.Error(w, "timeout", http.StatusGatewayTimeout)
	}
}

func TestProxyBreaksDown(t *testing.T) {
	answers := 0
	behind := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answers++ }))
	defer behind.Close()
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		cluster: &cluster{T: t}, random: rand.New(rand.NewPCG(1, 2)), cut: make(chan struct{}), forward: httputil.NewSingleHostReverseProxy(target),
	}
	server := httptest.NewServer(p)
	defer server.Close()
	ask := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		return errors.Join(err, answer.Body.Close())
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	p.breakDown()
	for range 8 {
		if ask() == nil {
			t.Error("a request passed")
		}
	}
	if failed := p.mend(); failed < 8 {
		t.Errorf("%d have failed", failed)
	}
	if err := ask(); err != nil || answers != 2 {
		t.Errorf("%v; %d requests came through, want 2", err, answers)
	}
}

// blackHole is a server that takes connections and never says anything.
func blackHole(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var taken []net.Conn
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			taken = append(taken, conn)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
		for _, conn := range taken {
			_ = conn.Close()
		}
	})
	return fmt.Sprintf("https://%s", listener.Addr())
}
