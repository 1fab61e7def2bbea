// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package supervise keeps child processes running: started, ready-checked, logged, restarted with back-off, stopped, and dead when their parent is.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Process describes one child.
type Process struct {
	// Name is the component's name, unique in a Supervisor.
	Name string
	// Path, Args and Env are what is executed. Env is added to the parent's environment.
	Path string
	Args []string
	Env  []string
	// Log takes what the child prints.
	Log io.Writer
	// LogFile is where Log ends up, for people to read.
	LogFile string
	// Ready answers nil once the child does its work. It is asked every few milliseconds until then.
	Ready func(ctx context.Context) error
	// Grace is how long the child may take to end after SIGTERM.
	Grace time.Duration
	// Follows names a child with which this one is started anew, because it would be late to notice that the other is back; empty for none.
	Follows string
}

// State is what a child does at the moment.
type State string

// The states of a child.
const (
	Starting   State = "starting"
	Running    State = "running"
	Restarting State = "restarting"
	Stopping   State = "stopping"
	Stopped    State = "stopped"
)

// Status is a child as others see it.
type Status struct {
	Name     string `json:"name"`
	State    State  `json:"state"`
	PID      int    `json:"pid,omitempty"`
	Restarts int    `json:"restarts"`
	// ReadyAfter is the time from the last start until the child was ready.
	ReadyAfter time.Duration `json:"readyAfterNanoseconds,omitempty"`
	// LastExit tells how the child ended last time.
	LastExit string `json:"lastExit,omitempty"`
	Log      string `json:"log,omitempty"`
}

const (
	readyPoll = 20 * time.Millisecond
	// firstStarts is how often a child may end before it was ever ready until its start counts as failed.
	firstStarts = 3
	// steady is how long a child must have run for its next restart to come at once again.
	steady = 30 * time.Second
)

// restartBackoff spaces the restarts of a child that keeps ending.
func restartBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 8, Cap: 10 * time.Second}
}

// ExitError tells that a child ended before it was ever ready.
type ExitError struct {
	Name string
	// Exit is how it ended, Reason the line of its output that most likely tells why.
	Exit, Reason string
	LogFile      string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s does not start (%s): %s (log: %s)", e.Name, e.Exit, e.Reason, e.LogFile)
}

// Supervisor owns children. All methods may be called from several goroutines.
type Supervisor struct {
	spawner  *spawner
	onChange func([]Status)

	mu       sync.Mutex
	order    []string
	children map[string]*child
}

// New makes a supervisor without children. onChange is told every change, one call at a time.
func New(onChange func([]Status)) *Supervisor {
	return &Supervisor{spawner: newSpawner(), onChange: onChange, children: map[string]*child{}}
}

// child is one supervised process; its loop owns cmd.
type child struct {
	process Process
	tail    *tail
	status  Status
	stop    context.CancelFunc
	done    chan struct{}
	ready   chan struct{}
	failed  chan error
	// renew holds an element while the child is to be started anew.
	renew chan struct{}
}

// Start starts a child and returns when it is ready, when ctx ends, or when the child keeps ending. From then on it is
// restarted whenever it ends, until Stop.
func (s *Supervisor) Start(ctx context.Context, p Process) error {
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &child{
		process: p, tail: &tail{next: p.Log}, stop: stop,
		done: make(chan struct{}), ready: make(chan struct{}), failed: make(chan error, 1), renew: make(chan struct{}, 1),
		status: Status{Name: p.Name, State: Starting, Log: p.LogFile},
	}
	s.mu.Lock()
	if _, exists := s.children[p.Name]; exists {
		s.mu.Unlock()
		stop()
		return fmt.Errorf("%s is already supervised", p.Name)
	}
	s.children[p.Name] = c
	s.order = append(s.order, p.Name)
	s.mu.Unlock()
	go s.run(loop, c)
	select {
	case <-c.ready:
		return nil
	case err := <-c.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop ends a child and waits for it: SIGTERM, and SIGKILL after its grace. Without such a child it does nothing.
func (s *Supervisor) Stop(name string) {
	s.mu.Lock()
	c := s.children[name]
	s.mu.Unlock()
	if c == nil {
		return
	}
	c.stop()
	<-c.done
}

// Kill ends every child at once, without grace.
func (s *Supervisor) Kill() {
	for _, status := range s.Statuses() {
		if status.PID != 0 {
			_ = syscall.Kill(status.PID, syscall.SIGKILL)
		}
	}
}

// Statuses lists the children in the order of their start.
func (s *Supervisor) Statuses() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statusesLocked()
}

func (s *Supervisor) statusesLocked() []Status {
	list := make([]Status, 0, len(s.order))
	for _, name := range s.order {
		list = append(list, s.children[name].status)
	}
	return list
}

// update changes a child's status and tells it.
func (s *Supervisor) update(c *child, change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&c.status)
	if s.onChange != nil {
		s.onChange(s.statusesLocked())
	}
}

