// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/bench/rig"
)

const (
	// limit is how long one piece of work may take.
	limit = time.Hour
	// quiet is for how long nothing is asked for by a contender that has caught up.
	quiet = 2 * time.Second
	// paced is how long pods take where each has to be met by the contender in each of its states.
	paced = time.Second
)

// stage is work for a fleet that is made for it.
type stage struct {
	name  string
	fleet fleet
	// pace is how long pods take to become ready, and to go.
	pace time.Duration
	// run does the work with a contender that runs and has nothing to do.
	run func(*turn, context.Context) error
}

// Names of scenarios, each of which gives one result.
const (
	ordered  = "ordered"
	tenth    = "ordered-tenth"
	slow     = "paced-ordered"
	slowRoll = "paced-rolling"
	parallel = "parallel"
	single   = "single"
	rolling  = "rolling"
	zero     = "zero"
	update   = "parallel-update"
	restart  = "restart"
	atRest   = "rest"
)

// stages are those for the limits, at a scale. With the defaults, which make the incumbent slow, only the work is given that is
// bounded by them.
func stages(s sizes, scale float64, l limits) []stage {
	of := func(n int) int { return max(1, int(float64(n)*scale+0.5)) }
	all := []stage{
		{name: ordered, fleet: fleet{sets: of(s.ordered), replicas: 3, claims: true}, run: (*turn).bringUp},
		{name: parallel, fleet: fleet{sets: s.parallelSets, replicas: of(s.parallelPods), parallel: true}, run: (*turn).bringUp},
		{name: single, fleet: fleet{sets: 1, replicas: of(s.single)}, run: (*turn).bringUp},
		{name: rolling, fleet: fleet{sets: of(s.rolling), replicas: 3}, run: (*turn).rollAndEmpty},
	}
	if l == defaults {
		return all
	}
	return append(all,
		stage{name: tenth, fleet: fleet{sets: of(s.ordered / 10), replicas: 3, claims: true}, run: (*turn).bringUp},
		stage{name: slow, fleet: fleet{sets: of(s.paced), replicas: 3}, pace: paced, run: (*turn).bringUpAndRoll},
		stage{name: update, fleet: fleet{sets: 1, replicas: of(s.update), parallel: true}, run: (*turn).updateParallel},
		stage{name: restart, fleet: fleet{sets: of(s.settled), replicas: 3, parallel: true}, run: (*turn).restartAndRest},
	)
}

// turn is one contender's go at a stage.
type turn struct {
	*bench
	stage  stage
	who    string
	round  int
	limits limits

	namespace string
	contender *contender
	// recording is that of the scenario that is measured now.
	recording *recording
	// started is the CPU time that the contender had used when it began to watch an empty cluster.
	started time.Duration
}

// run makes a namespace, starts the contender, does the work, and leaves nothing behind.
func (t *turn) run(ctx context.Context) (err error) {
	t.namespace = fmt.Sprintf("%s-%d-%s-%s", t.stage.name, t.round, t.limits, t.who)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
	if _, err := t.plane.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	t.kubelet.pace.Store(int64(t.stage.pace))
	defer func() {
		err = errors.Join(err, t.stopContender(), t.stage.fleet.remove(context.WithoutCancel(ctx), t.plane.client, t.namespace))
	}()
	if err := t.startContender(ctx); err != nil {
		return err
	}
	return t.stage.run(t, ctx)
}

// startContender starts the contender and waits until it has nothing to do.
func (t *turn) startContender(ctx context.Context) error {
	var err error
	if t.contender, err = startContender(ctx, t.plane, t.who, t.limits, t.options); err != nil {
		return err
	}
	if err := awaitWatching(ctx, t.plane.audit, t.who); err != nil {
		return err
	}
	if err := awaitQuiet(ctx, t.plane.audit, time.Second); err != nil {
		return err
	}
	t.started, err = cpuOf(t.contender.pid)
	return err
}

