// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mitchellh/go-wordwrap"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ordinal-dev/ordinal/internal/plan"
)

// width is how wide a line of text is at most, without its indentation.
const width = 76

// Write tells the preview in words.
func (p Preview) Write(out io.Writer) error {
	var b strings.Builder
	for i := 0; i < len(p.Happenings); i++ {
		h := p.Happenings[i]
		if i+1 < len(p.Happenings) && isReplacement(h, p.Happenings[i+1]) {
			line(&b, replaced(h))
			i++
			continue
		}
		line(&b, h.String())
	}
	if len(p.Happenings) == 0 {
		line(&b, "No pod, claim or revision changes.")
	}
	for _, s := range p.Stops {
		line(&b, s.String())
	}
	for _, text := range []string{p.End.String(), p.Totals.String()} {
		if text != "" {
			line(&b, text)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// line writes a text as one line, or as several if it is too long.
func line(b *strings.Builder, text string) {
	b.WriteString("  " + strings.ReplaceAll(wordwrap.WrapString(text, width-4), "\n", "\n      ") + "\n")
}

// isReplacement tells if a pod comes back at once.
func isReplacement(h, next Happening) bool {
	return h.Next != "" && h.Name == next.Name && next.Kind == plan.KindPod && next.Verb == Create
}

func replaced(h Happening) string {
	text := fmt.Sprintf("%s is replaced", h.Name)
	if h.Verb == Evict {
		text = fmt.Sprintf("%s is evicted and replaced", h.Name)
	}
	if h.Next == h.Revision {
		return text + ": " + h.Because
	}
	return fmt.Sprintf("%s (%s to %s): %s", text, cmp.Or(short(h.Revision), "no revision"), short(h.Next), h.Because)
}

// short is what differs in the names of a set's revisions.
func short(revision string) string {
	return revision[strings.LastIndexByte(revision, '-')+1:]
}

func past(v Verb) string {
	return map[Verb]string{
		Create: "created", Delete: "deleted", Evict: "evicted", Adopt: "adopted", Release: "released", Keep: "kept", Reuse: "reused",
		Label: "labelled",
	}[v]
}

// String tells the happening in words.
func (h Happening) String() string {
	switch h.Verb {
	case Wait:
		return fmt.Sprintf("wait %s for %s: %s", duration.HumanDuration(time.Duration(h.Seconds)*time.Second), h.object(), h.Because)
	case Own:
		return h.object() + " will go with " + cmp.Or(strings.Join(h.Owners, " and "), "nobody")
	case Tell:
		return h.Name + " is told that it " + h.Because
	case Create, Delete, Evict, Adopt, Release, Keep, Reuse, Label:
	}
	text := h.object() + " is " + past(h.Verb)
	if h.Kind == plan.KindPod && h.Verb == Create {
		return text + " at " + short(h.Revision)
	}
	if h.Next != "" {
		text += ", to come back at " + short(h.Next)
	}
	if h.Because != "" {
		text += ": " + h.Because
	}
	return text
}

// String tells in words what the set waits for.
func (s Stop) String() string {
	text := s.Text
	if strings.HasPrefix(text, "waits ") {
		text = "the set " + text
	}
	return "Then " + text + "."
}

// object is the happening's object in words. Pods need no word.
func (h Happening) object() string {
	if h.Kind == plan.KindPod {
		return h.Name
	}
	return plan.Ref{Kind: h.Kind, Name: h.Name}.String()
}

// String tells the end in words; empty if there is none to tell.
func (e End) String() string {
	if e.UpdateRevision == "" && len(e.Pods) == 0 {
		return ""
	}
	updated := 0
	for _, p := range e.Pods {
		updated += one(p.Revision == e.UpdateRevision)
	}
	return fmt.Sprintf("In the end: %d of %d pods available, %d at %s.", e.Available, e.Wanted, updated, e.UpdateRevision)
}

// String tells the totals in words; empty if nothing happens.
func (t Totals) String() string {
	var parts []string
	for _, p := range []struct {
		count     int
		what, did string
	}{
		{t.RevisionsCreated, "revision", "created"},
		{t.PodsCreated, "pod", "created"},
		{t.PodsReplaced, "pod", "replaced"},
		{t.PodsDeleted, "pod", "deleted"},
		{t.ClaimsCreated, "claim", "created"},
		{t.ClaimsKept, "claim", "kept"},
		{t.ClaimsDeleted, "claim", "deleted"},
	} {
		if p.count == 0 {
			continue
		}
		if p.count > 1 {
			p.what += "s"
		}
		parts = append(parts, fmt.Sprintf("%d %s %s", p.count, p.what, p.did))
	}
	if len(parts) == 0 {
		return ""
	}
	return "In all: " + strings.Join(parts, ", ") + "."
}
