// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
)

var (
	givenSeed = flag.Uint64("seed", 0, "what is random follows it; 0 is another one each time")
	kills     = flag.Int("kills", 200, "how often the controller is killed")
)

func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *givenSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d", seed)
	return seed
}

// settling is how long sets may take to be right after a fault has ended.
const settling = 2 * time.Minute

// Real pods, in one cluster whose data are on a small disk of their own: each fault comes upon what the ones before have left.
func TestRealFaults(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("real pods need root; run: make test-faults (it asks sudo)")
	}
	seed := newSeed(t)
	c := newCluster(t)
	disk := c.mountDisk()
	c.up()
	if _, err := c.ordinal(t.Context(), "image", "import", filepath.Join(c.bin, "testimages", "busybox.tar")); err != nil {
		t.Fatal(err)
	}
	newWalk(c, seed, true).undergo(t, seed, []fault{
		{"controller", killController, true},
		{"API server", killParts("kube-apiserver"), true},
		{"datastore", killParts("etcd"), true},
		{"kubelet", killParts("kubelet"), true},
		{"containerd", killParts("containerd"), true},
		{"kubelet and containerd", killParts("kubelet", "containerd"), true},
		{"datastore, API server and controller", killParts("etcd", "kube-apiserver", ownController), true},
		{"everything", killEverything, false},
		{"disk full", func(w *walk, _ *rand.Rand) { w.fillDisk(disk) }, false},
	})
}

// The same with simulated nodes, where nothing hides what the control plane does behind the time that containers take.
func TestSimulatedFaults(t *testing.T) {
	seed := newSeed(t)
	c := newCluster(t, "--simulate", "--nodes", "2", "--pod-delay", "200ms")
	c.up()
	newWalk(c, seed, false).undergo(t, seed, []fault{
		{"controller", killController, true},
		{"API server", killParts("kube-apiserver"), true},
		{"datastore", killParts("etcd"), true},
		{"datastore, API server and controller", killParts("etcd", "kube-apiserver", ownController), true},
		{"everything", killEverything, true},
	})
}

// fault is one that a walk has to live through.
type fault struct {
	name string
	do   func(*walk, *rand.Rand)
	// calm tells that pods which nobody deletes have to be the same after it.
	calm bool
}

// undergo lets one fault after the other happen to a walk, each in a subtest.
func (w *walk) undergo(t *testing.T, seed uint64, faults []fault) {
	random := rand.New(rand.NewPCG(seed, 0))
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			w.during(t)
			w.begin()
			defer func() { w.stop() }()
			fault.do(w, random)
			w.settle(settling)
			if fault.calm {
				w.checkCalm()
			} else {
				w.calm = w.lives()
			}
		})
		if t.Failed() {
			return // what follows would tell of the same
		}
	}
}

// killController runs controllers one after the other, and kills each at a random moment.
func killController(w *walk, random *rand.Rand) {
	defer w.freezeController()()
	longest := time.Duration(0)
	for range *kills {
		cmd := w.command(w.Context(), layout.Controller, "--kubeconfig="+w.data.ComponentKubeconfig(ownController), "--leader-elect=false")
		if err := cmd.Start(); err != nil {
			w.Fatal(err)
		}
		// It takes some 300 ms to know the cluster: some die before, most amid their work.
		life := time.Duration(100+random.IntN(2400)) * time.Millisecond
		longest = max(longest, life)
		w.pause(life)
		w.signal(cmd.Process.Pid, syscall.SIGKILL)
		if err := cmd.Wait(); err == nil {
			w.Error("a killed controller ended well")
		}
	}
	w.Logf("%d controllers lived for at most %v each", *kills, longest)
}

// killParts kills parts of the cluster together, at three random moments.
func killParts(names ...string) func(*walk, *rand.Rand) {
	return func(w *walk, random *rand.Rand) {
		for range 3 {
			w.pause(time.Duration(random.IntN(4000)) * time.Millisecond)
			pids := w.mustParts(names...)
			for _, name := range names {
				w.signal(pids[name], syscall.SIGKILL)
			}
			w.eventually(patience, strings.Join(names, " and ")+" run again", func() error {
				now, err := w.parts()
				if err != nil {
					return err
				}
				for _, name := range names {
					if now[name] == 0 || now[name] == pids[name] {
						return fmt.Errorf("%s does not", name)
					}
				}
				return nil
			})
		}
	}
}

// killEverything kills the supervisor, its parts, the shims and the pods' processes, all at once, and starts the cluster again.
func killEverything(w *walk, random *rand.Rand) {
	for _, k := range w.kinds[1:] {
		if err := w.roll(w.Context(), k); err != nil {
			w.Fatal(err)
		}
	}
	w.pause(time.Duration(random.IntN(3000)) * time.Millisecond)
	pids := w.mustParts()
	var killed []int
	for _, pid := range pids {
		killed = append(killed, pid)
	}
	for range 3 { // some processes are only seen once those above them are gone
		if w.hasProcesses {
			killed = append(killed, ofPods(w.T)...)
		}
		for _, pid := range killed {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have died with another
		}
	}
	w.eventually(patience, "all is dead", func() error {
		if left := slices.DeleteFunc(slices.Clone(killed), isDead); len(left) > 0 {
			return fmt.Errorf("processes %v are not", left)
		}
		return nil
	})
	w.up()
}

// ofPods are the processes in pods, and the shims that hold them.
func ofPods(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		group, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cgroup"))
		command, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		isShim := strings.Contains(string(command), "containerd-shim-runc-v2") && strings.Contains(string(command), layout.RunDir)
		if strings.Contains(string(group), "kubepods") || isShim {
			found = append(found, pid)
		}
	}
	return found
}

// isDead tells that a process holds nothing any more: a killed one keeps its files until it is a zombie.
func isDead(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

// mountDisk puts the cluster's data on a disk of its own, and gives where that is mounted.
func (c *cluster) mountDisk() string {
	c.Helper()
	file, disk := filepath.Join(c.dir, "disk.img"), filepath.Join(c.dir, "disk")
	for _, args := range [][]string{
		{"truncate", "--size=3G", file}, {"mkfs.ext4", "-q", "-m", "0", file}, {"mkdir", disk}, {"mount", "-o", "loop", file, disk},
	} {
		if err := runTool(c.Context(), args...); err != nil {
			c.Fatal(err)
		}
	}
	c.atEnd(func(ctx context.Context) error { return runTool(ctx, "umount", disk) })
	c.data = layout.Data(filepath.Join(disk, "data"))
	return disk
}

func runTool(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// fillDisk takes every byte of the disk that datastore, images and volumes are on, and gives it back after half a minute.
func (w *walk) fillDisk(disk string) {
	filler := filepath.Join(disk, "filler")
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	refused := 0
	for ctx.Err() == nil { // what others free meanwhile is taken too
		if err := fill(ctx, filler); errors.Is(err, syscall.ENOSPC) {
			refused++
		} else if err != nil && ctx.Err() == nil {
			w.Fatal(err)
		}
		w.pause(poll)
	}
	if err := os.Remove(filler); err != nil {
		w.Fatal(err)
	}
	if refused == 0 {
		w.Fatal("the disk was never full")
	}
}

// fill writes to the end of a file until the disk is full.
func fill(ctx context.Context, name string) (err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zeros := make([]byte, 1<<20)
	for ctx.Err() == nil {
		if _, err := file.Write(zeros); err != nil {
			return err
		}
	}
	return ctx.Err()
}
