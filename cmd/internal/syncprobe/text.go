// SPDX-License-Identifier: MIT

// Package syncprobe measures what it costs on a device to make a small write durable, by each way
// that there is to ask for it.
package syncprobe

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	where := r.Dir
	if r.Device != "" {
		where += fmt.Sprintf(" (%s, %s)", r.Device, r.Filesystem)
	}
	fmt.Fprintf(&b, "\nmaking %d bytes durable in %s, µs: median (min–max) of %d\n", Size, where, Rounds)
	for _, way := range r.Ways {
		value := fmt.Sprintf("%6.0f (%.0f–%.0f)", way.Median, way.Min, way.Max)
		if way.Reason != "" {
			value = "not measured: " + way.Reason
		}
		fmt.Fprintf(&b, "  %-36s %s\n", way.Name, value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Size is the length of each write in bytes: a page of SQLite, a block of a log.
const Size = 4096

// Rounds is how often each way is measured, in turns with the others.
const Rounds = 24

// Together is how many files are made durable at a time in the last two ways.
const Together = 8

// Way is one way to make a write durable.
type Way struct {
	Name string `json:"name"`
	// Files is how many files were written and are durable then.
	Files int `json:"files"`
	// Median, Min and Max are microseconds for all of them; 0 where Reason says why it cannot be
	// measured.
	Median float64 `json:"median_us,omitempty"`
	Min    float64 `json:"min_us,omitempty"`
	Max    float64 `json:"max_us,omitempty"`
	Reason string  `json:"reason,omitempty"`
}

// Report is what was measured in a directory.
type Report struct {
	Dir        string `json:"dir"`
	Device     string `json:"device,omitempty"`
	Filesystem string `json:"filesystem,omitempty"`
	Ways       []Way  `json:"ways"`
}
