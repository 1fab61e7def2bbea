// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command visits is a small stateful server to try a StatefulSet with. It counts visits in a file in its volume, and shows its ordinal,
// hostname, revision and the peers it finds in DNS. It is the only file of its image, so it is also the tool to look around with
// inside a pod:
//
//	kubectl exec visits-0 -- /visits lookup visits-1.visits
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `visits counts its visitors in a volume.

  visits [serve] [-addr :8080] [-dir /data]   serve HTTP: / (text), /json, /healthz
  visits peers [SERVICE]                      list the ready members of the headless Service
  visits lookup NAME                          list the addresses of a name
  visits get URL                              fetch a page

Environment: REVISION, shown on the page; SERVICE, the headless Service (visits).
`

var errUsage = errors.New("unknown command or argument; `visits help` lists them")

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal("visits: ", err)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	command, args := commandOf(args)
	service := cmp.Or(os.Getenv("SERVICE"), "visits")
	switch {
	case command == "serve":
		return serve(ctx, service, args)
	case command == "peers" && len(args) <= 1:
		found, err := peers(ctx, net.DefaultResolver, cmp.Or(strings.Join(args, ""), service))
		return list(out, found, err)
	case command == "lookup" && len(args) == 1:
		found, err := addresses(ctx, net.DefaultResolver, args[0])
		return list(out, found, err)
	case command == "get" && len(args) == 1:
		return get(ctx, out, args[0])
	case command == "help":
		_, err := io.WriteString(out, usage)
		return err
	default:
		return errUsage
	}
}

// commandOf splits the arguments; serve is what is done if none is named.
func commandOf(args []string) (command string, rest []string) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return "serve", args
	}
	return args[0], args[1:]
}

func serve(ctx context.Context, service string, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	addr := flags.String("addr", ":8080", "address to serve on")
	dir := flags.String("dir", "/data", "directory of the counter, where the volume is mounted")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil || flags.NArg() > 0:
		return errUsage
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	visits, err := newCounter(*dir)
	if err != nil {
		return err
	}
	n, err := visits.value()
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	s := &server{
		hostname: hostname,
		revision: cmp.Or(os.Getenv("REVISION"), "unknown"),
		service:  service,
		counter:  visits,
		resolver: net.DefaultResolver,
	}
	log.Printf("%s serves on %s, %d visits so far", s.hostname, l.Addr(), n)
	return s.serve(ctx, l)
}

func list(out io.Writer, lines []string, err error) error {
	if err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// get writes the page at a URL, and fails unless its status is a good one.
func get(ctx context.Context, out io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(out, res.Body); err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("get %s: %s", url, res.Status)
	}
	return nil
}
