// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/ordinal-dev/ordinal/internal/preview"
)

// Outcome is what would become of an object.
type Outcome string

// What would become of objects.
const (
	Created   Outcome = "created"
	Changed   Outcome = "changed"
	Unchanged Outcome = "unchanged"
	Deleted   Outcome = "deleted"
	Refused   Outcome = "refused"
)

// Object is what would become of an object.
type Object struct {
	Kind      string  `json:"kind"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	Outcome   Outcome `json:"outcome"`
	// Unchecked means that the server could not be asked, as the files make the object's namespace too.
	Unchecked bool `json:"unchecked,omitempty"`
	// Fields are those of a set or a policy that would change.
	Fields []Field `json:"fields,omitempty"`
	// Refusal is what the server says against it.
	Refusal string `json:"refusal,omitempty"`
}

// Set is what would become of a set.
type Set struct {
	Object

	// Fixed are the fields that the server refuses to change. The preview then is of the way that works: the set is deleted
	// without its pods, and made anew.
	Fixed []string `json:"fixed,omitempty"`
	// Way are the commands of that way.
	Way     []string         `json:"way,omitempty"`
	Preview *preview.Preview `json:"preview,omitempty"`
}

// Report is what would become of all objects.
type Report struct {
	Sets   []Set    `json:"sets"`
	Others []Object `json:"others"`
	// Errors are about files and objects of which nothing could be told.
	Errors []string `json:"errors,omitempty"`
}

// IsRefused tells if something would not be done.
func (r Report) IsRefused() bool {
	return len(r.Errors) > 0 || r.has(func(o Outcome) bool { return o == Refused })
}

// IsChange tells if something would change.
func (r Report) IsChange() bool {
	return r.has(func(o Outcome) bool { return o == Created || o == Changed || o == Deleted })
}

func (r Report) has(is func(Outcome) bool) bool {
	for i := range r.Sets {
		if is(r.Sets[i].Outcome) {
			return true
		}
	}
	for i := range r.Others {
		if is(r.Others[i].Outcome) {
			return true
		}
	}
	return false
}

// report tells what would become of the edits.
func (c *cluster) report(ctx context.Context, edits []*edit) (Report, error) {
	r := Report{Sets: []Set{}, Others: []Object{}}
	sets, err := c.setEdits(ctx, edits)
	if err != nil {
		return r, err
	}
	byNamespace := map[string][]*setEdit{}
	for _, s := range sets {
		byNamespace[s.key.Namespace] = append(byNamespace[s.key.Namespace], s)
	}
	for namespace, some := range byNamespace {
		if err := c.previewAll(ctx, namespace, some, edits); err != nil {
			return r, err
		}
	}
	for _, s := range sets {
		told, err := c.toldOfSet(s)
		if err != nil {
			return r, err
		}
		r.Sets = append(r.Sets, told)
	}
	for _, e := range edits {
		if e.is(setKind) {
			continue
		}
		o, err := e.told(e.is(policyKind))
		if err != nil {
			return r, err
		}
		r.Others = append(r.Others, o)
	}
	return r, nil
}

// way are the commands that make a set anew over its pods.
func (c *cluster) way(o Object) []string {
	kubectl := cmp.Or(c.Kubectl, "kubectl")
	return []string{
		fmt.Sprintf("%s delete sts %s -n %s --cascade=orphan", kubectl, o.Name, o.Namespace),
		fmt.Sprintf("%s apply -n %s -f %s", kubectl, o.Namespace, strings.Join(c.Files.Filenames, ",")),
	}
}

func (c *cluster) toldOfSet(s *setEdit) (Set, error) {
	told := Set{Object: Object{Kind: setKind.Kind, Namespace: s.key.Namespace, Name: s.key.Name, Outcome: Unchanged}, Preview: s.preview}
	if s.edit == nil {
		return told, nil
	}
	var err error
	if told.Object, err = s.edit.told(true); err != nil {
		return told, err
	}
	if told.Fixed = s.edit.fixed; len(told.Fixed) > 0 {
		told.Way = c.way(told.Object)
	}
	return told, nil
}

// told tells what would become of the object, in detail with its fields.
func (e *edit) told(detail bool) (Object, error) {
	o := Object{Kind: e.kind.Kind, Namespace: e.namespace, Name: e.name}
	switch {
	case e.isRefused():
		o.Outcome, o.Refusal = Refused, e.refused.Error()
		return o, nil
	case e.live == nil:
		o.Outcome, o.Unchecked = Created, e.unchecked
		return o, nil
	case e.after == nil:
		o.Outcome = Deleted
		return o, nil
	}
	fields, err := fieldsOf(e.live, e.after)
	if err != nil {
		return o, fmt.Errorf("compare %s %s: %w", e.kind.Kind, e.name, err)
	}
	o.Outcome = Unchanged
	if len(fields) > 0 {
		o.Outcome = Changed
	}
	if detail {
		o.Fields = fields
	}
	return o, nil
}
