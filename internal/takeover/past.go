// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ordinal-dev/ordinal/internal/observe"
)

const (
	// builtInLease and ourLease are held, in kube-system, by who leads.
	builtInLease = "kube-controller-manager"
	ourLease     = "ordinal-controller"
	// heldFor is how old a lease may be that is held: clocks differ, and a leader that was lost is replaced soon.
	heldFor = time.Minute
	// recent is how old a write may be that tells that who made it is still there.
	recent = 10 * time.Minute
)

// past is what the cluster tells of by itself.
type past struct {
	now time.Time
	// setsKnown means that sets could be listed.
	setsKnown bool
	// foreign and ours are the last writes of a status by each.
	foreign, ours *statusWrite
	leases        map[string]*coordinationv1.Lease
	leasesKnown   bool
	managers      []manager
}

// statusWrite is a write of a set's status.
type statusWrite struct {
	set, by string
	at      time.Time
}

// manager is a pod that runs kube-controller-manager.
type manager struct {
	pod string
	// controllers is its flag; empty without it.
	controllers string
	on          bool
}

func (c *check) past(ctx context.Context) (*past, error) {
	p := &past{now: c.Now(), setsKnown: c.may(forSets), leases: map[string]*coordinationv1.Lease{}, leasesKnown: c.may(forLeases)}
	if c.may(forSets) {
		list, err := c.Client.AppsV1().StatefulSets(c.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return p, fmt.Errorf("list sets: %w", err)
		}
		for i := range list.Items {
			p.learn(&list.Items[i])
		}
	}
	if c.may(forLeases) {
		if err := c.learnLeases(ctx, p.leases); err != nil {
			return p, err
		}
	}
	if c.may(forFlags) {
		pods, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			return p, fmt.Errorf("list pods of %s: %w", metav1.NamespaceSystem, err)
		}
		p.managers = managersOf(pods.Items)
	}
	return p, nil
}

// learnLeases reads who leads.
func (c *check) learnLeases(ctx context.Context, leases map[string]*coordinationv1.Lease) error {
	for _, name := range []string{builtInLease, ourLease} {
		lease, err := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			leases[name] = lease
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get lease %s: %w", name, err)
		}
	}
	return nil
}

// learn takes note of who wrote the status of a set.
func (p *past) learn(set *appsv1.StatefulSet) {
	name := set.Namespace + "/" + set.Name
	if f := observe.ForeignWrite(set.ManagedFields); f != nil {
		p.foreign = later(p.foreign, statusWrite{name, f.Manager, f.Time.Time})
	}
	for _, f := range set.ManagedFields {
		if f.Subresource == "status" && f.Time != nil && isOurs(f.Manager) {
			p.ours = later(p.ours, statusWrite{name, f.Manager, f.Time.Time})
		}
	}
}

func later(a *statusWrite, b statusWrite) *statusWrite {
	if a != nil && !a.at.Before(b.at) {
		return a
	}
	return &b
}

// managersOf are those of the pods that run kube-controller-manager, as most ways of setting up a cluster do it.
func managersOf(pods []corev1.Pod) []manager {
	var found []manager
	for i := range pods {
		for j := range pods[i].Spec.Containers {
			words := slices.Concat(pods[i].Spec.Containers[j].Command, pods[i].Spec.Containers[j].Args)
			isManager := func(word string) bool { return word == builtInLease || strings.HasSuffix(word, "/"+builtInLease) }
			if !slices.ContainsFunc(words, isManager) {
				continue
			}
			flag := controllersFlag(words)
			found = append(found, manager{pod: pods[i].Name, controllers: flag, on: isOn(flag)})
		}
	}
	return found
}

func controllersFlag(words []string) string {
	for i, word := range words {
		if value, found := strings.CutPrefix(word, "--controllers="); found {
			return value
		}
		if word == "--controllers" && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// isOn tells if kube-controller-manager with that flag runs its StatefulSet controller. The first that names it counts.
func isOn(controllers string) bool {
	all := controllers == ""
	for name := range strings.SplitSeq(controllers, ",") {
		switch name {
		case "statefulset-controller", "statefulset":
			return true
		case "-statefulset-controller", "-statefulset":
			return false
		case "*":
			all = true
		}
	}
	return all
}

// builtIn is what is known of the built-in controller.
func (p *past) builtIn(seen *sighting) Controller {
	c := Controller{State: Unknown}
	p.tellPast(&c)
	configured := p.tellManagers(&c)
	seen.tellBuiltIn(&c)
	switch {
	case seen.reactedForeign() || configured == On:
		c.State = On
	case seen.ran && seen.alive:
		c.State = Off
	case seen.ran:
		// Nobody reacts while kube-controller-manager is down, whatever it does when it is back.
	case configured == Off:
		c.State = Off
	case p.foreign != nil && p.now.Sub(p.foreign.at) < recent:
		c.State = On
	}
	return c
}

// tellPast tells of what was written.
func (p *past) tellPast(c *Controller) {
	switch {
	case p.foreign != nil:
		c.add(p.foreign.String(p.now))
	case p.setsKnown:
		c.add("it has written the status of none of the sets")
	}
	if lease := p.leases[builtInLease]; isHeld(lease, p.now) {
		c.add(fmt.Sprintf("kube-controller-manager runs: %s holds its lease", *lease.Spec.HolderIdentity))
	}
}

// tellManagers tells of how kube-controller-manager is started, and what follows from it.
func (p *past) tellManagers(c *Controller) State {
	state := Unknown
	for _, m := range p.managers {
		flag, is := "without --controllers", "on"
		if m.controllers != "" {
			flag = "with --controllers=" + m.controllers
		}
		if !m.on {
			is = "off"
		}
		c.add(fmt.Sprintf("pod %s/%s runs kube-controller-manager %s, so there it is %s", metav1.NamespaceSystem, m.pod, flag, is))
		// One that does not lead may lead tomorrow.
		if m.on {
			state = On
		} else if state == Unknown {
			state = Off
		}
	}
	return state
}

// ordinal is what is known of ours.
func (p *past) ordinal(seen *sighting) Controller {
	c := Controller{State: Off}
	if p.ours != nil {
		c.add(p.ours.String(p.now))
	}
	lease := p.leases[ourLease]
	switch {
	case isHeld(lease, p.now):
		c.State = On
		c.add(fmt.Sprintf("%s holds the lease %s/%s", *lease.Spec.HolderIdentity, metav1.NamespaceSystem, ourLease))
	case p.leasesKnown:
		c.add(fmt.Sprintf("nobody holds the lease %s/%s", metav1.NamespaceSystem, ourLease))
	default:
		c.State = Unknown
	}
	seen.tellOrdinal(&c)
	return c
}

// String tells of a write in words.
func (w statusWrite) String(now time.Time) string {
	return fmt.Sprintf("%s wrote the status of %s last, %s ago", w.by, w.set, duration.HumanDuration(now.Sub(w.at)))
}

func isHeld(lease *coordinationv1.Lease, now time.Time) bool {
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return false
	}
	return now.Sub(lease.Spec.RenewTime.Time) < heldFor
}
