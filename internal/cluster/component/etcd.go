// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/signal"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
)

// runEtcd serves the datastore on one Unix socket until it is told to stop. Every commit is synced to disk.
func runEtcd(args []string) int {
	flags := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	dir := flags.String("data-dir", "", "where the data is kept")
	socket := flags.String("socket", "", "Unix socket to serve on")
	if err := flags.Parse(args); err != nil {
		return exitCode(err)
	}
	return exitCode(serveEtcd(*dir, *socket))
}

func serveEtcd(dir, socket string) error {
	// A socket left by a killed predecessor would make listening fail.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	server, err := embed.StartEtcd(etcdConfig(dir, socket))
	if err != nil {
		return fmt.Errorf("start datastore in %s: %w", dir, err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	select {
	case <-stop:
	case err = <-server.Err():
	}
	server.Close()
	return err
}

// etcdConfig is a cluster of one that nobody else can join: it has no peer listener at all.
func etcdConfig(dir, socket string) *embed.Config {
	config := embed.NewConfig()
	config.Name = "ordinal"
	config.Dir = dir
	client := url.URL{Scheme: "unix", Path: socket}
	config.ListenClientUrls = []url.URL{client}
	config.ListenPeerUrls = nil
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.LogLevel = "warn"
	// At its start a cluster of one waits for an election that nobody else takes part in, so that is kept short. Nobody ever
	// has to catch up, so the log in memory is kept short as well.
	config.TickMs = 100
	config.ElectionMs = 500
	config.SnapshotCount = 2000
	config.SnapshotCatchUpEntries = 1
	return config
}
