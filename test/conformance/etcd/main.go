// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd, built from the version in go.mod: the suites of Kubernetes look for one on the path.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
