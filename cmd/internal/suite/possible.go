// SPDX-License-Identifier: MIT

package suite

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// possible returns the cells that can be measured here, and notes the others as skipped.
func (f *fileRun) possible() ([]cell, error) {
	cells := slices.DeleteFunc(f.opts.cells(), func(c cell) bool { return f.stores[c.storage] == nil })
	for name, st := range f.stores {
		directHere := func(c cell) bool { return c.cache == CacheDirect && c.storage == name }
		if !slices.ContainsFunc(cells, directHere) {
			continue
		}
		err := f.env.ProbeDirect(st.path)
		if err != nil && !errors.Is(err, workload.ErrNoDirect) {
			return nil, fmt.Errorf("try O_DIRECT: %w", err)
		}
		if err != nil {
			f.skipDirect(name, err)
			cells = slices.DeleteFunc(cells, directHere)
		}
	}
	return slices.DeleteFunc(cells, f.impossible), nil
}

// skipDirect notes that all cells with O_DIRECT on a storage are left out.
func (f *fileRun) skipDirect(storage string, err error) {
	p := report.Params{"cache": CacheDirect}
	if storage != StorageDisk {
		p["storage"] = storage
	}
	f.skip(report.Skip{Params: p, Reason: fmt.Sprintf("%v; choose a directory on a disk with --dir", err)})
}

// impossible notes and reports a cell that its workload cannot measure here.
func (f *fileRun) impossible(c cell) bool {
	reason := workloadOf(c).impossible(f, c)
	if reason != "" {
		f.skip(report.Skip{Workload: c.workload, Params: f.params(c), Reason: reason})
	}
	return reason != ""
}
