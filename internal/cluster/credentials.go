// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
)

// The users as which components speak to the API server. Those that begin with system:kube- and system:node: get their
// rights from Kubernetes itself, ours from the bootstrap file.
const (
	adminUser      = "ordinal-admin"
	nodeUser       = "system:node:" + layout.NodeName
	dnsUser        = "system:ordinal-dns"
	storageUser    = "system:ordinal-storage"
	controllerUser = "system:ordinal-controller"
	simulatorUser  = "system:ordinal-nodes"
	mastersGroup   = "system:masters"
	nodesGroup     = "system:nodes"
)

// clients are the users that get a kubeconfig of their own, by component.
func clients() map[string]pki.Subject {
	return map[string]pki.Subject{
		"kube-controller-manager": {User: "system:kube-controller-manager"},
		"kube-scheduler":          {User: "system:kube-scheduler"},
		"kube-proxy":              {User: "system:kube-proxy"},
		"kubelet":                 {User: nodeUser, Groups: []string{nodesGroup}},
		"coredns":                 {User: dnsUser},
		"storage":                 {User: storageUser},
		"controller":              {User: controllerUser},
		"nodes":                   {User: simulatorUser},
	}
}

// issueCredentials loads or makes the authorities and issues every certificate and kubeconfig anew, so that none expires
// as long as the cluster is started once in a few years.
func issueCredentials(o Options, now time.Time) error {
	data := layout.Data(o.DataDir)
	if err := os.MkdirAll(data.PKI(""), 0o700); err != nil {
		return fmt.Errorf("make directory for keys: %w", err)
	}
	ca, err := pki.LoadAuthority(data.PKI("ca"), now)
	if err != nil {
		return err
	}
	frontProxy, err := pki.LoadAuthority(data.PKI("front-proxy-ca"), now)
	if err != nil {
		return err
	}
	if _, err := pki.LoadOrMakeKey(data.PKI("service-account.key")); err != nil {
		return err
	}
	issue := issuer{data: data, server: apiURL(o), now: now}
	issue.pair(ca, "apiserver", pki.Subject{
		User: "kube-apiserver",
		Names: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc." + layout.Domain,
		},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(layout.NodeIP), layout.ServiceIP(1).AsSlice()},
	})
	loopback := pki.Subject{User: "ordinal-loopback", Names: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	issue.pair(ca, "loopback", loopback)
	issue.pair(ca, "kubelet", pki.Subject{
		User: nodeUser, Groups: []string{nodesGroup}, Names: []string{layout.NodeName},
		IPs: []net.IP{net.ParseIP(layout.NodeIP)},
	})
	issue.pair(ca, "kubelet-client", pki.Subject{User: "kube-apiserver-kubelet-client", Groups: []string{mastersGroup}})
	issue.pair(frontProxy, "front-proxy-client", pki.Subject{User: "front-proxy-client"})
	for component, subject := range clients() {
		issue.kubeconfig(ca, data.ComponentKubeconfig(component), subject)
	}
	admin := pki.Subject{User: adminUser, Groups: []string{mastersGroup}}
	issue.kubeconfig(ca, data.Kubeconfig(), admin)
	if o.Kubeconfig != data.Kubeconfig() {
		issue.copyKubeconfig(o.Kubeconfig, o.KubeconfigOwner)
	}
	return errors.Join(issue.errs...)
}

// issuer issues one certificate after another and keeps what went wrong.
type issuer struct {
	data   layout.Data
	server string
	now    time.Time
	errs   []error
}

func (i *issuer) pair(authority *pki.Authority, name string, s pki.Subject) {
	pair, err := authority.Issue(s, i.now)
	if err == nil {
		err = pair.Write(i.data.PKI(name))
	}
	i.errs = append(i.errs, err)
}

func (i *issuer) kubeconfig(authority *pki.Authority, file string, s pki.Subject) {
	client, err := authority.Issue(s, i.now)
	if err == nil {
		err = pki.WriteKubeconfig(file, i.server, authority, client)
	}
	i.errs = append(i.errs, err)
}

// copyKubeconfig writes the administrator's kubeconfig where the user asked for it. A file there that we did not write
// is somebody's own: it is left alone.
func (i *issuer) copyKubeconfig(file string, owner *Owner) {
	content, err := os.ReadFile(i.data.Kubeconfig())
	if err == nil {
		err = refuseForeignKubeconfig(file)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = renameio.WriteFile(file, content, 0o600, renameio.IgnoreUmask())
	}
	if err == nil && owner != nil {
		err = os.Chown(file, owner.UID, owner.GID)
	}
	if err != nil {
		err = fmt.Errorf("write kubeconfig: %w", err)
	}
	i.errs = append(i.errs, err)
}

func refuseForeignKubeconfig(file string) error {
	ours, err := pki.IsOurs(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !ours:
		return fmt.Errorf("%s holds other clusters and is left alone; give --kubeconfig another file", file)
	}
	return nil
}

func apiURL(o Options) string { return fmt.Sprintf("https://127.0.0.1:%d", o.APIPort) }
