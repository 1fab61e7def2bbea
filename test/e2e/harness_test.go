// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that should come "soon" on a busy two-core machine.
const patience = 90 * time.Second

// suite is what all tests share.
var suite struct {
	bin    string   // the directory of the built programs
	images []string // archives that every cluster gets
	before facts    // the host before the first cluster

	mu     sync.Mutex
	shared *cluster
	broken error               // why the shared cluster could not be started
	alive  map[*cluster]string // clusters to stop when the run is broken off, with their test
}

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err := prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "e2e cannot run:", err)
		os.Exit(1)
	}
	broken := context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "e2e: broken off, stopping what runs")
		if err := stopAll(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
		os.Exit(1)
	})
	code := m.Run()
	broken()
	stop()
	if err := stopAll(context.WithoutCancel(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// prepare says why the tests cannot run here, or gets what all of them need.
func prepare(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return errors.New("the cluster needs Linux, this is " + runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("the cluster needs root; run: make e2e (it asks sudo)")
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	suite.bin = filepath.Join(root, "bin")
	suite.alive = map[*cluster]string{}
	for _, name := range []string{"ordinal", "ordinal-controller", "containerd", "containerd-shim-runc-v2", "atmostone", "pause.tar", "visits.tar"} {
		if _, err := os.Stat(filepath.Join(suite.bin, name)); err != nil {
			return fmt.Errorf("bin/%s is missing: run make build first", name)
		}
	}
	if suite.before, err = inspect(ctx); err != nil {
		return err
	}
	for _, p := range everyProcess() {
		if filepath.Base(p.exe) == "ordinal" && slices.Contains(p.args, "up") {
			return fmt.Errorf("a cluster runs already, stop it first (ordinal down): %s", describe([]process{p}))
		}
	}
	suite.images, err = buildImages(ctx, root, filepath.Join(suite.bin, "testimages"))
	return err
}

// moduleRoot is the nearest directory above with a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		dir = filepath.Dir(dir)
	}
}

// buildImages gives the archives of the test images. They are built once, from packages of the distribution.
func buildImages(ctx context.Context, root, dir string) ([]string, error) {
	archives := []string{filepath.Join(suite.bin, "visits.tar")}
	missing := false
	for _, name := range []string{"busybox.tar", "nginx.tar", "nginx-1.17.tar", "redis.tar"} {
		archives = append(archives, filepath.Join(dir, name))
		missing = missing || !exists(filepath.Join(dir, name))
	}
	if !missing {
		return archives, nil
	}
	build := exec.CommandContext(ctx, "go", "run", "-buildvcs=false", "./test/images", "-out", dir)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the test images: %w\n%s", err, out)
	}
	return archives, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// onShared gives a namespace of the shared cluster, which is started by the first test that wants it. It goes with the test.
func onShared(t *testing.T) *space {
	t.Helper()
	s := newSpace(t, sharedCluster(t))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			s.cluster.dump(ctx, t)
		}
		s.cluster.run(ctx, "kubectl", "delete", "namespace", s.name, "--wait=false")
	})
	return s
}

func sharedCluster(t *testing.T) *cluster {
	t.Helper()
	suite.mu.Lock()
	shared, broken := suite.shared, suite.broken
	suite.mu.Unlock()
	if broken != nil {
		t.Fatalf("the shared cluster is not there: %v", broken)
	}
	if shared != nil {
		return shared
	}
	shared, err := newCluster("shared")
	if err == nil {
		err = shared.start(t.Context(), "--storage-class", "fast")
	}
	if err == nil {
		err = shared.importImages(t.Context())
	}
	suite.mu.Lock()
	suite.shared, suite.broken = shared, err
	suite.mu.Unlock()
	if err != nil {
		t.Fatalf("start the shared cluster: %v", err)
	}
	return shared
}

// ownCluster gives a test a cluster of its own, not yet started, on a host where none runs. At the end of the test it is
// stopped, its data deleted, and the host has to be as it was.
func ownCluster(t *testing.T) *cluster {
	t.Helper()
	closeShared(t)
	c, err := newCluster(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			c.dump(ctx, t)
		}
		if err := c.dispose(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// closeShared stops the shared cluster and checks that nothing is left of it.
func closeShared(t *testing.T) {
	t.Helper()
	suite.mu.Lock()
	shared := suite.shared
	suite.shared, suite.broken = nil, nil
	suite.mu.Unlock()
	if shared == nil {
		return
	}
	if err := shared.dispose(t.Context()); err != nil {
		t.Errorf("stop the shared cluster: %v", err)
	}
}

// stopAll stops every cluster that a test left behind.
func stopAll(ctx context.Context) error {
	suite.mu.Lock()
	left := suite.alive
	suite.mu.Unlock()
	var errs []error
	for c := range left {
		errs = append(errs, c.dispose(ctx))
	}
	return errors.Join(errs...)
}
