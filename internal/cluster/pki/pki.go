// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki keeps the cluster's keys: authorities that live as long as the data directory, and certificates issued anew at each start.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Validity of an authority, and of the certificates that are issued at each start, which bounds how long one `ordinal up` may run.
// An authority that will not outlive them is replaced.
const (
	authorityValidity = 20 * 365 * 24 * time.Hour
	leafValidity      = 5 * 365 * 24 * time.Hour
	// clockSkew is how far the clock may be set back after a certificate was issued.
	clockSkew = time.Hour
)

// Authority signs certificates.
type Authority struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// Subject is whom a certificate is for. With addresses or names it may serve; without it is for a client.
type Subject struct {
	// User is the common name: for a client, the user name that RBAC sees.
	User string
	// Groups are the groups that RBAC sees.
	Groups []string
	// Names and IPs are what a server answers to.
	Names []string
	IPs   []net.IP
}

// Pair is a certificate and its key in PEM.
type Pair struct{ Certificate, Key []byte }

// LoadAuthority reads the authority base.crt and base.key, and makes it if there is none yet, or only one that ends within the
// life of a certificate. A damaged pair is an error that names the file: making a new one would lock out everyone who trusts the
// old one.
func LoadAuthority(base string, now time.Time) (*Authority, error) {
	certFile, keyFile := base+".crt", base+".key"
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		// The certificate is written last, so without it nothing has been signed yet.
		return newAuthority(base, now)
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	certs, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, damaged(certFile, err)
	}
	key, err := LoadKey(keyFile)
	if err != nil {
		return nil, err
	}
	if !publicKeysEqual(certs[0].PublicKey, key.Public()) {
		return nil, damaged(keyFile, errors.New("it does not belong to the certificate"))
	}
	if certs[0].NotAfter.Before(now.Add(leafValidity)) {
		return renewAuthority(base, now)
	}
	return &Authority{Certificate: certs[0], key: key}, nil
}

// renewAuthority makes an authority in the place of one that ends soon.
func renewAuthority(base string, now time.Time) (*Authority, error) {
	// Without the certificate the next start goes on from here, should this one be killed.
	if err := os.Remove(base + ".crt"); err != nil {
		return nil, fmt.Errorf("remove certificate authority that ends soon: %w", err)
	}
	return newAuthority(base, now)
}

// LoadKey reads a private key in PEM.
func LoadKey(file string) (crypto.Signer, error) {
	keyPEM, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, damaged(file, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, damaged(file, errors.New("it cannot sign"))
	}
	return signer, nil
}

// LoadOrMakeKey reads a private key in PEM, and makes it if the file does not exist.
func LoadOrMakeKey(file string) (crypto.Signer, error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		key, keyPEM, err := newKey()
		if err != nil {
			return nil, err
		}
		return key, writeSecret(file, keyPEM)
	}
	return LoadKey(file)
}

// DamagedError tells that a file of the data directory cannot be used as it is.
type DamagedError struct {
	File  string
	Cause error
}

func (d *DamagedError) Error() string { return fmt.Sprintf("%s is damaged: %v", d.File, d.Cause) }

// Unwrap gives the cause.
func (d *DamagedError) Unwrap() error { return d.Cause }

func damaged(file string, cause error) error { return &DamagedError{File: file, Cause: cause} }

func newAuthority(base string, now time.Time) (*Authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "ordinal-" + filepath.Base(base)},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	if err := writeSecret(base+".key", keyPEM); err != nil {
		return nil, err
	}
	return &Authority{Certificate: parsed, key: key}, writeSecret(base+".crt", encodeCertificate(der))
}

// PEM is the authority's certificate, for those who are to trust it.
func (a *Authority) PEM() []byte { return encodeCertificate(a.Certificate.Raw) }

// Issue signs a fresh key for a subject.
func (a *Authority) Issue(s Subject, now time.Time) (Pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return Pair{}, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(s.Names)+len(s.IPs) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.User, Organization: s.Groups},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(leafValidity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		DNSNames:     s.Names,
		IPAddresses:  s.IPs,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate for %s: %w", s.User, err)
	}
	return Pair{Certificate: encodeCertificate(der), Key: keyPEM}, nil
}

// Write puts the pair into base.crt and base.key.
func (p Pair) Write(base string) error {
	return errors.Join(writeSecret(base+".key", p.Key), writeSecret(base+".crt", p.Certificate))
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	return key, keyPEM, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return serial, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}

// writeSecret replaces a file in one step, so that a crash leaves the old or the new one whole.
func writeSecret(file string, content []byte) error {
	if err := renameio.WriteFile(file, content, 0o600, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

func publicKeysEqual(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}
