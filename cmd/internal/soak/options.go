// SPDX-License-Identifier: MIT

package soak

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The rows that can be soaked.
const (
	Files   = "files"
	Sockets = "sockets"
	Watch   = "watch"
	SQLite  = "sqlite"
)

// Rows are all of them, in the order of lines.
var Rows = []string{Files, Sockets, Watch, SQLite}

// DiskMiB bounds what a run has in its directory at any time, in MiB. A row stays far below its part.
const DiskMiB = 256

// Options say what is soaked.
type Options struct {
	// For is how long, in rounds of at most half a minute.
	For time.Duration
	// Seed is where the seeds of scenarios and of all other choices come from.
	Seed uint64
	// Dir is where a directory for all files is made, which is removed in the end.
	Dir string
	// Rows are some of [Rows]; nil means all.
	Rows []string
	// Replay plays the scenario of this seed again and again, and nothing else, unless it is 0. Rows
	// must have one member then, which is not SQLite.
	Replay uint64
	// Every is the time between calls of Line, which gets what is true at the moment.
	Every time.Duration
	Line  func(Status)

	// round overrides the length of rounds, spoil may change what is on its way, and extra is done in
	// each round: tests plant faults.
	round time.Duration
	spoil func(row string, p []byte)
	extra func()
}

// Check returns an error that names what makes no sense.
func (o *Options) Check() error {
	if o.For <= 0 {
		return fmt.Errorf("--for %v: must be positive", o.For)
	}
	for _, row := range o.Rows {
		if !slices.Contains(Rows, row) {
			return fmt.Errorf("--rows %s: there are %s", row, strings.Join(Rows, ", "))
		}
	}
	if o.Replay != 0 && (len(o.Rows) != 1 || o.Rows[0] == SQLite) {
		return fmt.Errorf("--replay needs the row of that scenario: --rows %s, %s or %s", Files, Sockets, Watch)
	}
	return nil
}

// has reports whether a row is soaked.
func (o *Options) has(row string) bool { return len(o.Rows) == 0 || slices.Contains(o.Rows, row) }

// roundLength leaves room for twelve rounds, so that growth can be seen, but none is shorter than a
// second or longer than half a minute.
func (o *Options) roundLength() time.Duration {
	if o.round > 0 {
		return o.round
	}
	return max(min(o.For/12, 30*time.Second), time.Second)
}
