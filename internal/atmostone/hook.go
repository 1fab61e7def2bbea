// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package atmostone

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is how long a container waits for those of another pod. The kubelet ends a pod that was deleted by force within
	// some two seconds. What takes longer hangs: then the kubelet is told, makes an event of it and tries again later. A pod
	// that waits cannot be deleted meanwhile.
	patience = 30 * time.Second
	// recheck is how long a wait goes without looking around.
	recheck = time.Second
	// lockPatience bounds the wait for the lock, which is held for milliseconds. It orders starts at the same instant; that
	// is not worth stopping every pod for, should somebody have frozen its holder.
	lockPatience = 5 * time.Second
	lockPoll     = 5 * time.Millisecond
)

// record is the file in a container's bundle by which later starts know that it was allowed to start, and whose it is. The
// runtime deletes it with the bundle, so none outlives its container for long, and none a reboot.
const record = "ordinal-pod.json"

// state is what an OCI runtime tells its hooks of a container.
type state struct {
	ID          string            `json:"id"`
	Bundle      string            `json:"bundle"`
	Annotations map[string]string `json:"annotations"`
}

// pod is whose container it is. It is empty for a container that belongs to no pod, and for the one that only holds a pod's
// namespaces, as that has no access to its volumes.
func (s state) pod() Pod {
	const prefix = "io.kubernetes.cri."
	if s.Annotations[prefix+"container-type"] != "container" {
		return Pod{}
	}
	return Pod{
		Namespace: s.Annotations[prefix+"sandbox-namespace"],
		Name:      s.Annotations[prefix+"sandbox-name"],
		UID:       s.Annotations[prefix+"sandbox-uid"],
	}
}

// Hook is the body of an OCI createRuntime hook, which the runtime runs when a container is set up and before its program
// starts. It reads the container's state and returns nil once that program may start. It keeps nothing in memory and needs
// nobody else to be alive: what it has to know is in the bundles of the containers, which lie side by side.
func Hook(in io.Reader) error {
	var s state
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return fmt.Errorf("read the container's state: %w", err)
	}
	if s.pod() == (Pod{}) {
		return nil
	}
	return gate{processes: "/proc", patience: patience}.pass(s)
}

// gate lets containers start, one pod of a name at a time.
type gate struct {
	processes string // where the kernel shows processes
	patience  time.Duration
}

// pass returns nil when the container may start, and an error when it should not wait longer.
func (g gate) pass(s state) error {
	end := time.Now().Add(g.patience)
	for {
		alive, err := g.try(s)
		if err == nil && len(alive) > 0 {
			err = g.await(s.pod(), alive, time.Until(end))
		}
		closeAll(alive)
		if err != nil || len(alive) == 0 {
			return err
		}
	}
}

// await returns when one of the processes that are in a pod's way has ended, or after a while. It is an error to have no time left.
func (g gate) await(pod Pod, alive []process, left time.Duration) error {
	if left <= 0 {
		return fmt.Errorf("another pod %s of namespace %s still runs, and no two of a name may run at once: %s has not ended",
			pod.Name, pod.Namespace, alive[0].describe(g.processes))
	}
	_, err := anyEnded(alive, min(recheck, left))
	return err
}

// try records that the container may start, or gives the processes that it has to wait for.
func (g gate) try(s state) ([]process, error) {
	bundles := filepath.Dir(s.Bundle)
	unlock, err := lock(bundles)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, c := range InTheWay(s.pod(), startedIn(bundles)) {
		alive, err := livingProcesses(g.processes, c.ID)
		if err != nil || len(alive) > 0 {
			return alive, errors.Join(err, stillThere(s.Bundle))
		}
	}
	content, err := json.Marshal(s.pod())
	if err != nil {
		return nil, err
	}
	// Where the bundle is gone, the runtime has given up the start.
	if err := os.WriteFile(filepath.Join(s.Bundle, record), content, 0o600); err != nil {
		return nil, fmt.Errorf("record the start: %w", err)
	}
	return nil, nil
}

// stillThere is an error when the runtime has given up a start, and removed its bundle.
func stillThere(bundle string) error {
	if _, err := os.Stat(bundle); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the start was given up: %w", err)
	}
	return nil
}

// startedIn reads the records of all bundles. One that cannot be read is no longer there, or never was.
func startedIn(bundles string) []Container {
	files, _ := filepath.Glob(filepath.Join(bundles, "*", record))
	var started []Container
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		c := Container{ID: filepath.Base(filepath.Dir(file))}
		if json.Unmarshal(content, &c.Pod) == nil {
			started = append(started, c)
		}
	}
	return started
}

// lock makes looking and recording one step, for all containers below a directory. The kernel lets go of the lock when its
// holder ends, however it ends.
func lock(dir string) (unlock func(), err error) {
	held, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for end := time.Now().Add(lockPatience); time.Now().Before(end); time.Sleep(lockPoll) {
		err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return func() { _ = held.Close() }, nil
}
