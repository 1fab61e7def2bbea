// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/ordinal-dev/ordinal/internal/cluster/layout"
	"github.com/ordinal-dev/ordinal/internal/cluster/supervise"
)

// Phase is what a cluster as a whole does.
type Phase string

// The phases of a cluster. PhaseDead is only ever observed: its `ordinal up` ended without saying so.
const (
	PhaseStarting Phase = "starting"
	PhaseReady    Phase = "ready"
	PhaseStopping Phase = "stopping"
	PhaseStopped  Phase = "stopped"
	PhaseFailed   Phase = "failed"
	PhaseDead     Phase = "dead"
)

// Over tells whether no process of the cluster runs any more.
func (p Phase) Over() bool { return p == PhaseStopped || p == PhaseFailed || p == PhaseDead }

// State is what `ordinal up` publishes in its data directory for `status`, `down` and a detached start.
type State struct {
	PID        int       `json:"pid"`
	Version    string    `json:"version"`
	Started    time.Time `json:"started"`
	Phase      Phase     `json:"phase"`
	Error      string    `json:"error,omitempty"`
	Kubeconfig string    `json:"kubeconfig"`
	APIPort    int       `json:"apiPort"`
	// Simulated says that the cluster's nodes are: it has nothing on the host but its processes and its data directory.
	Simulated bool `json:"simulated,omitempty"`
	// PodsLeft counts the pods that are still to end while the cluster stops.
	PodsLeft   int                `json:"podsLeft,omitempty"`
	Components []supervise.Status `json:"components"`
}

// ReadState reads what the last `ordinal up` of a data directory published. Whether it still runs is told by its lock, so
// a phase that a killed process left behind is corrected. fs.ErrNotExist means that none ever ran.
func ReadState(dataDir string) (State, error) {
	data := layout.Data(dataDir)
	content, err := os.ReadFile(data.State())
	if err != nil {
		return State{}, err
	}
	var state State
	if err := json.Unmarshal(content, &state); err != nil {
		// The file only tells what was; the next start writes it anew.
		state = State{Phase: PhaseDead, Error: fmt.Sprintf("%s is damaged: %v", data.State(), err)}
	}
	held, err := isLocked(data.Lock())
	if err != nil {
		return State{}, err
	}
	if !held && state.Phase != PhaseStopped && state.Phase != PhaseFailed {
		state.Phase = PhaseDead
	}
	return state, nil
}

// statePublisher writes the state at every change.
type statePublisher struct {
	file string

	mu    sync.Mutex
	state State
}

func newStatePublisher(file string, initial State) *statePublisher {
	p := &statePublisher{file: file, state: initial}
	p.change(func(*State) {})
	return p
}

func (p *statePublisher) change(change func(*State)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.state)
	content, err := json.MarshalIndent(p.state, "", "  ")
	if err != nil {
		return
	}
	// Readers must never see half a file. It need not survive a power cut, so it is not synced; nor may a full disk stop us.
	next := p.file + ".next"
	if os.WriteFile(next, content, 0o600) == nil {
		_ = os.Rename(next, p.file)
	}
}

func (p *statePublisher) phase(phase Phase) {
	p.change(func(s *State) { s.Phase = phase })
}

func (p *statePublisher) fail(err error) {
	p.change(func(s *State) { s.Phase, s.Error = PhaseFailed, err.Error() })
}

func (p *statePublisher) components(list []supervise.Status) {
	p.change(func(s *State) { s.Components = list })
}

func (p *statePublisher) podsLeft(left int) { p.change(func(s *State) { s.PodsLeft = left }) }

// IsNeverStarted tells whether an error of ReadState means that the data directory has no cluster.
func IsNeverStarted(err error) bool { return errors.Is(err, fs.ErrNotExist) }
