// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Measures of the plot, in pixels.
const (
	plotWidth  = 760
	plotLeft   = 260
	plotRight  = 60
	rowHeight  = 18
	groupGap   = 14
	plotTop    = 56
	plotBottom = 30
	// plotMost is the largest ratio that is drawn in full.
	plotMost = 1.5
)

// writeSVG draws the ratios as bars, with a line where both contenders are equal, unless the file has no name.
func (r *report) writeSVG(file string) error {
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte(plot(compare(r.Results))), 0o600)
}

// plotted are the figures that are drawn, with their colours.
func plotted() map[string]string {
	return map[string]string{figureWall: "#7f8fa6", figureCPU: "#c23616", figureSettled: "#40739e", figureWrites: "#e1b12c", figureStepLast: "#44bd32"}
}

// plot draws those comparisons without limits that have a ratio.
func plot(all []comparison) string {
	colours := plotted()
	drawn := slices.DeleteFunc(slices.Clone(all), func(c comparison) bool {
		return c.Limits != unlimited || c.Ratio == nil || colours[c.Figure] == ""
	})
	var b strings.Builder
	y, last := plotTop, ""
	for _, c := range drawn {
		if c.Scenario != last {
			if last != "" {
				y += groupGap
			}
			last = c.Scenario
			fmt.Fprintf(&b, `<text x="8" y="%d" font-weight="bold">%s</text>`+"\n", y+13, c.Scenario)
		}
		drawBar(&b, y, c, colours[c.Figure])
		y += rowHeight
	}
	equal := across(1)
	line := fmt.Sprintf(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#333" stroke-dasharray="4 3"/>`, equal, plotTop-8, equal, y+4)
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="8" y="20" font-size="15" font-weight="bold">Ordinal, with kube-controller-manager as 1</text>
<text x="8" y="38" fill="#555">Less is better. Bars are medians over the rounds, lines go from the least to the most.</text>
`, plotWidth, y+plotBottom, plotWidth, y+plotBottom)
	return head + line + "\n" + b.String() + "</svg>\n"
}

// across is where a ratio is.
func across(ratio float64) int {
	return plotLeft + int(min(ratio, plotMost)/plotMost*(plotWidth-plotLeft-plotRight))
}

func drawBar(b *strings.Builder, y int, c comparison, colour string) {
	end := across(*c.Ratio)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="#333">%s</text>`, plotLeft-6, y+13, plotTitle(c.Figure))
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, plotLeft, y+2, end-plotLeft, rowHeight-5, colour)
	middle := y + 2 + (rowHeight-5)/2
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#000"/>`, across(*c.Least), middle, across(*c.Most), middle)
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#333">%s</text>`+"\n", across(max(*c.Ratio, *c.Most))+6, y+13, short(*c.Ratio))
}

func plotTitle(figure string) string {
	switch figure {
	case figureWall:
		return "time"
	case figureCPU:
		return "CPU"
	case figureSettled:
		return "memory"
	case figureWrites:
		return "writes"
	default:
		return "ready → next, p99"
	}
}
