// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Whatever keeps a cluster from starting is told in one line with the remedy, damages nothing, and once it is mended the
// cluster comes up with everything it had.
func TestUpIsRefused(t *testing.T) {
	c := ownCluster(t)
	disk := mountDisk(t, c)
	c.mustStart(t)
	if err := c.importImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t, c)
	s.webOf(1)
	s.mark(1)
	c.mustStop(t)

	refused := func(name string, up func(t *testing.T) output, remedy ...string) {
		t.Run(name, func(t *testing.T) {
			before := fingerprint(t, c.data)
			checkRefusal(t, up(t), remedy...)
			if after := fingerprint(t, c.data); after != before {
				t.Errorf("the data directory was changed:\n%s", difference(before, after))
			}
			if left := describe(processes()); len(left) > 0 {
				t.Errorf("it left running: %v", left)
			}
		})
	}
	plain := func(t *testing.T) output { return c.run(t.Context(), c.upArgs()...) }

	refused("port taken", func(t *testing.T) output {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.port))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return plain(t)
	}, strconv.Itoa(c.port), `--api-port|kill|stop`)
	refused("not root", func(t *testing.T) output {
		return finish(asNobody(t, c.command(t.Context(), c.upArgs()...)))
	}, `root`, `sudo`)
	refused("runc missing", func(t *testing.T) output { return finish(withoutRunc(t, c, c.upArgs()...)) }, `runc`, `apt-get install runc`)
	refused("runc missing, in the foreground", func(t *testing.T) output {
		return finish(withoutRunc(t, c, "up", "--api-port", strconv.Itoa(c.port)))
	}, `runc`, `apt-get install runc`)
	refused("disk full", func(t *testing.T) output {
		filler := filepath.Join(disk, "filler")
		if out, err := exec.CommandContext(t.Context(), "fallocate", "-l", strconv.FormatInt(freeSpace(t, disk)-64<<20, 10), filler).CombinedOutput(); err != nil {
			t.Fatalf("fill the disk: %v: %s", err, out)
		}
		defer os.Remove(filler)
		return plain(t)
	}, `free`, `disk`)
	refused("read-only disk", func(t *testing.T) output {
		remount(t, disk, "ro")
		defer remount(t, disk, "rw")
		return plain(t)
	}, `read-only`, `--data-dir|remount`)
	for _, name := range []string{"pki/ca.crt", "pki/ca.key", "pki/service-account.key"} {
		refused("half-written "+name, func(t *testing.T) output {
			defer cut(t, filepath.Join(c.data, name), 100)()
			return plain(t)
		}, regexp.QuoteMeta(name), `restore|purge|delete|remove`)
	}
	t.Run("half-written datastore", func(t *testing.T) {
		defer cut(t, filepath.Join(c.data, "etcd", "member", "snap", "db"), 2*4096)() // the pages that tell where all others are
		checkRefusal(t, plain(t), `etcd`, `restore|purge`)
		if left := describe(processes()); len(left) > 0 {
			t.Errorf("it left running: %v", left)
		}
	})
	t.Run("file in place of the data directory", func(t *testing.T) {
		other := *c
		other.data = filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(other.data, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		checkRefusal(t, other.run(t.Context(), other.upArgs()...), regexp.QuoteMeta(other.data)+`.* not a directory`, `--data-dir`)
		if content, err := os.ReadFile(other.data); err != nil || string(content) != "precious" {
			t.Errorf("the file now holds %q: %v", content, err)
		}
	})

	// What is only a note of the last run may be anything.
	if err := os.WriteFile(filepath.Join(c.data, "state.json"), []byte(`{"compo`), 0o600); err != nil {
		t.Fatal(err)
	}
	c.mustStart(t)
	s.awaitReady(1)
	s.checkMarks(1)
	t.Run("disk fills up while it runs", func(t *testing.T) { fillUp(s.in(t), disk) })
}

