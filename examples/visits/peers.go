// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lookupTimeout bounds a name lookup, so that a page comes also when DNS does not answer.
const lookupTimeout = 2 * time.Second

// resolver looks names up; net.DefaultResolver in a pod.
type resolver interface {
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// peers lists HOST:PORT of every ready member of a headless Service, found by the SRV records that its port "http" has.
func peers(ctx context.Context, r resolver, service string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	_, records, err := r.LookupSRV(ctx, "http", "tcp", service)
	if err != nil {
		return nil, fmt.Errorf("look up the peers: %w", err)
	}
	slices.SortFunc(records, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(ordinalOf(host(a)), ordinalOf(host(b))), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port))
	})
	found := make([]string, 0, len(records))
	for _, s := range records {
		found = append(found, net.JoinHostPort(strings.TrimSuffix(s.Target, "."), strconv.Itoa(int(s.Port))))
	}
	return found, nil
}

// host is the first part of a record's target: the pod's name.
func host(s *net.SRV) string {
	name, _, _ := strings.Cut(s.Target, ".")
	return name
}

// ordinalOf is the number at the end of a pod's name, -1 if there is none.
func ordinalOf(pod string) int {
	n, err := strconv.ParseUint(pod[strings.LastIndex(pod, "-")+1:], 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// addresses lists the addresses of a name.
func addresses(ctx context.Context, r resolver, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := r.LookupHost(ctx, name)
	if err != nil {
		return nil, err
	}
	slices.Sort(found)
	return found, nil
}
