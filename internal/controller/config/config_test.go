// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
)

const header = "apiVersion: config.ordinal.dev/v1alpha1\nkind: ControllerConfiguration\n"

// Each field can be set.
func TestParse(t *testing.T) {
	f, err := Parse("c.yaml", []byte(header+`
workers: 7
namespaces: [a, "1"]
selector: team=db
recreateStrategy: true
strictUpstream: true
clientConnection:
  kubeconfig: /etc/kubeconfig
  qps: 1.5
  burst: 3
leaderElection:
  leaderElect: false
  resourceNamespace: ns
  resourceName: lease
  leaseDuration: 1m30s
  renewDeadline: 1m
  retryPeriod: 5s
metrics:
  bindAddress: 127.0.0.1:9090
  certFile: crt
  keyFile: key
  pprof: true
health: {bindAddress: ":8081"}
logging: {format: json, verbosity: 4}
tracing: {endpoint: "http://collector:4318"}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.ControllerConfiguration{
		TypeMeta:         Default().TypeMeta,
		Workers:          7,
		Namespaces:       []string{"a", "1"},
		Selector:         "team=db",
		RecreateStrategy: true,
		StrictUpstream:   true,
		ClientConnection: v1alpha1.ClientConnection{Kubeconfig: "/etc/kubeconfig", QPS: 1.5, Burst: 3},
		LeaderElection:   v1alpha1.LeaderElection{ResourceNamespace: "ns", ResourceName: "lease"},
		Metrics:          v1alpha1.Metrics{BindAddress: "127.0.0.1:9090", CertFile: "crt", KeyFile: "key", PProf: true},
		Health:           v1alpha1.Health{BindAddress: ":8081"},
		Logging:          v1alpha1.Logging{Format: "json", Verbosity: 4},
		Tracing:          v1alpha1.Tracing{Endpoint: "http://collector:4318"},
	}
	want.LeaderElection.LeaseDuration.Duration = 90 * time.Second
	want.LeaderElection.RenewDeadline.Duration = time.Minute
	want.LeaderElection.RetryPeriod.Duration = 5 * time.Second
	if !reflect.DeepEqual(f.ControllerConfiguration, want) {
		t.Errorf("read is %+v, want %+v", f.ControllerConfiguration, want)
	}
	if problems := Validate(&f.ControllerConfiguration); len(problems) > 0 {
		t.Errorf("it is refused: %+v", problems)
	}
	for _, field := range Fields() {
		if !f.Names(field) {
			t.Errorf("it is said not to set %s", field)
		}
	}
	if f.Names("workers.nothing") || (*File)(nil).Names("workers") {
		t.Error("it is said to set what it does not")
	}
}

// What is left out, or null, has its default. JSON is YAML.
func TestDefaults(t *testing.T) {
	for _, text := range []string{
		header,
		header + "workers:\nleaderElection:\n  leaderElect: ~\nmetrics: null\nnamespaces:\n",
		`{"apiVersion": "config.ordinal.dev/v1alpha1", "kind": "ControllerConfiguration"}`,
		"# first\n---\n" + header,
	} {
		f, err := Parse("c.yaml", []byte(text))
		if err != nil || f.Refuse(nil) != nil || !reflect.DeepEqual(f.ControllerConfiguration, Default()) {
			t.Errorf("%q is read as %+v, %v", text, f, err)
		}
	}
	if c := Default(); len(Validate(&c)) > 0 {
		t.Errorf("the defaults are refused: %+v", Validate(&c))
	}
}

// Each mistake is told with its line and field, and all of them at once.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                             {"c.yaml:1: apiVersion: is missing: must be config.ordinal.dev/v1alpha1", "c.yaml:1: kind: is missing: must be ControllerConfiguration"},
		"apiVersion: v1\nkind: Pod":                    {`c.yaml:1: apiVersion: must be config.ordinal.dev/v1alpha1, not "v1"`, `c.yaml:2: kind: must be ControllerConfiguration, not "Pod"`},
		"- a":                                          {"c.yaml:1: must hold fields, not a list", "c.yaml:1: apiVersion: is missing: must be config.ordinal.dev/v1alpha1", "c.yaml:1: kind: is missing: must be ControllerConfiguration"},
		header + "---\n" + header:                      {"c.yaml:3: there is more than one document"},
		header + "workers: [":                          {"c.yaml:3: did not find expected node content"},
		header + "\tworkers: 1":                        {"c.yaml:2: found a tab character that violates indentation"},
		header + "workers: many":                       {`c.yaml:3: workers: must be a whole number, not "many"`},
		header + "workers: 1.5":                        {"c.yaml:3: workers: must be a whole number, not 1.5"},
		header + "workers: 99999999999":                {"c.yaml:3: workers: must be a whole number that is not as large as 99999999999"},
		header + "workers: {a: 1}":                     {"c.yaml:3: workers: must be a whole number, not fields"},
		header + "strictUpstream: yes":                 {`c.yaml:3: strictUpstream: must be true or false, not "yes"`},
		header + "selector: 1":                         {"c.yaml:3: selector: must be text, so 1 needs quotes"},
		header + "selector: [a]":                       {"c.yaml:3: selector: must be text, not a list"},
		header + "namespaces: a":                       {`c.yaml:3: namespaces: must be a list, not "a"`},
		header + "namespaces:\n- a\n- true":            {"c.yaml:5: namespaces[1]: must be text, so true needs quotes"},
		header + "metrics: on":                         {`c.yaml:3: metrics: must hold fields, not "on"`},
		header + "leaderElection:\n  retryPeriod: 2":   {"c.yaml:4: leaderElection.retryPeriod: must be a duration such as 15s, not 2"},
		header + "clientConnection: {qps: fast}":       {`c.yaml:3: clientConnection.qps: must be a number, not "fast"`},
		header + "workers: 1\nlogging: {}\nworkers: 2": {"c.yaml:5: workers: is in line 3 already"},
		header + "a: 1\nworker: 1\nkubeApiQPS: 1": {
			"c.yaml:3: a: is no field", "c.yaml:4: worker: is no field; is it workers?", "c.yaml:5: kubeApiQPS: is no field",
		},
		header + "leaderElect: true\nqps: 1\nleader-election: {}": {
			"c.yaml:3: leaderElect: is no field; is it leaderElection.leaderElect?", "c.yaml:4: qps: is no field; is it clientConnection.qps?",
			"c.yaml:5: leader-election: is no field; is it leaderElection?",
		},
		header + "metrics:\n  bindAdress: x\n  Pprof: 1": {
			"c.yaml:4: metrics.bindAdress: is no field; is it metrics.bindAddress?", "c.yaml:5: metrics.Pprof: is no field; is it metrics.pprof?",
		},
	} {
		f, err := Parse("c.yaml", []byte(text))
		if err == nil {
			err = f.Refuse(nil)
		}
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
			t.Errorf("%q is refused with\n%s\nwant\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "c.yaml")
	if _, err := Read(name); err == nil {
		t.Error("a file that is not there is read")
	}
	if err := os.WriteFile(name, []byte(header+"workers: 0\nlog: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Refuse(Validate(&f.ControllerConfiguration))
	if want := name + ":3: workers: must be at least 1, not 0\n" + name + ":4: log: is no field"; err == nil || err.Error() != want {
		t.Errorf("it is refused with %v, want %s", err, want)
	}
}

func TestValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*v1alpha1.ControllerConfiguration)
		want   []string
	}{
		"workers":        {func(c *v1alpha1.ControllerConfiguration) { c.Workers = -1 }, []string{"workers must be at least 1, not -1"}},
		"qps":            {func(c *v1alpha1.ControllerConfiguration) { c.ClientConnection.QPS = 0 }, []string{"clientConnection.qps must be more than 0, not 0"}},
		"burst":          {func(c *v1alpha1.ControllerConfiguration) { c.ClientConnection.Burst = 0 }, []string{"clientConnection.burst must be at least 1, not 0"}},
		"namespace":      {func(c *v1alpha1.ControllerConfiguration) { c.Namespaces = []string{"a", "B", "a"} }, []string{`namespaces[1] must be the name of a namespace, not "B"`, "namespaces[2] is there twice: a"}},
		"log format":     {func(c *v1alpha1.ControllerConfiguration) { c.Logging.Format = "" }, []string{`logging.format must be text or json, not ""`}},
		"verbosity":      {func(c *v1alpha1.ControllerConfiguration) { c.Logging.Verbosity = -1 }, []string{"logging.verbosity must be at least 0, not -1"}},
		"lease":          {func(c *v1alpha1.ControllerConfiguration) { c.LeaderElection.ResourceName = "A" }, []string{`leaderElection.resourceName must be the name of a lease, not "A"`}},
		"its namespace":  {func(c *v1alpha1.ControllerConfiguration) { c.LeaderElection.ResourceNamespace = "" }, []string{`leaderElection.resourceNamespace must be the name of a namespace, not ""`}},
		"lease too long": {func(c *v1alpha1.ControllerConfiguration) { c.LeaderElection.RenewDeadline.Duration = time.Minute }, []string{"leaderElection.leaseDuration must be longer than leaderElection.renewDeadline, which is 1m0s, not 15s"}},
		"retry":          {func(c *v1alpha1.ControllerConfiguration) { c.LeaderElection.RetryPeriod.Duration = 9 * time.Second }, []string{"leaderElection.renewDeadline must be more than 1.2 times leaderElection.retryPeriod, which is 9s, not 10s"}},
		"no retry":       {func(c *v1alpha1.ControllerConfiguration) { c.LeaderElection.RetryPeriod.Duration = 0 }, []string{"leaderElection.retryPeriod must be more than 0, not 0s"}},
		"no election":    {func(c *v1alpha1.ControllerConfiguration) { c.LeaderElection = v1alpha1.LeaderElection{} }, nil},
		"metrics": {func(c *v1alpha1.ControllerConfiguration) {
			c.Metrics = v1alpha1.Metrics{CertFile: "c", KeyFile: "k", PProf: true}
		}, []string{
			"metrics.certFile needs metrics.bindAddress", "metrics.keyFile needs metrics.bindAddress", "metrics.pprof needs metrics.bindAddress",
		}},
		"no key": {func(c *v1alpha1.ControllerConfiguration) {
			c.Metrics = v1alpha1.Metrics{BindAddress: ":1", CertFile: "c"}
		}, []string{"metrics.certFile needs metrics.keyFile"}},
		"no cert": {func(c *v1alpha1.ControllerConfiguration) {
			c.Metrics = v1alpha1.Metrics{BindAddress: ":1", KeyFile: "c"}
		}, []string{"metrics.keyFile needs metrics.certFile"}},
		"address": {func(c *v1alpha1.ControllerConfiguration) { c.Health.BindAddress = "host" }, []string{`health.bindAddress must be a host and a port, such as 127.0.0.1:9090, not "host"`}},
		"port":    {func(c *v1alpha1.ControllerConfiguration) { c.Metrics.BindAddress = ":99999" }, []string{`metrics.bindAddress must be a host and a port, such as 127.0.0.1:9090, not ":99999"`}},
		"traces":  {func(c *v1alpha1.ControllerConfiguration) { c.Tracing.Endpoint = "grpc://x" }, []string{`tracing.endpoint must be a URL such as http://collector:4318, not "grpc://x"`}},
		"many":    {func(c *v1alpha1.ControllerConfiguration) { c.Workers, c.Logging.Format = 0, "x" }, []string{"workers must be at least 1, not 0", `logging.format must be text or json, not "x"`}},
	} {
		c := Default()
		tt.change(&c)
		var got []string
		for _, p := range Validate(&c) {
			got = append(got, p.Field+" "+p.Text)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: problems are %q, want %q", name, got, tt.want)
		}
	}
	c := Default()
	c.Selector = "a in (b"
	if p := Validate(&c); len(p) != 1 || p[0].Field != "selector" || !strings.Contains(p[0].Text, "kubectl get -l") {
		t.Errorf("of a bad selector it says %+v", p)
	}
}

func TestEdits(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"worker", "workers", 1}, {"wrokers", "workers", 2}, {"qps", "burst", 4}, {"abc", "abc", 0}} {
		if got := edits(tt.a, tt.b); got != tt.want {
			t.Errorf("from %q to %q there are %d edits, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
