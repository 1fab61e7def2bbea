// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a whole Kubernetes on one machine: it starts each part in order, says when it is ready, keeps it running, and stops all in reverse.
package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// Options is what a user may choose about a cluster.
type Options struct {
	// DataDir holds everything that outlives a stop.
	DataDir string
	// Kubeconfig is where the administrator's kubeconfig is written; empty means inside DataDir.
	Kubeconfig string
	// KubeconfigOwner gets the copy of the kubeconfig that is written outside of DataDir; Complete sets it to the user who
	// called sudo.
	KubeconfigOwner *Owner
	// APIPort is the API server's port.
	APIPort int
	// StorageClasses are further names for the local storage class.
	StorageClasses []string
	// StrictStorageClasses leaves claims alone whose class nobody defined.
	StrictStorageClasses bool
	// Simulate starts no node: nodes and what becomes of their pods are simulated, and no root is needed. What follows is for
	// that only.
	Simulate bool
	// Nodes is how many nodes are simulated.
	Nodes int
	// NodeCapacity is what each of them has, as cpu=4,memory=8Gi,pods=110.
	NodeCapacity string
	// PodDelay is how long their pods take to become ready.
	PodDelay time.Duration
}

// DefaultStorageClass is always there and serves claims that name no class.
const DefaultStorageClass = "local"

// Complete makes paths absolute and checks what can be checked without looking at the host.
func (o *Options) Complete() error {
	var err error
	if o.DataDir, err = ResolveDataDir(o.DataDir); err != nil {
		return err
	}
	if o.Kubeconfig == "" {
		o.Kubeconfig = layout.Data(o.DataDir).Kubeconfig()
	}
	if o.Kubeconfig, err = filepath.Abs(o.Kubeconfig); err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	o.KubeconfigOwner = sudoOwner()
	if err := o.checkPort(); err != nil {
		return err
	}
	if err := o.checkSimulation(); err != nil {
		return err
	}
	for _, name := range o.StorageClasses {
		if problems := validation.NameIsDNSSubdomain(name, false); len(problems) > 0 {
			return fmt.Errorf("--storage-class %q: %s", name, problems[0])
		}
	}
	o.StorageClasses = slices.DeleteFunc(o.StorageClasses, func(name string) bool { return name == DefaultStorageClass })
	return nil
}

func (o *Options) checkPort() error {
	switch {
	case o.APIPort < 1 || o.APIPort > 65535:
		return fmt.Errorf("--api-port: %d is not a port; give one from 1 to 65535", o.APIPort)
	case o.Simulate && o.APIPort+simulatedPorts-1 > 65535:
		return fmt.Errorf("--api-port: a simulated cluster needs the two ports after %d too; give one up to %d", o.APIPort, 65536-simulatedPorts)
	case !o.Simulate && slices.Contains(reservedPorts(), o.APIPort):
		return fmt.Errorf("--api-port: %d is taken by another part of the cluster; give another", o.APIPort)
	}
	return nil
}

// ResolveDataDir makes a data directory's path absolute and free of links, as far as it exists: what is mounted below it is
// known to the kernel by such a path.
func ResolveDataDir(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	resolved := withoutLinks(absolute)
	if resolved == "/" {
		return "", errors.New("--data-dir: the root directory cannot hold a cluster; give a directory of its own")
	}
	return resolved, nil
}

// withoutLinks follows the links of the part of a path that exists. A path that cannot be looked at stays as it is: to tell
// why is the host check's business.
func withoutLinks(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		return resolved
	}
	if errors.Is(err, fs.ErrNotExist) && path != "/" {
		return filepath.Join(withoutLinks(filepath.Dir(path)), filepath.Base(path))
	}
	return path
}

// Owner is a user of the host.
type Owner struct{ UID, GID int }

// sudoOwner is who called sudo, if somebody did.
func sudoOwner() *Owner {
	uid, errUID := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, errGID := strconv.Atoi(os.Getenv("SUDO_GID"))
	if errUID != nil || errGID != nil {
		return nil
	}
	return &Owner{UID: uid, GID: gid}
}

func reservedPorts() []int {
	return []int{layout.KubeletPort, layout.ControllerManagerPort, layout.SchedulerPort}
}

// BinDir is where the running binary and what it starts are.
func BinDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own binary: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("find own binary: %w", err)
	}
	return filepath.Dir(self), nil
}
