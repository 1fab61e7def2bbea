// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nslookup asks the resolver for a name, its SRV records, or the names of an address.
//
// It stands in the busybox test image for the nslookup of busybox 1.28, which went through the search list; that of the
// distribution's busybox does not do so for names with a dot.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	err := lookup(ctx, os.Stdout, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nslookup:", err)
		os.Exit(1)
	}
}

// lookup answers `nslookup [-type=srv] NAME|ADDRESS`.
func lookup(ctx context.Context, out io.Writer, args []string) error {
	resolver := &net.Resolver{PreferGo: true}
	switch {
	case len(args) == 2 && strings.EqualFold(args[0], "-type=srv"):
		return services(ctx, resolver, out, args[1])
	case len(args) != 1:
		return errors.New("usage: nslookup [-type=srv] NAME|ADDRESS")
	}
	if _, err := netip.ParseAddr(args[0]); err == nil {
		return owners(ctx, resolver, out, args[0])
	}
	return addresses(ctx, resolver, out, args[0])
}

func addresses(ctx context.Context, resolver *net.Resolver, out io.Writer, name string) error {
	found, err := resolver.LookupNetIP(ctx, "ip4", name)
	if err != nil {
		return fmt.Errorf("can't resolve '%s': %w", name, err)
	}
	fmt.Fprintf(out, "Name:      %s\n", name)
	for i, address := range found {
		fmt.Fprintf(out, "Address %d: %s\n", i+1, address.Unmap())
	}
	return nil
}

func services(ctx context.Context, resolver *net.Resolver, out io.Writer, name string) error {
	_, found, err := resolver.LookupSRV(ctx, "", "", name)
	if err != nil {
		return fmt.Errorf("can't resolve '%s': %w", name, err)
	}
	for _, s := range found {
		fmt.Fprintf(out, "%s service = %d %d %d %s\n", name, s.Priority, s.Weight, s.Port, strings.TrimSuffix(s.Target, "."))
	}
	return nil
}

func owners(ctx context.Context, resolver *net.Resolver, out io.Writer, address string) error {
	found, err := resolver.LookupAddr(ctx, address)
	if err != nil {
		return fmt.Errorf("can't resolve '%s': %w", address, err)
	}
	for _, owner := range found {
		fmt.Fprintf(out, "%s name = %s\n", address, strings.TrimSuffix(owner, "."))
	}
	return nil
}
