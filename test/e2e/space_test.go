// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// space is a namespace of a cluster, for one test.
type space struct {
	*testing.T
	cluster *cluster
	name    string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// newSpace makes a namespace named after the test.
func newSpace(t *testing.T, c *cluster) *space {
	t.Helper()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	s := &space{T: t, cluster: c, name: name}
	s.kubectl("create", "namespace", name)
	return s
}

// in is the space for a subtest.
func (s *space) in(t *testing.T) *space {
	return &space{T: t, cluster: s.cluster, name: s.name}
}

// command is a kubectl command line in this namespace.
func (s *space) command(args ...string) *exec.Cmd {
	return s.cluster.command(s.Context(), append([]string{"kubectl", "-n", s.name}, args...)...)
}

// try runs kubectl in this namespace and gives whatever it says.
func (s *space) try(args ...string) output { return finish(s.command(args...)) }

// kubectl runs kubectl in this namespace, which has to succeed, and gives its standard output.
func (s *space) kubectl(args ...string) string {
	s.Helper()
	out := s.try(args...)
	if err := out.err(); err != nil {
		s.Fatal(err)
	}
	return out.stdout
}

// apply applies a manifest, a text or anything that marshals to one object, or ends the test.
func (s *space) apply(manifest any) {
	s.Helper()
	if err := s.tryApply(manifest); err != nil {
		s.Fatal(err)
	}
}

func (s *space) tryApply(manifest any) error {
	text, isText := manifest.(string)
	if !isText {
		encoded, err := json.Marshal(manifest)
		if err != nil {
			return err
		}
		text = string(encoded)
	}
	cmd := s.command("apply", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	return finish(cmd).err()
}

// get decodes what `kubectl get ARGS -o json` gives.
func get[T any](s *space, args ...string) T {
	s.Helper()
	object, err := tryGet[T](s, args...)
	if err != nil {
		s.Fatal(err)
	}
	return object
}

func tryGet[T any](s *space, args ...string) (T, error) {
	var object T
	out := s.try(append([]string{"get", "-o", "json"}, args...)...)
	if err := out.err(); err != nil {
		return object, err
	}
	err := json.Unmarshal([]byte(out.stdout), &object)
	return object, err
}

// pods are the pods of the namespace with the label of the walk-through, by name.
func (s *space) pods() map[string]corev1.Pod {
	s.Helper()
	byName := map[string]corev1.Pod{}
	for _, pod := range get[corev1.PodList](s, "pods", "-l", "app=my-app").Items {
		byName[pod.Name] = pod
	}
	return byName
}

// claims are the claims of the namespace, by name.
func (s *space) claims() map[string]corev1.PersistentVolumeClaim {
	s.Helper()
	byName := map[string]corev1.PersistentVolumeClaim{}
	for _, claim := range get[corev1.PersistentVolumeClaimList](s, "pvc").Items {
		byName[claim.Name] = claim
	}
	return byName
}

// exec runs a shell line in a pod and gives what it prints.
func (s *space) exec(pod, line string) string {
	s.Helper()
	return strings.TrimSpace(s.kubectl("exec", pod, "--", "sh", "-c", line))
}

// awaitReady waits until the set web has n ready pods and no other.
func (s *space) awaitReady(n int) {
	s.Helper()
	s.kubectl("wait", "sts/web", fmt.Sprintf("--for=jsonpath={.status.readyReplicas}=%d", n), "--timeout="+patience.String())
	s.eventually(patience, fmt.Sprintf("%d pods, all ready", n), func() error {
		pods, err := tryGet[corev1.PodList](s, "pods", "-l", "app=my-app")
		if err != nil {
			return err
		}
		if len(pods.Items) != n {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		for _, pod := range pods.Items {
			if !isReady(&pod) || pod.DeletionTimestamp != nil {
				return fmt.Errorf("%s is not ready", pod.Name)
			}
		}
		return nil
	})
}

// eventually ends the test unless the check passes within the time.
func (s *space) eventually(within time.Duration, what string, check func() error) {
	s.Helper()
	eventually(s.T, within, what, check)
}

func eventually(t *testing.T, within time.Duration, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, within, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("not within %v: %s: %v", within, what, last)
	}
}

// throughout ends the test unless the check passes all the time.
func (s *space) throughout(period time.Duration, what string, check func() error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), period)
	defer cancel()
	var broken error
	wait.UntilWithContext(ctx, func(context.Context) {
		if broken = check(); broken != nil {
			cancel()
		}
	}, 200*time.Millisecond)
	if broken != nil {
		s.Fatalf("within %v: %s: %v", period, what, broken)
	}
}

// follower is a running command whose output is read as it comes.
type follower struct {
	*testing.T
	args string
	in   io.Writer

	mu   sync.Mutex
	text bytes.Buffer
}

// follow starts a command; it is killed at the end of the test. Everything it prints is kept.
func follow(t *testing.T, cmd *exec.Cmd) *follower {
	t.Helper()
	f := &follower{T: t, args: strings.Join(cmd.Args[1:], " ")}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.in = in
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
	})
	return f
}

// Write takes what the command prints.
func (f *follower) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(p)
}

// said is all that the command has printed so far.
func (f *follower) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// expect waits until the command has printed something that matches, and gives the last match with its groups.
func (f *follower) expect(pattern string) []string {
	f.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(f.T, patience, "`"+f.args+"` prints "+pattern, func() error {
		all := re.FindAllStringSubmatch(f.said(), -1)
		if len(all) == 0 {
			return fmt.Errorf("it said:\n%s", f.said())
		}
		found = all[len(all)-1]
		return nil
	})
	return found
}

// send types a line.
func (f *follower) send(line string) {
	f.Helper()
	if _, err := io.WriteString(f.in, line+"\n"); err != nil {
		f.Fatalf("type %q: %v", line, err)
	}
}

// terminal starts kubectl on a pseudo terminal, as a person would have it.
func (s *space) terminal(args ...string) *follower {
	s.Helper()
	cmd := s.command(args...)
	quoted := make([]string, len(cmd.Args))
	for i, arg := range cmd.Args {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	script := exec.CommandContext(s.Context(), "script", "--quiet", "--flush", "--command", strings.Join(quoted, " "), "/dev/null")
	script.Env, script.Dir, script.WaitDelay = cmd.Env, cmd.Dir, cmd.WaitDelay
	return follow(s.T, script)
}

// lines calls f for every line until the reader ends.
func lines(r io.Reader, f func(string)) error {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		f(scanner.Text())
	}
	return scanner.Err()
}
