// SPDX-License-Identifier: MIT

package suite

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// possible returns the cells that can be measured here, and notes the others as skipped.
func (f *fileRun) possible() ([]cell, error) {
	cells := slices.DeleteFunc(f.opts.cells(), func(c cell) bool { return f.stores[c.storage] == nil })
	for _, storage := range f.opts.storages() {
		for _, probe := range []struct {
			cache    string
			try      func(path string) error
			cannot   error
			question string
		}{
			{CacheDirect, f.env.ProbeDirect, workload.ErrNoDirect, "try O_DIRECT"},
			{CacheCold, f.env.ProbeEvict, datafile.ErrCached, "try to evict the file"},
		} {
			here := func(c cell) bool { return c.cache == probe.cache && c.storage == storage }
			if !slices.ContainsFunc(cells, here) {
				continue
			}
			err := probe.try(f.stores[storage].path)
			if err != nil && !errors.Is(err, probe.cannot) {
				return nil, fmt.Errorf("%s: %w", probe.question, err)
			}
			if err != nil {
				f.skipCache(cell{storage: storage, cache: probe.cache}, err)
				cells = slices.DeleteFunc(cells, here)
			}
		}
	}
	return slices.DeleteFunc(cells, f.impossible), nil
}

// skipCache notes that all cells with one state of the cache on one storage are left out.
func (f *fileRun) skipCache(c cell, err error) {
	p := report.Params{"cache": c.cache}
	if c.storage != StorageDisk {
		p["storage"] = c.storage
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
