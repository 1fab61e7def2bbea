// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
)

// beating is what the pods of a walk run. Each process numbers its lines on from the last one that it finds in its volume, and signs
// them with a name of its own. A line begins with a newline, so one that a full disk cuts short spoils no other. The argument is what
// the process does when it is asked to end.
func beating(atEnd string) string {
	return `trap '` + atEnd + `' TERM
me=$(cat /proc/sys/kernel/random/uuid)
touch /data/beats
n=$(grep -c ';$' /data/beats)
while :; do
  echo -ne "\n$((n + 1)) $me;" 2>/dev/null >> /data/beats && n=$((n + 1))
  sleep 0.1
done`
}

var beat = regexp.MustCompile(`(?m)^(\d+) ([0-9a-f-]{36});$`)

// checkBeats checks what the processes of one pod name have written into their volume: numbers without a gap, so nothing was lost, and
// each process in one piece, so no two ran at a time. It gives how many lines and how many processes there were.
func checkBeats(content []byte) (lines, processes int, err error) {
	ended := map[string]bool{}
	last := ""
	for _, match := range beat.FindAllSubmatch(content, -1) {
		number, convErr := strconv.Atoi(string(match[1]))
		if convErr != nil {
			return 0, 0, convErr
		}
		writer := string(match[2])
		lines++
		if writer != last {
			if ended[writer] {
				return 0, 0, fmt.Errorf("line %d: process %s writes again after another one: two ran at a time", number, writer)
			}
			ended[last], last = true, writer
			processes++
		}
		if number != lines {
			return 0, 0, fmt.Errorf("line %d has number %d: lines were lost or written twice", lines, number)
		}
	}
	if lines == 0 {
		return 0, 0, errors.New("nothing was written")
	}
	return lines, processes, nil
}

func TestCheckBeats(t *testing.T) {
	const a, b = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
	for title, test := range map[string]struct {
		content          string
		lines, processes int
		fails            bool
	}{
		"one after the other":   {"\n1 " + a + ";\n2 " + a + ";\n3 " + b + ";", 3, 2, false},
		"a line cut short":      {"\n1 " + a + ";\n2 0000\n2 " + b + ";", 2, 2, false},
		"two at a time":         {"\n1 " + a + ";\n2 " + b + ";\n3 " + a + ";", 0, 0, true},
		"a number twice":        {"\n1 " + a + ";\n1 " + b + ";", 0, 0, true},
		"the beginning is lost": {"\n5 " + a + ";", 0, 0, true},
		"nothing":               {"", 0, 0, true},
	} {
		t.Run(title, func(t *testing.T) {
			lines, processes, err := checkBeats([]byte(test.content))
			if lines != test.lines || processes != test.processes || (err != nil) != test.fails {
				t.Errorf("%d lines of %d processes, %v; want %d of %d, failure %t", lines, processes, err, test.lines, test.processes, test.fails)
			}
		})
	}
}