// renewFollowers starts those children anew that follow one that is back.
func (s *Supervisor) renewFollowers(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.children {
		if c.process.Follows == name && c.status.State == Running {
			select {
			case c.renew <- struct{}{}:
			default:
				// It is about to be.
			}
		}
	}
}

// run is a child's life: start, wait, start again.
func (s *Supervisor) run(ctx context.Context, c *child) {
	defer close(c.done)
	backoff := restartBackoff()
	everReady, starts := false, 0
	for {
		began := time.Now()
		ready, exit := s.once(ctx, c)
		if ctx.Err() != nil {
			s.update(c, func(t *Status) { t.State, t.PID, t.LastExit = Stopped, 0, exit })
			return
		}
		starts++
		everReady = everReady || ready
		if !everReady && starts >= firstStarts {
			s.update(c, func(t *Status) { t.State, t.PID, t.LastExit = Stopped, 0, exit })
			c.failed <- &ExitError{Name: c.process.Name, Exit: exit, Reason: c.tail.reason(), LogFile: c.process.LogFile}
			return
		}
		if time.Since(began) > steady {
			backoff = restartBackoff()
		}
		s.update(c, func(t *Status) { t.State, t.PID, t.LastExit, t.Restarts = Restarting, 0, exit, t.Restarts+1 })
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
		if ctx.Err() != nil {
			s.update(c, func(t *Status) { t.State = Stopped })
			return
		}
	}
}

// once runs a child from its start to its end. It tells whether it was ready, and how it ended.
func (s *Supervisor) once(ctx context.Context, c *child) (ready bool, exit string) {
	p := c.process
	c.tail.reset()
	select {
	case <-c.renew:
	default:
	}
	// Not CommandContext: it would kill the child at once where it has to be asked first.
	cmd := exec.Command(p.Path, p.Args...) //nolint:noctx // See above.
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = c.tail, c.tail
	// Its own process group keeps the terminal's Ctrl-C away: stopping has an order. Pdeathsig ends it with us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := s.spawner.start(cmd); err != nil {
		return false, err.Error()
	}
	s.update(c, func(t *Status) {
		t.PID = cmd.Process.Pid
		if t.Restarts == 0 {
			t.State = Starting
		}
	})
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	readyCtx, stopReady := context.WithCancel(ctx)
	defer stopReady()
	nowReady := make(chan struct{})
	go func() {
		if wait.PollUntilContextCancel(readyCtx, readyPoll, true, isReady(p.Ready)) == nil {
			close(nowReady)
		}
	}()
	for {
		select {
		case <-nowReady:
			nowReady, ready = nil, true
			again := c.signalReady()
			s.update(c, func(t *Status) { t.State, t.ReadyAfter = Running, time.Since(began) })
			if again {
				s.renewFollowers(p.Name)
			}
		case <-c.renew:
			return ready, terminate(cmd.Process, p.Grace, exited) + ", to start anew with " + p.Follows
		case err := <-exited:
			return ready, describeExit(err)
		case <-ctx.Done():
			s.update(c, func(t *Status) { t.State = Stopping })
			return ready, terminate(cmd.Process, p.Grace, exited)
		}
	}
}

// signalReady tells that the child is ready, and whether it was before.
func (c *child) signalReady() (again bool) {
	select {
	case <-c.ready:
		return true
	default:
		close(c.ready)
		return false
	}
}

func isReady(ready func(context.Context) error) wait.ConditionWithContextFunc {
	return func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return ready(ctx) == nil, nil
	}
}

// terminate asks a process to end, and makes it end after grace.
func terminate(p *os.Process, grace time.Duration, exited <-chan error) string {
	_ = p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-exited:
		return describeExit(err)
	case <-timer.C:
		_ = p.Kill()
		return describeExit(<-exited) + fmt.Sprintf(" after %s of grace", grace)
	}
}

func describeExit(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ProcessState.String()
	}
	if err != nil {
		return err.Error()
	}
	return "exit status 0"
}
