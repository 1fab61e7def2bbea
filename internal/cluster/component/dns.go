// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"flag"
	"os"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	// The plugins that the Corefile names; see the dns file of package cluster.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

// runDNS is CoreDNS; it takes its flags from the process-wide flag set.
func runDNS(args []string) int {
	dnsserver.Quiet = true
	os.Args = append(os.Args[:1], args...)
	flag.CommandLine.Init("coredns", flag.ExitOnError)
	coremain.Run()
	return 0
}
