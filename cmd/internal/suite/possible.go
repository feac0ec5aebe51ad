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
	cells := f.opts.cells()
	if slices.ContainsFunc(cells, func(c cell) bool { return c.cache == CacheDirect }) {
		err := f.env.ProbeDirect(f.path)
		if err != nil && !errors.Is(err, workload.ErrNoDirect) {
			return nil, fmt.Errorf("try O_DIRECT: %w", err)
		}
		if err != nil {
			f.skip(report.Skip{
				Workload: randRead, Params: report.Params{"cache": CacheDirect},
				Reason: fmt.Sprintf("%v; choose a directory on a disk with --dir", err),
			})
			cells = slices.DeleteFunc(cells, func(c cell) bool { return c.cache == CacheDirect })
		}
	}
	return slices.DeleteFunc(cells, f.tooBig), nil
}

// tooBig notes and reports a cell that file or memory cannot carry.
func (f *fileRun) tooBig(c cell) bool {
	reason := ""
	buffers, free := int64(c.block)*int64(c.goroutines), f.env.AvailableMemory()
	switch {
	case f.span(c) < int64(c.block):
		reason = fmt.Sprintf("the file has only %d bytes to read", f.span(c))
	case free > 0 && buffers > free/2:
		reason = fmt.Sprintf("its buffers take %d MiB of %d MiB of available memory", buffers>>20, free>>20)
	default:
		return false
	}
	f.skip(report.Skip{Workload: randRead, Params: f.params(c), Reason: reason})
	return true
}
