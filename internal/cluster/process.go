// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/ordinal-dev/ordinal/internal/cluster/component"
	"github.com/ordinal-dev/ordinal/internal/cluster/frugal"
	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// Log rotation: megabytes a file may have, and how many old files are kept, for each component.
const (
	logMegabytes = 20
	logBackups   = 2
)

// host is what the descriptions of the components need to know.
type host struct {
	Options

	data   layout.Data
	binDir string
	self   string
	caps   hostCapabilities
}

// child describes a component that is this same binary under another name.
func (h *host) child(name string, flags ...string) supervise.Process {
	p := h.process(name, h.self, append([]string{component.Command, name}, flags...)...)
	p.Env = append(p.Env, fmt.Sprintf("GOGC=%d", frugal.StartPercent))
	return p
}

func (h *host) process(name, path string, args ...string) supervise.Process {
	file := h.data.Log(name)
	return supervise.Process{
		Name: name, Path: path, Args: args, LogFile: file, Grace: 10 * time.Second,
		Log: &lumberjack.Logger{Filename: file, MaxSize: logMegabytes, MaxBackups: logBackups},
	}
}

// extendPath lets this process and its children find our own programs first, and those of the system also where root's path
// lacks them, as after su.
func extendPath(binDir string) error {
	path := []string{binDir, os.Getenv("PATH"), "/usr/local/sbin", "/usr/sbin", "/sbin"}
	return os.Setenv("PATH", strings.Join(path, string(os.PathListSeparator)))
}

// servesOn is ready when the TLS server at an address answers a path with 200.
func (h *host) servesOn(address, path, clientPair string) func(context.Context) error {
	client := h.client(clientPair)
	return func(ctx context.Context) error {
		return getOK(ctx, client, "https://"+address+path)
	}
}

// client speaks TLS to our own servers, with a client certificate if one is named. The certificates are read at the
// first call, since descriptions are made before they are.
func (h *host) client(pair string) *http.Client {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			config, err := h.tlsConfig(pair)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
		},
	}
	return &http.Client{Transport: transport}
}

func (h *host) tlsConfig(pair string) (*tls.Config, error) {
	ca, err := os.ReadFile(h.data.PKI("ca.crt"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(ca)
	if pair == "" {
		return config, nil
	}
	certificate, err := tls.LoadX509KeyPair(h.data.PKI(pair+".crt"), h.data.PKI(pair+".key"))
	config.Certificates = []tls.Certificate{certificate}
	return config, err
}

func getOK(ctx context.Context, client *http.Client, url string) error {
	_, err := get(ctx, client, url)
	return err
}

// get gives the body of an answer of 200, and an error for every other.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.200s", response.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// writeConfig writes a generated configuration file.
func (h *host) writeConfig(name string, content []byte) (string, error) {
	file := h.data.Config(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("make directory for configuration: %w", err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return file, nil
}
