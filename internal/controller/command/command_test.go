// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/controller/config"
)

// run runs the command line with arguments, and gives what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	cmd := New()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// file writes a configuration file.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	text = "apiVersion: config.ordinal.dev/v1alpha1\nkind: ControllerConfiguration\n" + text
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestControllerRefusesBadFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--workers=0", "--workers must be at least 1, not 0"},
		{"--kube-api-qps=0", "--kube-api-qps must be more than 0, not 0"},
		{"--kube-api-burst=0", "--kube-api-burst must be at least 1, not 0"},
		{"--metrics-cert-file=cert", "--metrics-cert-file needs --metrics-bind-address"},
		{"--metrics-bind-address=:0 --metrics-key-file=key", "--metrics-key-file needs --metrics-cert-file"},
		{"--pprof", "--pprof needs --metrics-bind-address"},
		{"--namespaces=a,B", `--namespaces must be the name of a namespace, not "B"`},
		{"--selector=a=b=c", "--selector must be a selector"},
		{"--leader-elect-lease-duration=5s", "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, which is 10s, not 5s"},
		{"--log-format=xml", `--log-format must be text or json, not "xml"`},
		{"-v=-1", "--v must be at least 0, not -1"},
		{"--traces-endpoint=collector", "--traces-endpoint must be a URL"},
		{"--health-bind-address=8081", "--health-bind-address must be a host and a port"},
		{"--config=no-such-file", "no-such-file"},
		{"--workers=0 --pprof", "--workers must be at least 1, not 0\n--pprof needs --metrics-bind-address"},
	} {
		if _, err := run(t, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s ends with %v, want %q", tt.args, err, tt.want)
		}
	}
}

// What a file sets is taken, a flag that is given wins, also one that is given its default, and the rest has its default.
func TestFlagsWinOverFile(t *testing.T) {
	o := options{config: config.Default()}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.register(f)
	name := file(t, `
workers: 7
namespaces: [a, b]
clientConnection: {qps: 3, burst: 4}
leaderElection: {leaderElect: false, retryPeriod: 3s}
logging: {verbosity: 2}
`)
	args := []string{"--config=" + name, "--workers=20", "--namespaces=c,d", "--kube-api-burst=9", "--leader-elect-retry-period=1s", "--leader-elect"}
	if err := errors.Join(f.Parse(args), o.complete(f)); err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Namespaces = []string{"c", "d"}
	want.ClientConnection.QPS, want.ClientConnection.Burst = 3, 9
	want.LeaderElection.RetryPeriod.Duration = time.Second
	want.Logging.Verbosity = 2
	if !reflect.DeepEqual(o.config, want) {
		t.Errorf("the configuration is %+v, want %+v", o.config, want)
	}
}

// A mistake is told where it was made.
func TestMistakeIsToldWhereItIs(t *testing.T) {
	name := file(t, "workers: 0\nclientConnection:\n  qps: -1\n")
	_, err := run(t, "--config="+name, "--kube-api-qps=0", "--kube-api-burst=0")
	want := name + ":3: workers: must be at least 1, not 0\n" +
		"--kube-api-qps must be more than 0, not 0\n" +
		"--kube-api-burst must be at least 1, not 0"
	if err == nil || err.Error() != want {
		t.Errorf("the errors are %v, want %s", err, want)
	}
}

func TestValidateConfig(t *testing.T) {
	// It looks for no cluster, of which there is none.
	out, err := run(t, "--validate-config", "--config="+file(t, "workers: 3\n"))
	if err != nil || out != "the configuration is valid\n" {
		t.Errorf("of a good file it says %q, %v", out, err)
	}
	if _, err := run(t, "--validate-config", "--config="+file(t, "worker: 3\n")); err == nil || !strings.Contains(err.Error(), "is it workers?") {
		t.Errorf("of a bad file it says %v", err)
	}
}

// Each field has a flag, and each flag a field, but for those that are about the file, and one that only ordinal up uses.
func TestEveryFlagIsAField(t *testing.T) {
	apart := []string{"config", "validate-config", "ready-socket"}
	var got []string
	New().Flags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(apart, flag.Name) {
			got = append(got, flag.Annotations[fieldAnnotation]...)
			if len(flag.Annotations[fieldAnnotation]) != 1 {
				t.Errorf("--%s sets the fields %q", flag.Name, flag.Annotations[fieldAnnotation])
			}
		}
	})
	slices.Sort(got)
	if want := config.Fields(); !slices.Equal(got, want) {
		t.Errorf("flags set %q, the fields are %q", got, want)
	}
}

