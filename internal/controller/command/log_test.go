// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/controller/config"
)

// withLog lets a test log in a format, and gives what was logged.
func withLog(t *testing.T, l v1alpha1.Logging, test func()) string {
	t.Helper()
	var out bytes.Buffer
	defer klog.CaptureState().Restore()
	if l.Format == config.FormatText {
		klog.LogToStderr(false)
		klog.SetOutput(&out)
	}
	if err := setLog(&out, l); err != nil {
		t.Fatal(err)
	}
	test()
	klog.Flush()
	return out.String()
}

// logAll logs in each of the ways that are used here and in client-go.
func logAll() {
	klog.Background().WithValues("statefulSet", types.NamespacedName{Namespace: "default", Name: "web"}).Info("Started", "workers", 5)
	klog.Background().V(2).Info("Acted", "action", "create pod web-0")
	klog.Background().V(4).Info("Looked")
	klog.ErrorS(errors.New("broken"), "Sync failed", "statefulSet", klog.KRef("default", "web"))
	klog.V(3).Infof("plain %s", "text")
	klog.InfoS("In a group", "level", "high", "source", "spring", "time", "late")
}

func TestLogAsJSON(t *testing.T) {
	text := withLog(t, v1alpha1.Logging{Format: config.FormatJSON, Verbosity: 3}, logAll)
	var got []map[string]any
	for line := range strings.Lines(text) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q is no JSON: %v", line, err)
		}
		if at, err := time.Parse(time.RFC3339Nano, entry["ts"].(string)); err != nil || time.Since(at) > time.Minute {
			t.Errorf("the time of %q is %v, %v", line, at, err)
		}
		if caller, ok := entry["caller"].(string); !ok || !strings.HasPrefix(caller, "log_test.go:") {
			t.Errorf("the caller of %q is %v", line, entry["caller"])
		}
		got = append(got, entry)
	}
	if len(got) != 5 {
		t.Fatalf("logged is\n%s", text)
	}
	for i, want := range []map[string]any{
		{"msg": "Started", "level": "info", "v": 0.0, "workers": 5.0, "statefulSet": map[string]any{"namespace": "default", "name": "web"}},
		{"msg": "Acted", "level": "info", "v": 2.0, "action": "create pod web-0"},
		{"msg": "Sync failed", "level": "error", "err": "broken", "statefulSet": map[string]any{"namespace": "default", "name": "web"}},
		{"msg": "plain text", "level": "info", "v": 3.0},
		{"msg": "In a group", "source": "spring", "time": "late"},
	} {
		for key, value := range want {
			if a, b := asJSON(t, got[i][key]), asJSON(t, value); a != b {
				t.Errorf("%s of entry %d is %s, want %s", key, i, a, b)
			}
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The usual format is that of Kubernetes' components, and -v counts in it, too.
func TestLogAsText(t *testing.T) {
	for verbosity, want := range map[int32][]string{
		0: {"Started", "Sync failed", "In a group"},
		2: {"Started", "Acted", "Sync failed", "In a group"},
		3: {"Started", "Acted", "Sync failed", "plain text", "In a group"},
		4: {"Started", "Acted", "Looked", "Sync failed", "plain text", "In a group"},
	} {
		text := withLog(t, v1alpha1.Logging{Format: config.FormatText, Verbosity: verbosity}, logAll)
		var got []string
		for _, message := range []string{"Started", "Acted", "Looked", "Sync failed", "plain text", "In a group"} {
			if strings.Contains(text, message) {
				got = append(got, message)
			}
		}
		if !slices.Equal(got, want) || !strings.Contains(text, `] "Started" statefulSet="default/web" workers=5`) {
			t.Errorf("with -v=%d logged is %q, want %q:\n%s", verbosity, got, want, text)
		}
	}
}
