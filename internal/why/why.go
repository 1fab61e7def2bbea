// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

// Package why tells in words what a StatefulSet does and what it waits for: which object, by which rule, since when, what can be
// seen of it, and what a person can do. Of is pure; Read gathers what it needs.
package why

import (
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// Facts are what a report is made from. They are read only.
type Facts struct {
	// Snapshot holds whole objects, not those that a controller caches.
	Snapshot plan.Snapshot
	Plan     plan.Plan
	Actor    Actor
	// Events are those of the set, of its pods that are not available, and of their claims, in any order.
	Events []corev1.Event
	// Logs are the last lines that a container wrote before it ended.
	Logs map[Container][]string
	// Budgets are the PodDisruptionBudgets of the namespace.
	Budgets []*policyv1.PodDisruptionBudget
	Tools   Tools
	// Unread are sentences that tell what could not be read, so that it is not among the evidence.
	Unread []string
}

// Container names a container of a pod.
type Container struct {
	Pod, Name string
}

// Tools are how a person calls the programs by which things are mended.
type Tools struct {
	// Kubectl and Ordinal come before the words of a command.
	Kubectl, Ordinal string
	// Flags come after them: which namespace of which cluster. They begin with a space or are empty.
	Flags string
}

func (t Tools) kubectl(words string) string { return t.Kubectl + " " + words + t.Flags }

func (t Tools) ordinal(words string) string { return t.Ordinal + " " + words + t.Flags }

// State is how a set fares.
type State string

// How a set fares.
const (
	// Up means that all is as it should be, or as it was asked to be.
	Up State = "Up"
	// Progressing means that it goes on by itself.
	Progressing State = "Progressing"
	// Paused means that a rollout waits because somebody wants it to.
	Paused State = "Paused"
	// Stuck means that something is wrong that a person has to look at.
	Stuck State = "Stuck"
	// Deleting means that the set is being deleted.
	Deleting State = "Deleting"
)

// Report tells how a set fares.
type Report struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	Headline  string `json:"headline"`
	// Waits are what has to change first; those that are wrong come first.
	Waits []Wait `json:"waits"`
	// Next is what the controller does now.
	Next []string `json:"next"`
	// Notes are what else there is to say.
	Notes []string `json:"notes"`
	// At is when the report was made.
	At metav1.Time `json:"at"`
}

// Wait is one thing that is waited for.
type Wait struct {
	// Object is what has to change.
	Object string `json:"object"`
	// Reason is the rule in one word.
	Reason string `json:"reason"`
	// Wrong means that a person has to look at it.
	Wrong bool `json:"wrong"`
	// Message is what is the matter with it.
	Message string `json:"message"`
	// Rule is why it is waited for.
	Rule string `json:"rule,omitempty"`
	// For are the pods that it holds up.
	For []string `json:"for,omitempty"`
	// Since is since when it is so, and Until is when it ends by itself.
	Since *metav1.Time `json:"since,omitempty"`
	Until *metav1.Time `json:"until,omitempty"`
	// Evidence is what can be seen of it.
	Evidence []string `json:"evidence,omitempty"`
	// Log are the last lines of a container that ended.
	Log []string `json:"log,omitempty"`
	// Remedy is what a person can do, or when it may be done, and Command is how.
	Remedy  string `json:"remedy,omitempty"`
	Command string `json:"command,omitempty"`
}

func (w *Wait) since(t time.Time) {
	if !t.IsZero() {
		w.Since = &metav1.Time{Time: t}
	}
}

func (w *Wait) do(remedy, command string) {
	w.Remedy, w.Command = remedy, command
}

// longest is how many characters of what others say are told.
const longest = 400

// show adds evidence. What others said may hold line breaks, and what controls a terminal.
func (w *Wait) show(text string) {
	text = strings.Join(strings.Fields(plain(text)), " ")
	if text != "" {
		w.Evidence = append(w.Evidence, cut(text, longest))
	}
}

// plain puts a space for each character that controls a terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
