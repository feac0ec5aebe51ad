// SPDX-License-Identifier: MIT

package suite

import (
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// chosen reports whether the options ask for the workload. An axis given by the user is meant for the
// random reads unless workloads are named.
func (o FileOptions) chosen(workload string) bool {
	switch {
	case len(o.Workloads) > 0:
		return slices.Contains(o.Workloads, workload)
	case len(o.Blocks)+len(o.Goroutines) > 0, o.cachesGiven:
		return workload == nameRandRead
	}
	return true
}

// wants reports whether this state of the page cache is to be measured.
func (o FileOptions) wants(cache string) bool { return slices.Contains(o.Caches, cache) }

// blocksOr returns the block sizes that the user gave, else the workload's own.
func (o FileOptions) blocksOr(own ...int) []int { return orOwn(o.Blocks, own) }

// goroutinesOr returns the numbers of goroutines that the user gave, else the workload's own.
func (o FileOptions) goroutinesOr(own ...int) []int { return orOwn(o.Goroutines, own) }

func orOwn(given, own []int) []int {
	if len(given) > 0 {
		return given
	}
	return own
}

// bothEngines is what a workload embeds that compares ringside to os, and whose samples need no
// remarks.
type bothEngines struct{}

func (bothEngines) engines(*fileRun, cell) []string {
	return []string{engine.NameOS, engine.NameRingside}
}

func (bothEngines) check(*fileRun, cell, string, measure.Sample) {}

// readOnly says why a workload that writes cannot be measured on the cell's storage, "" if it can.
func (f *fileRun) readOnly(c cell) string {
	if f.stores[c.storage].made == nil {
		return "it writes, and the file of --path is only read: choose a directory with --dir"
	}
	return ""
}
