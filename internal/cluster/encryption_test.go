// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ordinal-dev/ordinal/internal/cluster/pki"
)

// withKeys is a host whose directory for keys is there.
func withKeys(t *testing.T) *host {
	t.Helper()
	h := testHost(t)
	if err := makePrivate(h.data.PKI("")); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) mustRead(t *testing.T, file string) string {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, want 0600", filepath.Base(file), info.Mode().Perm())
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestKeyOfSecretsIsMadeOnce(t *testing.T) {
	h := withKeys(t)
	var keys, configs [2]string
	for i := range keys {
		if err := h.configureEncryption(); err != nil {
			t.Fatal(err)
		}
		keys[i], configs[i] = h.mustRead(t, h.data.PKI(secretsKey)), h.mustRead(t, h.data.Config(encryptionConfig))
	}
	if keys[0] != keys[1] || configs[0] != configs[1] {
		t.Error("a second start made another key")
	}
	if !strings.Contains(configs[0], strings.TrimSpace(keys[0])) {
		t.Error("the API server is told another key")
	}
	box, identity := strings.Index(configs[0], "secretbox:"), strings.Index(configs[0], "identity:")
	if box < 0 || identity < box {
		t.Errorf("providers are not secretbox, then identity:\n%s", configs[0])
	}
	other := withKeys(t)
	if err := other.configureEncryption(); err != nil {
		t.Fatal(err)
	}
	if other.mustRead(t, other.data.PKI(secretsKey)) == keys[0] {
		t.Error("two clusters have the same key")
	}
}

func TestKeyOfSecretsThatIsNoGoodIsNotReplaced(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "no base64": "not a key!", "too short": "c2hvcnQ=", "missing": ""} {
		t.Run(name, func(t *testing.T) {
			h := withKeys(t)
			file := h.data.PKI(secretsKey)
			err := os.WriteFile(h.data.PKI(secretsSealed), nil, 0o600)
			if name != "missing" {
				err = errors.Join(err, os.WriteFile(file, []byte(content), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			err = h.configureEncryption()
			if damaged, ok := errors.AsType[*pki.DamagedError](err); !ok || damaged.File != file {
				t.Errorf("error is %v, want one that names %s", err, file)
			}
			if got, _ := os.ReadFile(file); string(got) != content {
				t.Error("it was replaced")
			}
		})
	}
}

// Secrets of before are written once more, those that somebody else writes at the same time excepted. That is done once.
func TestSecretsOfBeforeAreRewritten(t *testing.T) {
	h := withKeys(t)
	secret := func(name string) runtime.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, StringData: map[string]string{"k": "v"}}
	}
	client := fake.NewClientset(secret("busy"), secret("gone"), secret("plain"))
	refusal := error(nil)
	client.PrependReactor("update", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		update, _ := a.(clienttesting.UpdateAction)
		resource := corev1.Resource("secrets")
		switch s, _ := update.GetObject().(*corev1.Secret); s.Name {
		case "busy":
			return true, nil, apierrors.NewConflict(resource, s.Name, errors.New("changed"))
		case "gone":
			return true, nil, apierrors.NewNotFound(resource, s.Name)
		}
		return refusal != nil, nil, refusal
	})
	var told []string
	c := &Cluster{host: *h, report: func(line string) { told = append(told, line) }}
	updates := func(ctx context.Context) int {
		client.ClearActions()
		c.sealSecrets(ctx, client)
		n := 0
		for _, a := range client.Actions() {
			if a.GetVerb() == "update" {
				n++
			}
		}
		return n
	}
	refusal = errors.New("webhook is broken")
	if n := updates(t.Context()); n != 3 || len(told) != 1 || !strings.Contains(told[0], "shop/plain: webhook is broken") {
		t.Errorf("with a broken webhook, %d updates; told: %q", n, told)
	}
	refusal = nil
	if n := updates(t.Context()); n != 3 {
		t.Errorf("at the next start, %d updates", n)
	}
	if n := updates(t.Context()); n != 0 {
		t.Errorf("after all is encrypted, %d updates", n)
	}
	if len(told) != 1 {
		t.Errorf("told: %q", told)
	}
}