// A flag sets the field that it names.
func TestFlagsSetTheirFields(t *testing.T) {
	for flag, field := range fields() {
		o := options{config: config.Default()}
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.register(f)
		text := map[string]string{"bool": "true", "stringSlice": "x", "duration": "7m", "int32": "7", "float32": "7", "string": "x"}[f.Lookup(flag).Value.Type()]
		if flag == "leader-elect" {
			text = "false"
		}
		if err := f.Set(flag, text); err != nil {
			t.Fatal(err)
		}
		// The same, from a file.
		keys := strings.Split(field, ".")
		if flag == "namespaces" {
			text = "[x]"
		}
		body := strings.Join(keys, ": {") + ": " + text + strings.Repeat("}", len(keys)-1) + "\n"
		want, err := config.Read(file(t, body))
		if err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(want.ControllerConfiguration, config.Default()) || !reflect.DeepEqual(o.config, want.ControllerConfiguration) {
			t.Errorf("--%s makes %+v, and %s makes %+v", flag, o.config, field, want.ControllerConfiguration)
		}
	}
}

// What the configuration says is what the controller does.
func TestControllerOptions(t *testing.T) {
	c := config.Default()
	c.Workers, c.Namespaces, c.Selector = 7, []string{"a"}, "team=db"
	c.LeaderElection.ResourceName = "mine"
	o, err := controllerOptions(&c)
	if err != nil {
		t.Fatal(err)
	}
	if o.Workers != 7 || !slices.Equal(o.Scope.Namespaces, c.Namespaces) || !o.Scope.Selector.Matches(labels.Set{"team": "db"}) ||
		o.Scope.Selector.Matches(labels.Set{"team": "web"}) || o.LeaseName != "mine" || !o.LeaderElect || o.LeaseDuration != 15*time.Second {
		t.Errorf("the options are %+v", o)
	}
	c.Selector = ""
	if o, err := controllerOptions(&c); err != nil || o.Scope.Selector != nil {
		t.Errorf("without a selector the scope is %+v, %v", o.Scope, err)
	}
}

// The metrics are served while the controller runs, and it is not ready before it has seen the cluster.
func TestControllerServesMetrics(t *testing.T) {
	serves(t, false, map[string]int{
		"/healthz": http.StatusOK, "/metrics": http.StatusOK, "/readyz": http.StatusServiceUnavailable,
		"/debug/pprof/": http.StatusNotFound, "/debug/pprof/heap": http.StatusNotFound,
	})
}

func TestControllerServesProfiles(t *testing.T) {
	serves(t, true, map[string]int{
		"/healthz": http.StatusOK, "/metrics": http.StatusOK, "/readyz": http.StatusServiceUnavailable,
		"/debug/pprof/": http.StatusOK, "/debug/pprof/heap": http.StatusOK,
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.Addr().String()
}

// serves runs a controller, which has to answer so on a free address.
func serves(t *testing.T, profiles bool, want map[string]int) {
	t.Helper()
	address, healthAddress := freeAddress(t), freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	status := func(address, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Error(err)
			return 0
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	// The API server, when it is asked first, looks at the controller that asks.
	var look sync.Once
	asked := false
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		look.Do(func() {
			defer stop()
			asked = true
			for path, code := range want {
				if got := status(address, path); got != code {
					t.Errorf("%s answers %d, want %d", path, got, code)
				}
			}
			for path, code := range map[string]int{
				"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound,
			} {
				if got := status(healthAddress, path); got != code {
					t.Errorf("beside, %s answers %d, want %d", path, got, code)
				}
			}
		})
	}))
	defer api.Close()
	o := options{config: config.Default()}
	o.config.Metrics = v1alpha1.Metrics{BindAddress: address, PProf: profiles}
	o.config.Health.BindAddress = healthAddress
	o.config.LeaderElection.LeaderElect = false
	if err := o.run(ctx, &rest.Config{Host: api.URL}); err != nil {
		t.Fatal(err)
	}
	if !asked {
		t.Error("the controller has asked nothing")
	}
}

func TestControllerFlags(t *testing.T) {
	f := New().Flags()
	for name, want := range map[string]string{
		"recreate-strategy": "false", "strict-upstream": "false", "metrics-bind-address": "", "pprof": "false", "workers": "20", "leader-elect": "true",
	} {
		if flag := f.Lookup(name); flag == nil || flag.DefValue != want {
			t.Errorf("--%s is %+v, want the default %q", name, flag, want)
		}
	}
}
