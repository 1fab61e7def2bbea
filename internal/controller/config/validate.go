// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
)

// Validate gives all that is wrong with a configuration, field by field.
func Validate(c *v1alpha1.ControllerConfiguration) []Problem {
	var p problems
	p.check(c.Workers >= 1, "workers", "must be at least 1, not %d", c.Workers)
	p.check(c.ClientConnection.QPS > 0, "clientConnection.qps", "must be more than 0, not %g", c.ClientConnection.QPS)
	p.check(c.ClientConnection.Burst >= 1, "clientConnection.burst", "must be at least 1, not %d", c.ClientConnection.Burst)
	p.scope(c)
	p.election(&c.LeaderElection)
	p.endpoints(c)
	p.check(slices.Contains([]string{FormatText, FormatJSON}, c.Logging.Format), "logging.format", "must be text or json, not %q", c.Logging.Format)
	p.check(c.Logging.Verbosity >= 0, "logging.verbosity", "must be at least 0, not %d", c.Logging.Verbosity)
	return p
}

type problems []Problem

// check takes down a problem unless all is well.
func (p *problems) check(ok bool, field, format string, args ...any) {
	if !ok {
		*p = append(*p, Problem{Field: field, Text: fmt.Sprintf(format, args...)})
	}
}

func (p *problems) scope(c *v1alpha1.ControllerConfiguration) {
	for i, name := range c.Namespaces {
		field := fmt.Sprintf("namespaces[%d]", i)
		p.check(len(validation.IsDNS1123Label(name)) == 0, field, "must be the name of a namespace, not %q", name)
		p.check(!slices.Contains(c.Namespaces[:i], name), field, "is there twice: %s", name)
	}
	_, err := labels.Parse(c.Selector)
	p.check(err == nil, "selector", "must be a selector as of kubectl get -l: %v", err)
}

func (p *problems) election(e *v1alpha1.LeaderElection) {
	if !e.LeaderElect {
		return
	}
	p.check(len(validation.IsDNS1123Label(e.ResourceNamespace)) == 0, "leaderElection.resourceNamespace",
		"must be the name of a namespace, not %q", e.ResourceNamespace)
	p.check(len(validation.IsDNS1123Subdomain(e.ResourceName)) == 0, "leaderElection.resourceName",
		"must be the name of a lease, not %q", e.ResourceName)
	lease, renew, retry := e.LeaseDuration.Duration, e.RenewDeadline.Duration, e.RetryPeriod.Duration
	p.check(lease >= time.Second, "leaderElection.leaseDuration", "must be at least 1s, not %s", lease)
	p.check(lease > renew, "leaderElection.leaseDuration", "must be longer than leaderElection.renewDeadline, which is %s, not %s", renew, lease)
	// client-go lets each attempt wait up to a fifth longer.
	p.check(renew > retry+retry/5, "leaderElection.renewDeadline",
		"must be more than 1.2 times leaderElection.retryPeriod, which is %s, not %s", retry, renew)
	p.check(retry > 0, "leaderElection.retryPeriod", "must be more than 0, not %s", retry)
}

func (p *problems) endpoints(c *v1alpha1.ControllerConfiguration) {
	m := &c.Metrics
	if m.BindAddress == "" {
		const needs = "needs metrics.bindAddress"
		p.check(m.CertFile == "", "metrics.certFile", needs)
		p.check(m.KeyFile == "", "metrics.keyFile", needs)
		p.check(!m.PProf, "metrics.pprof", needs)
	}
	p.check(m.CertFile == "" || m.KeyFile != "", "metrics.certFile", "needs metrics.keyFile")
	p.check(m.KeyFile == "" || m.CertFile != "", "metrics.keyFile", "needs metrics.certFile")
	p.address("metrics.bindAddress", m.BindAddress)
	p.address("health.bindAddress", c.Health.BindAddress)
	if c.Tracing.Endpoint != "" {
		u, err := url.Parse(c.Tracing.Endpoint)
		isURL := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		p.check(isURL, "tracing.endpoint", "must be a URL such as http://collector:4318, not %q", c.Tracing.Endpoint)
	}
}

func (p *problems) address(field, address string) {
	if address == "" {
		return
	}
	_, port, err := net.SplitHostPort(address)
	_, portErr := strconv.ParseUint(port, 10, 16)
	p.check(err == nil && portErr == nil, field, "must be a host and a port, such as 127.0.0.1:9090, not %q", address)
}
