// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"runtime"
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	nameBurner = "burner"
	// paramComputing is the number of goroutines that compute.
	paramComputing = "computing"
)

// burner reads beside goroutines that compute: first one of them, then one for each processor. The
// rate of computation is reported beside that of the reads.
type burner struct{ bothEngines }

func (burner) name() string { return nameBurner }

func (burner) cells(o FileOptions) []cell {
	if !o.wants(CacheDirect) {
		return nil
	}
	var out []cell
	for _, g := range o.goroutinesOr(32) {
		for _, block := range o.blocksOr(4 << 10) {
			for _, computing := range slices.Compact([]int{1, runtime.GOMAXPROCS(0)}) {
				out = append(out, cell{
					workload: nameBurner, storage: o.storages()[0], cache: CacheDirect, goroutines: g, block: block,
					more: report.Params{paramComputing: computing},
				})
			}
		}
	}
	return out
}

// impossible names what file or memory cannot carry.
func (burner) impossible(f *fileRun, c cell) string { return f.tooLarge(c, c.goroutines) }

func (burner) prepare(ctx context.Context, f *fileRun, c cell) error {
	return f.setCache(ctx, c, f.stores[c.storage].path)
}

// burnerWindows is how much longer the windows are than others: what decides here are the
// scheduler's time slices of 10 ms, of which a short window has too few.
const burnerWindows = 3

// round runs one engine once. Both halves of a pair read the same offsets.
func (burner) round(ctx context.Context, f *fileRun, c cell, name string, pair int) (measure.Sample, error) {
	j := f.job(c, name)
	j.Measure *= burnerWindows
	j.Warm = warmFor(j.Measure)
	j.Burner = &workload.Burner{RandRead: f.reads(c, pair), Burners: c.more[paramComputing].(int)}
	return f.env.Round(ctx, j)
}
