// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
)

const (
	// secretsKey is the file with the key of Secrets, which lives as long as the data directory.
	secretsKey = "secrets.key"
	// secretsSealed is the file that tells that all Secrets in the datastore are encrypted with the key.
	secretsSealed = "secrets.sealed"
	// encryptionConfig is what the API server is told about it.
	encryptionConfig = "encryption.yaml"
	// secretsKeySize is how many bytes secretbox (XSalsa20 and Poly1305) wants.
	secretsKeySize = 32
	// sealing is how long a start may spend on Secrets of before. A broken webhook may refuse each of them, slowly.
	sealing = 30 * time.Second
	// secretsPage is how many Secrets are read at once.
	secretsPage = 200
)

// configureEncryption tells the API server to encrypt Secrets, with a key that is made at the first start.
func (h *host) configureEncryption() error {
	key, err := loadOrMakeSecretsKey(h.data)
	if err != nil {
		return err
	}
	box := &apiserverv1.SecretboxConfiguration{Keys: []apiserverv1.Key{{Name: "local", Secret: key}}}
	content, err := yaml.Marshal(apiserverv1.EncryptionConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: apiserverv1.SchemeGroupVersion.String(), Kind: "EncryptionConfiguration"},
		Resources: []apiserverv1.ResourceConfiguration{{
			Resources: []string{"secrets"},
			// The first one writes. The second reads what was written before there was a key.
			Providers: []apiserverv1.ProviderConfiguration{{Secretbox: box}, {Identity: &apiserverv1.IdentityConfiguration{}}},
		}},
	})
	if err != nil {
		return fmt.Errorf("encode configuration of encryption: %w", err)
	}
	_, err = h.writeConfig(encryptionConfig, content)
	return err
}

// loadOrMakeSecretsKey gives the key in base64. One that is lost is an error: with another, what is encrypted could never be read.
func loadOrMakeSecretsKey(data layout.Data) (string, error) {
	file := data.PKI(secretsKey)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if exists(data.PKI(secretsSealed)) {
			return "", &pki.DamagedError{File: file, Cause: errors.New("it is missing, and the Secrets are encrypted with it")}
		}
		return makeSecretsKey(file)
	}
	if err != nil {
		return "", fmt.Errorf("read key of Secrets: %w", err)
	}
	key := strings.TrimSpace(string(content))
	if raw, err := base64.StdEncoding.DecodeString(key); err != nil || len(raw) != secretsKeySize {
		return "", &pki.DamagedError{File: file, Cause: fmt.Errorf("it is not %d bytes in base64", secretsKeySize)}
	}
	return key, nil
}

func makeSecretsKey(file string) (string, error) {
	raw := make([]byte, secretsKeySize)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make key of Secrets: %w", err)
	}
	key := base64.StdEncoding.EncodeToString(raw)
	if err := renameio.WriteFile(file, []byte(key+"\n"), 0o600, renameio.IgnoreUmask()); err != nil {
		return "", fmt.Errorf("write key of Secrets: %w", err)
	}
	return key, nil
}

// sealSecrets encrypts the Secrets that are in the datastore from a time without a key. In a new cluster that is none. What cannot be
// encrypted now can still be read, and is tried again at the next start.
func (c *Cluster) sealSecrets(ctx context.Context, client kubernetes.Interface) {
	mark := c.data.PKI(secretsSealed)
	if exists(mark) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sealing)
	defer cancel()
	err := rewriteSecrets(ctx, client)
	if err == nil {
		err = renameio.WriteFile(mark, nil, 0o600, renameio.IgnoreUmask())
	}
	if err != nil {
		c.report("  not all Secrets are encrypted yet, the next start tries again: " + err.Error())
	}
}

// rewriteSecrets writes every Secret as it is, by which the API server encrypts it.
func rewriteSecrets(ctx context.Context, client kubernetes.Interface) error {
	next := ""
	for {
		page, err := client.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: secretsPage, Continue: next})
		if err != nil {
			return fmt.Errorf("list Secrets: %w", err)
		}
		for i := range page.Items {
			secret := &page.Items[i]
			_, err := client.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
			// Somebody else has written or deleted it meanwhile.
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return fmt.Errorf("rewrite Secret %s/%s: %w", secret.Namespace, secret.Name, err)
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