func (t *turn) stopContender() error {
	if t.contender == nil {
		return nil
	}
	err := t.contender.stop()
	t.contender = nil
	return err
}

// names are those of all sets of the fleet.
func (t *turn) names() []string {
	var all []string
	for n := range t.stage.fleet.sets {
		all = append(all, setName(n))
	}
	return all
}

// bringUp makes the sets, whose pods all have to come.
func (t *turn) bringUp(ctx context.Context) error {
	f := t.stage.fleet
	s := scenario{
		name: t.stage.name, pods: f.pods(), goal: at(1, f.replicas), sets: t.names(),
		act: func(ctx context.Context) error { return f.create(ctx, t.plane.client, t.namespace) },
	}
	if !f.parallel {
		s.step = nextCreation
	}
	return t.measure(ctx, s)
}

// prepare brings the sets up without measuring it.
func (t *turn) prepare(ctx context.Context) error {
	e := t.watcher.expect(t.namespace, at(1, t.stage.fleet.replicas), t.names()...)
	if err := t.stage.fleet.create(ctx, t.plane.client, t.namespace); err != nil {
		return err
	}
	if _, err := t.watcher.wait(ctx, e, limit); err != nil {
		return err
	}
	return awaitQuiet(ctx, t.plane.audit, quiet)
}

// newTemplate is a patch that gives a set another revision.
const newTemplate = `{"spec":{"template":{"metadata":{"annotations":{"example.com/config":"1"}}}}}`

// rollAndEmpty gives all sets a new template, and then takes all their pods.
func (t *turn) rollAndEmpty(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := t.roll(ctx, rolling); err != nil {
		return err
	}
	f := t.stage.fleet
	return t.measure(ctx, scenario{
		name: zero, pods: f.pods(), goal: at(3, 0), sets: t.names(),
		act: func(ctx context.Context) error {
			return f.patch(ctx, t.plane.client, t.namespace, `{"spec":{"replicas":0}}`)
		},
	})
}

// bringUpAndRoll makes the sets, and then gives them a new template.
func (t *turn) bringUpAndRoll(ctx context.Context) error {
	if err := t.bringUp(ctx); err != nil {
		return err
	}
	return t.roll(ctx, slowRoll)
}

// roll gives all sets a new template, once.
func (t *turn) roll(ctx context.Context, name string) error {
	f := t.stage.fleet
	return t.measure(ctx, scenario{
		name: name, pods: f.pods(), goal: at(2, f.replicas), sets: t.names(), step: nextDeletion,
		act: func(ctx context.Context) error { return f.patch(ctx, t.plane.client, t.namespace, newTemplate) },
	})
}

// updateParallel gives one large Parallel set a new template.
func (t *turn) updateParallel(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	return t.roll(ctx, update)
}

// restartAndRest starts a contender where sets are settled, one of which was changed meanwhile, and then lets it be.
func (t *turn) restartAndRest(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := t.stopContender(); err != nil {
		return err
	}
	f := t.stage.fleet
	changed := setName(f.sets - 1)
	if err := patchSet(ctx, t.plane.client, t.namespace, changed, fmt.Sprintf(`{"spec":{"replicas":%d}}`, f.replicas+1)); err != nil {
		return err
	}
	err := t.measure(ctx, scenario{
		name: restart, pods: f.pods(), goal: at(2, f.replicas+1), sets: []string{changed}, untilQuiet: true,
		act: func(ctx context.Context) error {
			var err error
			if t.contender, err = startContender(ctx, t.plane, t.who, t.limits, t.options); err != nil {
				return err
			}
			t.recording.follow(ctx, t.contender.profiled())
			return nil
		},
	})
	if err != nil {
		return err
	}
	return t.measure(ctx, scenario{
		name: atRest, pods: f.pods(), act: func(ctx context.Context) error { return rig.Pause(ctx, t.options.rest) },
	})
}
