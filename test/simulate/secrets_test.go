// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

// What the datastore holds of objects of before Secrets were encrypted, and begins with since.
const (
	plainSecret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"plain","namespace":"default","uid":"5c0a7f4e-0d43-4b5e-9a35-6d5f0f6f2b01",` +
		`"creationTimestamp":"2026-01-02T03:04:05Z"},"data":{"word":"aW4tcGxhaW4tdGV4dA=="},"type":"Opaque"}`
	plainKey  = "/registry/secrets/" + namespace + "/plain"
	sealedKey = "/registry/secrets/" + namespace + "/sealed"
	sealed    = "k8s:enc:secretbox:v1:local:"
)

// TestSecretsAreEncryptedAtRest goes through the life of Secrets: written encrypted, read after a restart; those of a cluster that
// had no key are read, and encrypted at the next start; without the key there is no start.
func TestSecretsAreEncryptedAtRest(t *testing.T) {
	h := newHome(t)
	t.Cleanup(func() { _, _ = h.ordinal(context.WithoutCancel(t.Context()), "down", "--purge", "--yes") })
	h.up()
	h.write("sealed", "behind-the-seal")
	h.must("down")

	if found := h.grep("behind-the-seal"); found {
		t.Error("the word of a Secret is in the datastore's files")
	}
	if found := h.grep("in-everybodys-view"); !found {
		t.Error("the word of a ConfigMap is not: the search finds nothing")
	}
	// As if there had been no key yet, with a Secret of that time.
	mark := layout.Data(h.data).PKI("secrets.sealed")
	h.datastore(func(store *clientv3.Client) {
		if value := read(t, store, sealedKey); !bytes.HasPrefix(value, []byte(sealed)) {
			t.Errorf("a Secret begins with %.40q", value)
		}
		if _, err := store.Put(t.Context(), plainKey, plainSecret); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	h.up()
	h.want("sealed", "behind-the-seal")
	h.want("plain", "in-plain-text")
	h.must("down")
	h.datastore(func(store *clientv3.Client) {
		if value := read(t, store, plainKey); !bytes.HasPrefix(value, []byte(sealed)) {
			t.Errorf("a Secret of before begins with %.40q", value)
		}
	})
	h.refusesWithoutKey(t)
}

// write makes a Secret, and a ConfigMap that everybody may read.
func (h *home) write(name, word string) {
	h.Helper()
	meta := metav1.ObjectMeta{Name: name}
	secret := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"word": word}}
	open := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"word": "in-everybodys-view"}}
	_, err := h.client.CoreV1().Secrets(namespace).Create(h.Context(), secret, metav1.CreateOptions{})
	_, openErr := h.client.CoreV1().ConfigMaps(namespace).Create(h.Context(), open, metav1.CreateOptions{})
	if err := errors.Join(err, openErr); err != nil {
		h.Fatal(err)
	}
}

func (h *home) want(name, word string) {
	h.Helper()
	secret, err := h.client.CoreV1().Secrets(namespace).Get(h.Context(), name, metav1.GetOptions{})
	if err != nil {
		h.Fatal(err)
	}
	if got := string(secret.Data["word"]); got != word {
		h.Errorf("Secret %s holds %q, want %q", name, got, word)
	}
}

// refusesWithoutKey checks that a lost key is not replaced by another.
func (h *home) refusesWithoutKey(t *testing.T) {
	t.Helper()
	key := layout.Data(h.data).PKI("secrets.key")
	if err := os.Rename(key, key+".kept"); err != nil {
		t.Fatal(err)
	}
	out, err := h.ordinal(t.Context(), "up", "--simulate", "--detach", "--api-port", strconv.Itoa(h.port))
	if err == nil || !strings.Contains(out, key+" is damaged: it is missing") {
		t.Errorf("without its key, up says: %v\n%s", err, out)
	}
	if err := os.Rename(key+".kept", key); err != nil {
		t.Error(err)
	}
}

// grep tells whether a word is in any file of the datastore.
func (h *home) grep(word string) bool {
	h.Helper()
	found := false
	err := filepath.WalkDir(filepath.Join(h.data, "etcd"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(word))
		return err
	})
	if err != nil {
		h.Fatal(err)
	}
	return found
}

// datastore runs the datastore alone, for as long as a function uses it.
func (h *home) datastore(use func(*clientv3.Client)) {
	h.Helper()
	socket := filepath.Join(h.dir, "etcd.sock")
	server := exec.CommandContext(h.Context(), h.binary, "component", "etcd", "--data-dir="+filepath.Join(h.data, "etcd"), "--socket="+socket)
	server.Dir = h.dir
	server.SysProcAttr = asNobody()
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		h.Fatal(err)
	}
	defer func() { _ = server.Wait() }()
	defer func() { _ = server.Process.Signal(syscall.SIGTERM) }()
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, DialTimeout: patience})
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	h.eventually(h.T, "the datastore", func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := store.Get(ctx, "health")
		return err == nil, nil
	})
	use(store)
}

func read(t *testing.T, store *clientv3.Client, key string) []byte {
	t.Helper()
	answer, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) != 1 {
		t.Fatalf("%s has %d values", key, len(answer.Kvs))
	}
	return answer.Kvs[0].Value
}

// asNobody runs a process without rights where the test has them.
func asNobody() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}
