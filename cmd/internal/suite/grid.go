// SPDX-License-Identifier: MIT

package suite

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

// cell is one point of the grid. What a workload has no use for stays zero.
type cell struct {
	// workload is the name of a fileWorkload, storage of a store.
	workload, storage string
	cache             string
	goroutines        int
	block             int
	// more holds further parameters by their names in result files.
	more report.Params
}

// String names the cell in errors and beside the progress bar.
func (c cell) String() string {
	words := []string{c.workload}
	if c.storage != StorageDisk {
		words = append(words, c.storage)
	}
	if c.cache != "" {
		words = append(words, c.cache)
	}
	out := strings.Join(words, " ")
	if c.goroutines > 0 {
		out += fmt.Sprintf(", %d goroutines", c.goroutines)
	}
	if c.block > 0 {
		out += fmt.Sprintf(", block %d", c.block)
	}
	for _, key := range slices.Sorted(maps.Keys(c.more)) {
		out += fmt.Sprintf(", %s %v", key, c.more[key])
	}
	return out
}

// cells returns the grid of all workloads that are wanted.
func (o FileOptions) cells() []cell {
	var out []cell
	for _, w := range fileWorkloads {
		if o.chosen(w.name()) {
			out = append(out, w.cells(o)...)
		}
	}
	return out
}

// storages are those that the grid uses.
func (o FileOptions) storages() []string {
	switch o.Fast {
	case FastAdd:
		return []string{StorageDisk, StorageFast}
	case FastOnly:
		return []string{StorageFast}
	}
	return []string{StorageDisk}
}
