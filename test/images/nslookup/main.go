// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nslookup looks names up from inside a test pod. Debian's busybox has an nslookup too, but that one does not use the search
// domains of /etc/resolv.conf for a name that has a dot in it, so it cannot resolve web-1.web-svc. The output is like that of busybox 1.28.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const timeout = 10 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	err := run(ctx, os.Stdout, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nslookup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("nslookup", flag.ContinueOnError)
	kind := flags.String("type", "a", "a (addresses, or the name of an address), srv or ptr")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 1 || flags.NArg() > 2 {
		return errors.New("usage: nslookup [-type=a|srv|ptr] NAME [SERVER]")
	}
	server := flags.Arg(1)
	resolver := &net.Resolver{PreferGo: true}
	if server != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, withPort(server))
		}
	} else {
		server = configuredServer("/etc/resolv.conf")
	}
	fmt.Fprintf(out, "Server:    %s\nAddress 1: %[1]s\n\n", server)
	lines, err := lookup(ctx, resolver, strings.ToLower(*kind), flags.Arg(0))
	if err != nil {
		return fmt.Errorf("can't resolve '%s': %w", flags.Arg(0), err)
	}
	_, err = io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// lookup gives what is printed of a name.
func lookup(ctx context.Context, r *net.Resolver, kind, name string) ([]string, error) {
	switch {
	case kind == "srv":
		return services(ctx, r, name)
	case kind != "a" && kind != "ptr":
		return nil, fmt.Errorf("type %q is not known: a, srv and ptr are", kind)
	case net.ParseIP(name) != nil:
		return []string{"Name:      " + name, addressLine(ctx, r, 1, name)}, nil
	}
	found, err := r.LookupHost(ctx, name)
	if err != nil {
		return nil, err
	}
	lines := []string{"Name:      " + name}
	for i, address := range found {
		lines = append(lines, addressLine(ctx, r, i+1, address))
	}
	return lines, nil
}

// addressLine shows an address, and its name if it has one.
func addressLine(ctx context.Context, r *net.Resolver, n int, address string) string {
	line := fmt.Sprintf("Address %d: %s", n, address)
	if names, err := r.LookupAddr(ctx, address); err == nil {
		line += " " + strings.TrimSuffix(names[0], ".")
	}
	return line
}

func services(ctx context.Context, r *net.Resolver, name string) ([]string, error) {
	_, records, err := r.LookupSRV(ctx, "", "", name)
	if err != nil {
		return nil, err
	}
	lines := make([]string, 0, len(records))
	for _, s := range records {
		lines = append(lines, fmt.Sprintf("%s\tservice = %d %d %d %s", name, s.Priority, s.Weight, s.Port, strings.TrimSuffix(s.Target, ".")))
	}
	return lines, nil
}

// configuredServer is the first name server of a resolv.conf, or what is asked without one.
func configuredServer(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return "127.0.0.1"
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "nameserver" {
			return fields[1]
		}
	}
	return "127.0.0.1"
}

func withPort(server string) string {
	if _, _, err := net.SplitHostPort(server); err == nil {
		return server
	}
	return net.JoinHostPort(server, "53")
}
