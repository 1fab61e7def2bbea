// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ordinal-dev/ordinal/api/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/ordinal"
	"github.com/ordinal-dev/ordinal/internal/podstate"
)

// changeCauseAnnotation is where kubectl keeps why a template was changed.
const changeCauseAnnotation = "kubernetes.io/change-cause"

// Revision is one row of the history of a set.
type Revision struct {
	Number  int64         `json:"revision"`
	Name    string        `json:"name"`
	Created metav1.Time   `json:"created"`
	Age     time.Duration `json:"-"`
	Cause   string        `json:"changeCause,omitempty"`
	// Pods are the names of the pods that have it, ascending.
	Pods []string `json:"pods"`
	// Marks are what it is to the set: current, update, failed.
	Marks []string `json:"marks"`
}

// History are the revisions that the set owns, oldest first.
func (s Subject) History(revisions []*appsv1.ControllerRevision) []Revision {
	pods := map[string][]string{}
	for _, m := range s.members() {
		name := podstate.Revision(m.pod)
		pods[name] = append(pods[name], m.pod.Name)
	}
	var rows []Revision
	for _, r := range revisions {
		if !metav1.IsControlledBy(r, s.Set) {
			continue
		}
		rows = append(rows, Revision{
			Number: r.Revision, Name: r.Name, Created: r.CreationTimestamp, Age: s.Now.Sub(r.CreationTimestamp.Time),
			Cause: r.Annotations[changeCauseAnnotation], Pods: append([]string{}, pods[r.Name]...), Marks: s.marks(r.Name),
		})
	}
	slices.SortFunc(rows, func(a, b Revision) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

func (s Subject) marks(name string) []string {
	marks := []string{}
	if name == s.Set.Status.CurrentRevision {
		marks = append(marks, "current")
	}
	if name == s.Set.Status.UpdateRevision {
		marks = append(marks, "update")
	}
	if slices.ContainsFunc(s.Policies, func(p *v1alpha1.StatefulSetPolicy) bool { return p.Status.FailedRevision == name }) {
		marks = append(marks, "failed")
	}
	return marks
}

// PrintHistory writes a table. Pods are told by their ordinals, so that it stays narrow.
func PrintHistory(w io.Writer, rows []Revision) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "REVISION\tNAME\tAGE\tSTATE\tPODS\tCHANGE-CAUSE")
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", r.Number, r.Name, duration.HumanDuration(r.Age),
			cmp.Or(strings.Join(r.Marks, ","), "-"), cmp.Or(ordinals(r.Pods), "-"), cmp.Or(r.Cause, "<none>"))
	}
	return table.Flush()
}

// ordinals are those of the pods, as runs: 0-2, 5.
func ordinals(pods []string) string {
	var all []ordinal.Interval
	for _, name := range pods {
		if p, ok := ordinal.ParsePod(name); ok {
			all = append(all, ordinal.Interval{First: p.Ordinal, Last: p.Ordinal})
		}
	}
	var runs []string
	for _, i := range ordinal.Merge(all) {
		run := strconv.Itoa(i.First)
		if i.Last > i.First {
			run += "-" + strconv.Itoa(i.Last)
		}
		runs = append(runs, run)
	}
	return strings.Join(runs, ",")
}
