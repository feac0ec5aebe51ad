// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/peers/ycsb"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	namePebble = "pebble"
	// paramMix is the name of a mix of operations.
	paramMix = "mix"

	// pebbleClients is the number of goroutines that use the database.
	pebbleClients = 64
	// pebbleWindows makes the windows longer: in a short one pebble flushes nothing.
	pebbleWindows = 5
)

// pebbleDatabase compares pebble on its own files with pebble on those of pebblevfs. All rounds of a
// run begin with copies of one database.
type pebbleDatabase struct{ bothEngines }

func (pebbleDatabase) name() string { return namePebble }

// cells are part of a full run, or of one that names the workload.
func (pebbleDatabase) cells(o FileOptions) []cell {
	if !o.wantsPebble() {
		return nil
	}
	var out []cell
	for _, mix := range ycsb.Mixes() {
		for _, cache := range []string{CacheHot, CacheCold} {
			if !o.wants(cache) {
				continue
			}
			for _, g := range o.goroutinesOr(pebbleClients) {
				out = append(out, cell{
					workload: namePebble, storage: o.storages()[0], cache: cache, goroutines: g, more: report.Params{paramMix: mix},
				})
			}
		}
	}
	return out
}

// wantsPebble reports whether pebble is measured: it takes minutes.
func (o FileOptions) wantsPebble() bool {
	return o.chosen(namePebble) && (o.Full || len(o.Workloads) > 0)
}

// impossible returns a limit of the build, of the storage or of memory, or "".
func (pebbleDatabase) impossible(f *fileRun, c cell) string {
	if !f.env.pebble {
		return ycsb.ErrMissing.Error()
	}
	if free := f.env.availableMemory(); c.cache == CacheHot && free > 0 && free < ycsb.Memory {
		return fmt.Sprintf("the page cache must hold %d MiB, and %d MiB of memory are available", ycsb.Memory>>20, free>>20)
	}
	return f.readOnly(c)
}

// prepare makes the database for the first cell, and brings it into the page cache for a hot one.
func (pebbleDatabase) prepare(ctx context.Context, f *fileRun, c cell) error {
	st := f.stores[c.storage]
	if st.pebble == "" {
		f.env.Progress.Note("making a database of pebble")
		scratch, err := st.made.Scratch()
		if err != nil {
			return err
		}
		dir := filepath.Join(scratch, "pebble")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		j := f.job(c, engine.NameOS)
		j.Work = &workload.YCSB{Job: ycsb.Job{Dir: dir, Records: ycsb.Records, Seed: f.opts.Seed}}
		if _, err := f.env.Workers.Round(ctx, j); err != nil {
			return fmt.Errorf("make a database of pebble: %w", err)
		}
		st.pebble = dir
	}
	if c.cache == CacheHot {
		return ycsb.ReadIn(ctx, st.pebble)
	}
	return nil
}

// job returns the work of an engine. Both halves of a pair begin with the same operations.
func (pebbleDatabase) job(f *fileRun, c cell, name string, pair int) (workload.Job, error) {
	j := f.job(c, name)
	j.Measure *= pebbleWindows
	if j.Warm = warmFor(j.Measure); c.cache == CacheCold {
		j.Warm = 0 // what it reads is removed from the page cache
	}
	j.Work = &workload.YCSB{Job: ycsb.Job{
		Dir: f.stores[c.storage].pebble, Mix: c.more[paramMix].(string), Records: ycsb.Records,
		Cold: c.cache == CacheCold, Seed: f.opts.Seed + uint64(pair),
	}}
	return j, nil
}