// fillUp takes every byte of the disk that the cluster's data is on, gives it back, and looks what has become of the cluster.
func fillUp(s *space, disk string) {
	filler := filepath.Join(disk, "filler")
	fill := exec.CommandContext(s.Context(), "sh", "-c", "head -c 100G /dev/zero > "+filler)
	if out, err := fill.CombinedOutput(); err == nil || !strings.Contains(string(out), "No space left") {
		s.Fatalf("fill the disk: %v: %s", err, out)
	}
	// Writes may be refused or, while the datastore's log has room, succeed: what counts is that none is lost.
	kept := map[string]bool{}
	for i := range 20 {
		name := fmt.Sprintf("written-%d", i)
		kept[name] = s.try("create", "configmap", name, "--from-literal=text="+strings.Repeat("x", 100_000), "--request-timeout=5s").code == 0
	}
	// The kubelet looks at the disk every ten seconds, and may evict pods then. The disk may be too full for it to say so.
	pressure := s.try("wait", "node/ordinal", "--for=condition=DiskPressure", "--timeout=25s")
	s.Logf("does the node tell that its disk is full: %s", said(pressure))
	if err := os.Remove(filler); err != nil {
		s.Fatal(err)
	}
	s.eventually(patience, "the cluster takes writes again", func() error {
		return s.try("create", "configmap", "afterwards", "--request-timeout=5s").err()
	})
	for name, there := range kept {
		if there {
			s.kubectl("get", "configmap", name)
		}
	}
	s.eventually(patience, "all parts run", func() error {
		for name, part := range s.cluster.mustStatus(s.T) {
			if part.State != running {
				return fmt.Errorf("%s is %+v", name, part)
			}
		}
		return nil
	})
	s.kubectl("scale", "sts/web", "--replicas=2")
	s.awaitReady(2) // the kubelet may have evicted what was there
	s.checkMarks(1)
}

// checkRefusal checks that a command has failed and said why, and what to do, in one line.
func checkRefusal(t *testing.T, out output, patterns ...string) {
	t.Helper()
	said := strings.TrimSpace(out.stderr)
	t.Logf("exit code %d: %s", out.code, said)
	if out.code <= 0 {
		t.Errorf("exit code is %d", out.code)
	}
	if said == "" || strings.Contains(said, "\n") {
		t.Errorf("it does not say why in one line: %q", out.stderr)
	}
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(said) {
			t.Errorf("%q does not match %s", said, pattern)
		}
	}
}

// mountDisk puts the cluster's data on a disk of its own, and gives where that is mounted.
func mountDisk(t *testing.T, c *cluster) string {
	t.Helper()
	file, disk := filepath.Join(c.dir, "disk.img"), filepath.Join(c.dir, "disk")
	for _, args := range [][]string{
		{"truncate", "--size=4G", file},
		{"mkfs.ext4", "-q", "-m", "0", file},
		{"mkdir", disk},
		{"mount", "-o", "loop", file, disk},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	c.mounted = disk
	c.data = filepath.Join(disk, "data")
	c.kubeconfig = filepath.Join(c.data, "kubeconfig")
	return disk
}

func remount(t *testing.T, disk, mode string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "remount,"+mode, disk).CombinedOutput(); err != nil {
		t.Fatalf("remount %s: %v: %s", mode, err, out)
	}
}

func freeSpace(t *testing.T, disk string) int64 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "df", "--output=avail", "-B1", disk).Output()
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(out))
	free, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// asNobody makes a command run as a user without rights. The program is opened beforehand: where it lies may be closed to them.
func asNobody(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	program, err := os.Open(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	cmd.ExtraFiles = []*os.File{program}
	cmd.Path, cmd.Dir = "/proc/self/fd/3", "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// withoutRunc is `ordinal ARGS…` on a host that has no runc: for this one command something else lies over it.
func withoutRunc(t *testing.T, c *cluster, args ...string) *exec.Cmd {
	t.Helper()
	mounts := map[string]string{}
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if runc := filepath.Join(dir, "runc"); exists(runc) {
			mounts[runc] = "/dev/null"
		}
	}
	return c.onChangedHost(t.Context(), mounts, args...)
}

// cut leaves only the beginning of a file, as a crash in the midst of writing would, and returns what mends it.
func cut(t *testing.T, file string, size int64) (mend func()) {
	t.Helper()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// fingerprint tells everything in a data directory, but for logs, the lock, and the note of what runs.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if name == "log" {
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err != nil || name == "lock" || name == "state.json" {
			return err
		}
		fmt.Fprintf(&text, "%s %v", name, info.Mode())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, " %d %x", len(content), sha256.Sum256(content))
		}
		text.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// difference are the lines that only one of two texts has.
func difference(before, after string) string {
	var text strings.Builder
	for sign, pair := range map[string][2]string{"-": {before, after}, "+": {after, before}} {
		for line := range strings.Lines(pair[0]) {
			if !strings.Contains(pair[1], line) {
				text.WriteString(sign + " " + line)
			}
		}
	}
	return text.String()
}

// unmount undoes mountDisk.
func (c *cluster) unmount(ctx context.Context) error {
	if c.mounted == "" {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "umount", c.mounted).CombinedOutput(); err != nil {
		return fmt.Errorf("umount %s: %w: %s", c.mounted, err, out)
	}
	return nil
}
